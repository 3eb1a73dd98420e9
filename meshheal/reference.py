"""What a score is measured against: the level of an agent's peers, and the agent's own long-run distance from it.

A score enters a detector only against a reference obtained in the same way. So levels are kept per *stratum* (first
looks; probes with references by other model families; probes with references by the own family), and inside one per
ability and task kind, pooled upwards where a cell is thin.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from meshheal.types import Ability, AgentId, ReviewRecord

Stratum = tuple[str, str]
"""How a score was obtained: (channel, whose answers the reference came from)."""


def stratum_of(record: ReviewRecord) -> Stratum:
    """Scores obtained in the same way share a stratum: a reviewed probe is scored as a first look is."""
    return ("first_look", "") if record.family == "reviewed" else (record.channel, record.family)


_NEUTRAL = 0.5
"""Level that a stratum without data is drawn to: low, so that a thin reference convicts nobody."""
_CLIP = 0.2
"""How far a peer's mean may stand from the median of the peers before it is pulled in (Huber's location, one step)."""


class Tally(Struct):
    """Count and sum of one agent's scores in one cell; halved at the window, so that old scores fade."""

    n: float = 0.0
    total: float = 0.0

    def add(self, value: float, window: float) -> None:
        if self.n >= window:
            self.n *= 0.5
            self.total *= 0.5
        self.n += 1.0
        self.total += value


class Cell:
    """Scores of all watched agents in one (stratum, ability, kind), or a pool of such."""

    __slots__ = ("_cache", "_version", "tallies")

    def __init__(self) -> None:
        self.tallies: dict[AgentId, Tally] = {}
        self._cache: dict[AgentId, tuple[int, float]] = {}
        self._version = 0

    def add(self, agent: AgentId, score: float, window: float) -> None:
        tally = self.tallies.get(agent)
        if tally is None:
            tally = self.tallies[agent] = Tally()
        tally.add(score, window)
        self._version += 1

    def forget_cache(self) -> None:
        self._cache.clear()

    def level(self, agent: AgentId, without: set[AgentId], parent: float, prior: float) -> float:
        """Leave-one-out location of the peers of `agent`, drawn to `parent` by `prior` observations.

        Recomputed only once the cell has grown by an eighth: between, the level stands, fixed before the next score.
        """
        cached = self._cache.get(agent)
        if cached is not None and self._version < cached[0]:
            return cached[1]
        level, n = _location(self.tallies, agent, without, parent, prior)
        self._cache[agent] = (self._version + 1 + int(n / 8), level)
        return level

    def peers(self, agent: AgentId, without: set[AgentId]) -> int:
        """Peers with data."""
        return sum(1 for a in self.tallies if a != agent and a not in without)

    def state(self) -> Any:
        return {
            "version": self._version,
            "levels": [[a, until, level] for a, (until, level) in self._cache.items()],
            "tallies": [[a, t.n, t.total] for a, t in self.tallies.items()],
        }

    def restore(self, state: Any) -> None:
        self._version = state["version"]
        self._cache = {a: (until, level) for a, until, level in state["levels"]}
        self.tallies = {a: Tally(n, total) for a, n, total in state["tallies"]}


def _location(
    tallies: dict[AgentId, Tally], agent: AgentId, without: set[AgentId], parent: float, prior: float
) -> tuple[float, float]:
    """(weighted Huber location of the peers' means, drawn to parent; observations behind it)."""
    rows = [(t.total / t.n, t.n) for a, t in tallies.items() if a != agent and t.n > 0.0 and a not in without]
    if not rows:
        return parent, 0.0
    n = sum(w for _, w in rows)
    if len(rows) > 2:
        rows.sort()
        half, seen, median = n / 2, 0.0, rows[-1][0]
        for mean, weight in rows:
            seen += weight
            if seen >= half:
                median = mean
                break
        low, high = median - _CLIP, median + _CLIP
        location = sum(w * min(max(m, low), high) for m, w in rows) / n
    else:
        location = sum(w * m for m, w in rows) / n
    return (n * location + prior * parent) / (n + prior), n


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
            cell = self._cells[key] = Cell()
        return cell

    def learn(self, record: ReviewRecord) -> None:
        """Count a score into its cell and the pools above it."""
        stratum = stratum_of(record)
        for ability, kind in (("", ""), (record.ability, ""), (record.ability, record.kind)):
            self._cell(stratum, ability, kind).add(record.producer, record.score, self._window)

    def expected(self, record: ReviewRecord, min_peers: int) -> float | None:
        """Level of the producer's peers on this kind of task; None while fewer than `min_peers` have data."""
        stratum, agent = stratum_of(record), record.producer
        root = self._cell(stratum, "", "")
        if root.peers(agent, self.without) < min_peers:
            if stratum != ("probe", "own"):
                return None
            # An agent agrees with its like at least as often as with others: their level convicts no sooner.
            stratum = ("probe", "other")
            root = self._cell(stratum, "", "")
            if root.peers(agent, self.without) < min_peers:
                return None
        level = root.level(agent, self.without, _NEUTRAL, self._prior)
        level = self._cell(stratum, record.ability, "").level(agent, self.without, level, self._prior)
        if record.kind:
            level = self._cell(stratum, record.ability, record.kind).level(agent, self.without, level, self._prior)
        return level

    def before(self, record: ReviewRecord, min_peers: int) -> float | None:
        """As `expected`, but from all peers that ever had data: of those set aside, what they scored until then."""
        stratum, agent, nobody = stratum_of(record), record.producer, set[AgentId]()
        if self._cell(stratum, "", "").peers(agent, nobody) < min_peers:
            return None
        level = _NEUTRAL
        for ability, kind in (("", ""), (record.ability, ""), (record.ability, record.kind)):
            level = _location(self._cell(stratum, ability, kind).tallies, agent, nobody, level, self._prior)[0]
        return level

    def set_aside(self, agent: AgentId, aside: bool) -> None:
        """Leave an agent out of every reference, or take it in again."""
        if aside != (agent in self.without):
            (self.without.add if aside else self.without.discard)(agent)
            for cell in self._cells.values():
                cell.forget_cache()

    def state(self) -> Any:
        return {
            "without": sorted(self.without),
            "cells": [
                [list(key[0]), key[1], key[2], cell.state()]
                for key, cell in self._cells.items()
            ],
        }

    def restore(self, state: Any) -> None:
        self.without = set(state["without"])
        self._cells = {}
        for (channel, family), ability, kind, cell in state["cells"]:
            self._cell((channel, family), ability, kind).restore(cell)


class Offset:
    """One agent's long-run distance from its peers, per stratum, drawn to 0 and bounded.

    offset = sum of residuals / (n + prior), clipped to +-limit.
    """

    __slots__ = ("_limit", "_prior", "_tallies", "_window")

    def __init__(self, prior: float, limit: float, window: float) -> None:
        self._prior = prior
        self._limit = limit
        self._window = window
        self._tallies: dict[Stratum, Tally] = {}

    def value(self, stratum: Stratum) -> float:
        tally = self._tallies.get(stratum)
        if tally is None:
            return 0.0
        raw = tally.total / (tally.n + self._prior)
        return min(max(raw, -self._limit), self._limit)

    def learn(self, stratum: Stratum, residual: float) -> None:
        tally = self._tallies.get(stratum)
        if tally is None:
            tally = self._tallies[stratum] = Tally()
        tally.add(residual, self._window)

    def state(self) -> Any:
        return [[list(s), t.n, t.total] for s, t in self._tallies.items()]

    def restore(self, state: Any) -> None:
        self._tallies = {(s[0], s[1]): Tally(n, total) for s, n, total in state}
