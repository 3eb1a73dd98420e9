"""What a score is measured against: the level of an agent's peers, and the agent's own long-run distance from it.

A score enters a detector only against a reference obtained in the same way. So levels are kept per *stratum* (first
looks; probes with references by other model families; probes with references by the own family), and inside one per
ability and task kind, pooled upwards where a cell is thin.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from meshheal.types import Ability, AgentId, ReviewRecord

Key = TypeVar("Key")
Stratum = tuple[str, str]
"""How a score was obtained: (channel, whose answers the reference came from)."""
_REVIEWED: Stratum = ("first_look", "")
_OTHER: Stratum = ("probe", "other")
_OWN: Stratum = ("probe", "own")
_PROBED: dict[str, Stratum] = {"other": _OTHER, "own": _OWN}


def stratum_of(record: ReviewRecord) -> Stratum:
    """Scores obtained in the same way share a stratum: a reviewed probe is scored as a first look is."""
    if record.family == "reviewed":
        return _REVIEWED
    return _PROBED[record.family] if record.channel == "probe" else (record.channel, record.family)


_NEUTRAL = 0.5
"""Level that a stratum without data is drawn to: low, so that a thin reference convicts nobody."""
_CLIP = 0.2
"""How far a peer's mean may stand from the median of all before it is pulled in (Huber's location, one step)."""
_FEW = 3
"""So few agents have no median that one odd one among them could not move: their means count as they are."""


class Tally(Struct, gc=False):
    """Count and sum of one agent's scores in one cell; halved at the window, so that old scores fade."""

    n: float = 0
    total: float = 0.0

    def add(self, value: float, window: float) -> None:
        if self.n >= window:
            self.n *= 0.5
            self.total *= 0.5
        self.n += 1
        self.total += value


class Standing(Tally, gc=False):
    """One agent's scores in one cell, and what of their sum counts for the others."""

    share: float = 0.0


class Cell:
    """Scores of all watched agents in one (stratum, ability, kind), or a pool of such. Agents in `without` count for nobody.

    `chain` leads from the root of the stratum through the pools that the cell belongs to down to the cell itself. A level
    is read and a score counted in constant time: the cell holds the sum over its agents of what each adds, which is its
    own sum of scores, or n times the nearer bound where its mean lies outside of `low` to `high`. The bounds are set anew
    each time the cell has grown by an eighth.
    """

    __slots__ = ("_due", "_high", "_low", "_n", "_share", "_standings", "_without", "chain")

    def __init__(self, without: set[AgentId], above: Cell | None = None) -> None:
        self.chain: tuple[Cell, ...] = (self,) if above is None else (*above.chain, self)
        self._without = without
        self._standings: dict[AgentId, Standing] = {}
        self._n: float = 0
        self._share = 0.0
        self._low = 0.0
        self._high = 1.0
        self._due = _GROWTH

    def add(self, agent: AgentId, score: float, window: float) -> None:
        """Count one score here and in the pools above; at the window the agent's older ones fade."""
        counts = agent not in self._without
        for cell in self.chain:
            standing = cell._standings.get(agent)
            if standing is None:
                standing = cell._standings[agent] = Standing()
            elif standing.n >= window:
                cell._fade(standing, counts)
            standing.n = n = standing.n + 1
            standing.total = share = standing.total + score
            if counts:
                if share < cell._low * n:
                    share = cell._low * n
                elif share > cell._high * n:
                    share = cell._high * n
                cell._n += 1
                cell._share += share - standing.share
                standing.share = share
            cell._due -= 1
            if cell._due <= 0:
                cell._grown()

    def _fade(self, standing: Standing, counts: bool) -> None:
        standing.n *= 0.5
        standing.total *= 0.5
        if counts:
            self._n -= standing.n

    def _grown(self) -> None:
        if len(self._standings) > _FEW:
            self.settle()
        else:
            self._due = _GROWTH

    def settle(self) -> None:
        """Set the bounds, and what each agent adds, by the scores so far."""
        counting = [s for a, s in self._standings.items() if a not in self._without]
        self._low, self._high = _bounds(counting)
        self._n, self._share = _shares(counting, self._low, self._high)
        self._due = max(_GROWTH, int(self._n / 8))

    def level(self, agent: AgentId, parent: float, prior: float) -> float:
        """Leave-one-out location of the peers of `agent`, drawn by `prior` observations to that in the pool above; that
        of the root to `parent`.
        """
        counts = agent not in self._without
        for cell in self.chain:
            n, share = cell._n, cell._share
            own = cell._standings.get(agent)
            if own is not None and counts:
                n -= own.n
                share -= own.share
            if n:
                parent = (share + prior * parent) / (n + prior)
        return parent

    def remembered(self, agent: AgentId, parent: float, prior: float) -> float:
        """The level from all peers, whoever is set aside now."""
        peers = [Standing(s.n, s.total) for a, s in self._standings.items() if a != agent]
        n, share = _shares(peers, *_bounds(peers))
        return (share + prior * parent) / (n + prior) if n else parent

    def peers(self, agent: AgentId, without: Container[AgentId]) -> int:
        """Peers with data that are not in `without`."""
        if not without:
            return len(self._standings) - (agent in self._standings)
        return sum([a != agent and a not in without for a in self._standings])

    def knows(self, agent: AgentId) -> bool:
        """Whether there are scores of the agent."""
        return agent in self._standings

    def state(self) -> Any:
        return {
            "due": self._due,
            "sums": [self._n, self._share, self._low, self._high],
            "agents": [[a, s.n, s.total, s.share] for a, s in self._standings.items()],
        }

    def restore(self, state: Any) -> None:
        self._due = state["due"]
        self._n, self._share, self._low, self._high = state["sums"]
        self._standings = {agent: Standing(*rest) for agent, *rest in state["agents"]}


_GROWTH = 8
"""Scores after which a thin cell sets its bounds anew."""


def _bounds(standings: Sequence[Tally]) -> tuple[float, float]:
    """Where means are pulled in: `_CLIP` to either side of their weighted median."""
    if len(standings) <= _FEW:
        return 0.0, 1.0
    rows = sorted([(s.total / s.n, s.n) for s in standings])
    half, seen, median = sum([n for _, n in rows]) / 2, 0.0, rows[-1][0]
    for mean, n in rows:
        seen += n
        if seen >= half:
            median = mean
            break
    return median - _CLIP, median + _CLIP


def _shares(standings: Sequence[Standing], low: float, high: float) -> tuple[float, float]:
    """(scores counted, sum of what each agent adds), each agent's share set."""
    n, total = 0.0, 0.0
    for s in standings:
        share = s.total
        if share < low * s.n:
            share = low * s.n
        elif share > high * s.n:
            share = high * s.n
        s.share = share
        n += s.n
        total += share
    return n, total


@lru_cache(maxsize=4096)
def _same(key: Key) -> Key:
    """An equal key, of which there is one for all observers: many hold the same."""
    return key


class Levels:
    """The levels one observer has learnt."""

    __slots__ = ("_cells", "_prior", "_window", "without")

    def __init__(self, prior: float, window: float) -> None:
        self._prior = prior
        self._window = window
        self._cells: dict[tuple[Stratum, Ability, str], Cell] = {}
        self.without: set[AgentId] = set()
        """Agents that count for no reference now: suspects and excluded ones."""

    def _cell(self, stratum: Stratum, ability: Ability, kind: str) -> Cell:
        key = (stratum, ability, kind)
        cell = self._cells.get(key)
        if cell is None:
            above = self._cell(stratum, ability if kind else "", "") if ability else None
            cell = self._cells[_same(key)] = Cell(self.without, above)
        return cell

    def cell(self, record: ReviewRecord, stratum: Stratum) -> Cell:
        """The cell of the record's kind, among scores obtained in that way."""
        key = (stratum, record.ability, record.kind)
        return self._cells.get(key) or self._cell(*key)

    def learn(self, record: ReviewRecord, cell: Cell | None = None) -> None:
        """Count a score into its cell and the pools above it."""
        cell = cell or self.cell(record, stratum_of(record))
        cell.add(record.producer, record.score, self._window)

    def expected(self, record: ReviewRecord, min_peers: int, cell: Cell | None = None) -> float | None:
        """Level of the producer's peers on this kind of task; None while fewer than `min_peers` have data.

        `cell` is the record's, where it is known already.
        """
        agent = record.producer
        cell = cell or self.cell(record, stratum_of(record))
        if cell.chain[0].peers(agent, self.without) < min_peers:
            if stratum_of(record) != _OWN:
                return None
            # An agent agrees with its like at least as often as with others: their level convicts no sooner.
            cell = self.cell(record, _OTHER)
            if cell.chain[0].peers(agent, self.without) < min_peers:
                return None
        return cell.level(agent, _NEUTRAL, self._prior)

    def before(self, record: ReviewRecord, min_peers: int) -> float | None:
        """As `expected`, but from all peers that ever had data: of those set aside, what they scored until then."""
        agent, cell = record.producer, self.cell(record, stratum_of(record))
        if cell.chain[0].peers(agent, ()) < min_peers:
            return None
        level = _NEUTRAL
        for part in cell.chain:
            level = part.remembered(agent, level, self._prior)
        return level

    def set_aside(self, agent: AgentId, aside: bool) -> None:
        """Leave an agent out of every reference, or take it in again."""
        if aside != (agent in self.without):
            (self.without.add if aside else self.without.discard)(agent)
            for cell in self._cells.values():
                if cell.knows(agent):
                    cell.settle()

    def state(self) -> Any:
        return {
            "without": sorted(self.without),
            "cells": [[list(key[0]), key[1], key[2], cell.state()] for key, cell in self._cells.items()],
        }

    def restore(self, state: Any) -> None:
        self.without = set(state["without"])
        self._cells = {}
        for (channel, family), ability, kind, cell in state["cells"]:
            self._cell((channel, family), ability, kind).restore(cell)


class Distance(Tally, kw_only=True, gc=False):
    """Residuals of one agent in one ability, within those in a stratum as a `whole`."""

    whole: Tally


class Offset:
    """One agent's long-run distance from its peers, per stratum and ability, drawn to 0 and bounded.

    Of a stratum: sum of residuals / (n + prior). Of an ability in it: (sum of its residuals + prior * that of the stratum)
    / (n of the ability + prior), so that one who is weak in algebra alone is not expected to be weak, or strong, in both.
    Clipped to +-limit.
    """

    __slots__ = ("_limit", "_parts", "_prior", "_wholes", "_window")

    def __init__(self, prior: float, limit: float, window: float) -> None:
        self._prior = prior
        self._limit = limit
        self._window = window
        self._wholes: dict[Stratum, Tally] = {}
        self._parts: dict[tuple[Stratum, Ability], Distance] = {}

    def value(self, stratum: Stratum, ability: Ability = "") -> float:
        """The distance in an ability, or over all of them."""
        prior, limit = self._prior, self._limit
        part = self._parts.get((stratum, ability)) if ability else None
        whole = self._wholes.get(stratum) if part is None else part.whole
        if whole is None:
            return 0.0
        raw = whole.total / (whole.n + prior)
        if part is not None:
            raw = (part.total + prior * raw) / (part.n + prior)
        return -limit if raw < -limit else limit if raw > limit else raw

    def learn(self, stratum: Stratum, residual: float, ability: Ability = "") -> None:
        """Count how far a score was from the level of the peers."""
        if not ability:
            self._whole(stratum).add(residual, self._window)
            return
        part = self._parts.get((stratum, ability)) or self._part(stratum, ability)
        part.whole.add(residual, self._window)
        part.add(residual, self._window)

    def _whole(self, stratum: Stratum) -> Tally:
        whole = self._wholes.get(stratum)
        if whole is None:
            whole = self._wholes[stratum] = Tally()
        return whole

    def _part(self, stratum: Stratum, ability: Ability) -> Distance:
        part = self._parts[_same((stratum, ability))] = Distance(whole=self._whole(stratum))
        return part

    def state(self) -> Any:
        wholes = [[list(stratum), "", t.n, t.total] for stratum, t in self._wholes.items()]
        return wholes + [[list(stratum), ability, t.n, t.total] for (stratum, ability), t in self._parts.items()]

    def restore(self, state: Any) -> None:
        self._wholes, self._parts = {}, {}
        for (channel, family), ability, n, total in state:
            stratum = (channel, family)
            tally = self._part(stratum, ability) if ability else self._whole(stratum)
            tally.n, tally.total = n, total
