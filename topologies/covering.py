"""Sparse random graphs in which every closed neighbourhood holds enough agents of every ability."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from meshheal.rng import Stream
from meshheal.types import ANY, Ability
from topologies.abilities import TWO_THIRDS, Serve, pattern, share_of
from topologies.cover import Cover
from topologies.graph import Topology, from_edges, refuse

SMALL = 200
"""Up to so many agents several graphs are drawn and the one with the fewest edges is kept."""
TRIES = 8
UNASKED = 1 << 30
"""An ability that an agent need not serve is held to be in such excess that nothing makes it scarce."""

Held = tuple[tuple[Ability, ...], ...]


def coverage(
    n: int,
    at_least: int = 4,
    abilities: int | tuple[Ability, ...] = 3,
    holders: float | Fraction = TWO_THIRDS,
    serve: Serve = "all",
    seed: int = 0,
) -> Topology:
    """A connected random graph in which every agent and its neighbours include `at_least` holders of each
    ability.

    Abilities are given out as `assign` does, each to the share `holders`. A number of abilities instead of
    their names leaves them unassigned: `assign` with so many names and the same share then has the coverage.
    `serve="own"` asks for the abilities an agent holds itself only (tasks of others are forwarded). See
    `fewest_edges` for how close to the fewest edges this comes. Raises UsageError where an ability has fewer
    than `at_least` holders.
    """
    names = tuple(f"ability {i}" for i in range(abilities)) if isinstance(abilities, int) else abilities
    if n < 1 or not names or len(set(names)) < len(names):
        refuse(f"coverage needs agents and different abilities, not n={n}, abilities={abilities!r}")
    share = share_of(holders)
    made = cover(tuple(pattern(i, names, share) for i in range(n)), at_least, serve, seed)
    name = f"coverage:{n},at_least={at_least},abilities={len(names)},holders={share},serve={serve},seed={seed}"
    return replace(made, name=name, abilities=() if isinstance(abilities, int) else made.abilities)


def cover(held: Held, at_least: int, serve: Serve = "all", seed: int = 0) -> Topology:
    """As `coverage`, for abilities given out before: `held[i]` is what agent i holds; all empty: `any`."""
    if not any(held):
        held = ((ANY,),) * len(held)
    _check(held, at_least, serve)
    names = sorted({ability for abilities in held for ability in abilities})
    place = {ability: i for i, ability in enumerate(names)}
    offers = [sorted(place[ability] for ability in abilities) for abilities in held]
    need = [_need(mine, len(names), at_least, serve) for mine in offers]
    bound = _bound(offers, need)
    best: list[tuple[int, int]] | None = None
    for attempt in range(TRIES if len(held) <= SMALL else 1):
        draw = Stream("topology", "coverage", seed, len(held), at_least, attempt)
        edges = Cover(offers, need, draw).solve()
        if best is None or len(edges) < len(best):
            best = edges
        if len(best) == bound:
            break
    return from_edges(len(held), best or [], held, name=f"cover of {len(held)} agents, seed {seed}")


def fewest_edges(topology: Topology, at_least: int, serve: Serve = "all") -> int:
    """A lower bound on the edges of any connected graph with the same abilities and coverage.

    Agent v lacks d(v, a) = at_least - [v holds a] holders of each ability a it must serve. Largest of three:

    - By degree: v needs max over a of d(v, a) neighbours, and sum over a of d(v, a) / m, where m is the most
      of these abilities that one agent holds, and abilities with the same holders count once. Half the sum.
    - By one ability: an edge serves both of its ends only if both hold a. Sum over v of d(v, a), halved where
      v holds a; the largest over a.
    - n - 1.

    A graph has at most `topology.edges / fewest_edges(...)` times the fewest edges; 1 is optimal.
    """
    held = [topology.held(agent) for agent in range(len(topology))]
    place = {ability: i for i, ability in enumerate(topology.ability_names)}
    offers = [sorted(place[ability] for ability in mine) for mine in held]
    return _bound(offers, [_need(mine, len(place), at_least, serve) for mine in offers])


def _bound(offers: list[list[int]], need: list[list[int]]) -> int:
    abilities = range(len(need[0]))
    both = list(zip(offers, need, strict=True))
    by_ability = [sum(max(row[a], 0) * (2 - (a in mine)) for mine, row in both) for a in abilities]
    kinds = sorted({tuple(mine) for mine in offers})
    distinct = {tuple(a in kind for kind in kinds): a for a in abilities}.values()
    degree: dict[tuple[int, ...], int] = {}
    for row in need:
        if tuple(row) not in degree:
            lacking = [a for a in distinct if row[a] > 0]
            most = max(sum(1 for a in lacking if a in kind) for kind in kinds)
            needs = [row[a] for a in lacking]
            degree[tuple(row)] = max(*needs, -(-sum(needs) // most)) if needs else 0
    by_degree = sum(degree[tuple(row)] for row in need)
    twice = max([by_degree, *by_ability, 2 * (len(offers) - 1)])
    return -(-twice // 2)


def _need(mine: list[int], count: int, at_least: int, serve: Serve) -> list[int]:
    """Holders of each ability to be added around an agent; far below 0 where it need not serve it."""
    if serve == "all":
        return [at_least - (a in mine) for a in range(count)]
    return [at_least - 1 if a in mine else -UNASKED for a in range(count)]


def _check(held: Held, at_least: int, serve: Serve) -> None:
    if serve not in ("all", "own"):
        refuse(f"coverage: serve={serve!r} is not known; use all or own")
    if at_least < 1:
        refuse(f"coverage: at_least={at_least} must be 1 or more")
    if not held:
        refuse("coverage needs at least one agent")
    holders = Counter(ability for abilities in held for ability in abilities)
    for ability, have in sorted(holders.items()):
        if have < at_least:
            refuse(
                f"coverage: {ability!r} is held by {have} agent{'s' * (have != 1)} in all, "
                f"at_least={at_least} cannot be had. Add agents, raise holders, or lower at_least."
            )
