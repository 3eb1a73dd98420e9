"""What a score is measured against: the level of an agent's peers, and the agent's own long-run distance from it.

A score enters a detector only against a reference obtained in the same way. So levels are kept per *stratum* (first
looks; probes with references by other model families; probes with references by the own family), and inside one per
ability and task kind, pooled upwards where a cell is thin.
"""

from __future__ import annotations

from typing import Any

from meshheal.types import Ability, AgentId, ReviewRecord

Stratum = tuple[str, str]
"""How a score was obtained: (channel, whose answers the reference came from)."""
_REVIEWED: Stratum = ("first_look", "")
_PROBED: dict[str, Stratum] = {"other": ("probe", "other"), "own": ("probe", "own")}


def stratum_of(record: ReviewRecord) -> Stratum:
    """Scores obtained in the same way share a stratum: a reviewed probe is scored as a first look is."""
    if record.family == "reviewed":
        return _REVIEWED
    return _PROBED[record.family] if record.channel == "probe" else (record.channel, record.family)


_NEUTRAL = 0.5
"""Level that a stratum without data is drawn to: low, so that a thin reference convicts nobody."""
_CLIP = 0.2
"""How far a peer's mean may stand from the median of the peers before it is pulled in (Huber's location, one step)."""


class Tally:
    """Count and sum of one agent's scores in one cell; halved at the window, so that old scores fade."""

    __slots__ = ("n", "total")

    def __init__(self, n: float = 0.0, total: float = 0.0) -> None:
        self.n = n
        self.total = total

    def add(self, value: float, window: float) -> None:
        if self.n >= window:
            self.n *= 0.5
            self.total *= 0.5
        self.n += 1.0
        self.total += value


class Standing(Tally):
    """One agent's scores in one cell, and the level of its peers there, which holds while the cell's version is below
    `until`."""

    __slots__ = ("level", "until")

    def __init__(self, n: float = 0.0, total: float = 0.0) -> None:
        self.n = n
        self.total = total
        self.until = 0
        self.level = 0.0


class Cell:
    """Scores of all watched agents in one (stratum, ability, kind), or a pool of such; `above` is the pool it belongs to,
    of a root the root itself."""

    __slots__ = ("_agents", "_version", "above")

    def __init__(self, above: Cell | None = None) -> None:
        self.above = above or self
        self._agents: dict[AgentId, Standing] = {}
        self._version = 0

    def _standing(self, agent: AgentId) -> Standing:
        found = self._agents.get(agent)
        if found is None:
            found = self._agents[agent] = Standing()
        return found

    def add(self, agent: AgentId, score: float, window: float) -> None:
        (self._agents.get(agent) or self._standing(agent)).add(score, window)
        self._version += 1

    def forget_cache(self) -> None:
        for standing in self._agents.values():
            standing.until = 0

    def level(self, agent: AgentId, without: set[AgentId], parent: float, prior: float) -> float:
        """Leave-one-out location of the peers of `agent`, drawn to `parent` by `prior` observations.

        Recomputed only once the cell has grown by an eighth: between, the level stands, fixed before the next score.
        """
        own = self._agents.get(agent) or self._standing(agent)
        if self._version >= own.until:
            own.level, n = _location(self._agents, agent, without, parent, prior)
            own.until = self._version + 1 + int(n / 8)
        return own.level

    def remembered(self, agent: AgentId, parent: float, prior: float) -> float:
        """The level from all peers, whoever is set aside now."""
        return _location(self._agents, agent, set(), parent, prior)[0]

    def peers(self, agent: AgentId, without: set[AgentId]) -> int:
        """Peers with data."""
        count = 0
        for a, standing in self._agents.items():
            if a != agent and standing.n and a not in without:
                count += 1
        return count

    def state(self) -> Any:
        return {
            "version": self._version,
            "agents": [[a, s.n, s.total, s.until, s.level] for a, s in self._agents.items()],
        }

    def restore(self, state: Any) -> None:
        self._version = state["version"]
        self._agents = {}
        for agent, n, total, until, level in state["agents"]:
            standing = self._agents[agent] = Standing(n, total)
            standing.until, standing.level = until, level


def _location(
    agents: dict[AgentId, Standing], agent: AgentId, without: set[AgentId], parent: float, prior: float
) -> tuple[float, float]:
    """(weighted Huber location of the peers' means, drawn to parent; observations behind it)."""
    rows: list[tuple[float, float]] = []
    n = 0.0
    for a, peer in agents.items():
        weight = peer.n
        if weight and a != agent and a not in without:
            n += weight
            rows.append((peer.total / weight, weight))
    if not rows:
        return parent, 0.0
    low, high = 0.0, 1.0
    if len(rows) > 2:
        rows.sort()
        half, seen, median = n / 2, 0.0, rows[-1][0]
        for mean, weight in rows:
            seen += weight
            if seen >= half:
                median = mean
                break
        low, high = median - _CLIP, median + _CLIP
    total = 0.0
    for mean, weight in rows:
        total += weight * (low if mean < low else high if mean > high else mean)
    location = total / n
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
            above = self._cell(stratum, ability if kind else "", "") if ability else None
            cell = self._cells[key] = Cell(above)
        return cell

    def _pooled(self, stratum: Stratum, record: ReviewRecord) -> tuple[Cell, Cell, Cell]:
        """The root of a stratum, the pool of the record's ability, the cell of its kind."""
        key = (stratum, record.ability, record.kind)
        cell = self._cells.get(key) or self._cell(*key)
        pool = cell.above if record.kind else cell
        return pool.above, pool, cell

    def learn(self, record: ReviewRecord) -> None:
        """Count a score into its cell and the pools above it."""
        for cell in self._pooled(stratum_of(record), record):
            cell.add(record.producer, record.score, self._window)

    def expected(self, record: ReviewRecord, min_peers: int) -> float | None:
        """Level of the producer's peers on this kind of task; None while fewer than `min_peers` have data."""
        stratum, agent, without, prior = stratum_of(record), record.producer, self.without, self._prior
        root, pool, cell = self._pooled(stratum, record)
        if root.peers(agent, without) < min_peers:
            if stratum != ("probe", "own"):
                return None
            # An agent agrees with its like at least as often as with others: their level convicts no sooner.
            root, pool, cell = self._pooled(("probe", "other"), record)
            if root.peers(agent, without) < min_peers:
                return None
        level = root.level(agent, without, _NEUTRAL, prior)
        level = pool.level(agent, without, level, prior)
        return cell.level(agent, without, level, prior) if record.kind else level

    def before(self, record: ReviewRecord, min_peers: int) -> float | None:
        """As `expected`, but from all peers that ever had data: of those set aside, what they scored until then."""
        agent, nobody = record.producer, set[AgentId]()
        cells = self._pooled(stratum_of(record), record)
        if cells[0].peers(agent, nobody) < min_peers:
            return None
        level = _NEUTRAL
        for cell in cells:
            level = cell.remembered(agent, level, self._prior)
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
            "cells": [[list(key[0]), key[1], key[2], cell.state()] for key, cell in self._cells.items()],
        }

    def restore(self, state: Any) -> None:
        self.without = set(state["without"])
        self._cells = {}
        for (channel, family), ability, kind, cell in state["cells"]:
            self._cell((channel, family), ability, kind).restore(cell)


class Offset:
    """One agent's long-run distance from its peers, per stratum and ability, drawn to 0 and bounded.

    Of a stratum: sum of residuals / (n + prior). Of an ability in it: (sum of its residuals + prior * that of the stratum)
    / (n of the ability + prior), so that one who is weak in algebra alone is not expected to be weak, or strong, in both.
    Clipped to +-limit.
    """

    __slots__ = ("_limit", "_prior", "_tallies", "_window")

    def __init__(self, prior: float, limit: float, window: float) -> None:
        self._prior = prior
        self._limit = limit
        self._window = window
        self._tallies: dict[tuple[Stratum, Ability], Tally] = {}

    def value(self, stratum: Stratum, ability: Ability = "") -> float:
        """The distance in an ability, or over all of them."""
        whole = self._tallies.get((stratum, ""))
        if whole is None:
            return 0.0
        raw = whole.total / (whole.n + self._prior)
        part = self._tallies.get((stratum, ability)) if ability else None
        if part is not None:
            raw = (part.total + self._prior * raw) / (part.n + self._prior)
        limit = self._limit
        return -limit if raw < -limit else limit if raw > limit else raw

    def learn(self, stratum: Stratum, residual: float, ability: Ability = "") -> None:
        """Count how far a score was from the level of the peers."""
        for key in ((stratum, ""), (stratum, ability)) if ability else ((stratum, ""),):
            tally = self._tallies.get(key)
            if tally is None:
                tally = self._tallies[key] = Tally()
            tally.add(residual, self._window)

    def state(self) -> Any:
        return [[list(s), ability, t.n, t.total] for (s, ability), t in self._tallies.items()]

    def restore(self, state: Any) -> None:
        self._tallies = {((s[0], s[1]), ability): Tally(n, total) for s, ability, n, total in state}
