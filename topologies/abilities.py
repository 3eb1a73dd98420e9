"""Who holds which ability, and whether every agent has enough of each around it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Literal, NamedTuple

from meshheal.types import Ability, AgentId
from topologies.graph import Topology, refuse

Serve = Literal["all", "own"]
"""Which abilities an agent's closed neighbourhood must be able to serve: every one, or those the agent holds
itself.
"""

TWO_THIRDS = Fraction(2, 3)


class Lack(NamedTuple):
    """An agent whose closed neighbourhood holds too few agents of an ability."""

    agent: AgentId
    ability: Ability
    have: int
    need: int


def share_of(holders: float | Fraction) -> Fraction:
    """A share in (0, 1] as a fraction with a small denominator, so that .6667 means two thirds."""
    if not 0 < holders <= 1:
        refuse(f"holders={float(holders):g} must be above 0 and at most 1, the share that holds an ability")
    return max(Fraction(holders).limit_denominator(100), Fraction(1, 100))


def pattern(position: int, abilities: tuple[Ability, ...], share: Fraction) -> tuple[Ability, ...]:
    """What the agent at a position holds: ability a is held where ((position - a) * p) mod q < p, with share
    = p/q.

    Every q consecutive agents hold each ability exactly p times, and what two agents hold differs by at most
    one in number (the pattern is a balanced word). With three abilities and share 2/3, agent i holds the i-th
    and the next.
    """
    p, q = share.numerator, share.denominator
    count = len(abilities)
    order = [(position + step) % count for step in range(count)]
    return tuple(abilities[a] for a in order if (position - a) * p % q < p)


def assign(
    topology: Topology,
    abilities: tuple[Ability, ...],
    per_agent: int | None = None,
    holders: float | Fraction = TWO_THIRDS,
) -> Topology:
    """The topology with abilities given out so that each is held by the share `holders` of the agents.

    By default four of every six consecutive agents hold each ability: of three abilities every agent holds
    two. With `per_agent`, every agent holds so many and the share follows. The pattern starts anew in every
    cell.
    """
    if not abilities or len(set(abilities)) < len(abilities):
        refuse(f"abilities {abilities!r} must be one or more different names")
    if per_agent is not None and not 1 <= per_agent <= len(abilities):
        refuse(f"per_agent={per_agent} must be 1 to {len(abilities)}, the number of abilities")
    share = share_of(holders) if per_agent is None else Fraction(per_agent, len(abilities))
    return replace(topology, abilities=tuple(pattern(p, abilities, share) for p in _positions(topology)))


def _positions(topology: Topology) -> list[int]:
    """Each agent's place within its cell, or in the whole where there are no cells."""
    if not topology.cells:
        return list(range(len(topology)))
    filled: dict[int, int] = {}
    places = []
    for cell in topology.cells:
        places.append(filled.get(cell, 0))
        filled[cell] = places[-1] + 1
    return places


def lacks(topology: Topology, at_least: int, serve: Serve = "all") -> list[Lack]:
    """Every agent and ability of which its closed neighbourhood (itself included) holds fewer than
    `at_least`.
    """
    found = []
    everything = topology.ability_names
    held = [topology.held(agent) for agent in range(len(topology))]
    for agent, peers in enumerate(topology.neighbours):
        have = dict.fromkeys(everything, 0)
        for member in (agent, *peers):
            for ability in held[member]:
                have[ability] += 1
        for ability in everything if serve == "all" else held[agent]:
            if have[ability] < at_least:
                found.append(Lack(agent, ability, have[ability], at_least))
    return found


def require(topology: Topology, committee: int, serve: Serve = "all") -> None:
    """Raise UsageError unless every agent reaches a producer and `committee` reviewers of each ability it
    must serve.
    """
    if committee < 1:
        refuse(f"review.committee={committee} must be at least 1")
    missing = lacks(topology, committee + 1, serve)
    if not missing:
        return
    agent, ability, have, _ = missing[0]
    reviewers = max(min(lack.have for lack in missing) - 1, 0)
    if ability in topology.held(agent):
        reach = f"{have - 1} producer{'s' * (have != 2)} of {ability!r} besides itself"
    else:
        reach = f"{have} producer{'s' * (have != 1)} of {ability!r} and does not hold it"
    more = "" if len(missing) == 1 else f" ({len(missing)} such cases.)"
    way_out = f", or lower review.committee to {reviewers}" if reviewers else ""
    besides = "" if ability in topology.held(agent) else " besides the one that produces"
    refuse(
        f"agent {agent} reaches {reach}; reviewing needs {committee}{besides}.{more} "
        f"Add edges (coverage(..., at_least={committee + 1})){way_out}."
    )
