"""Scheduled faults, in arrivals of the task stream: backend swaps, crashes, partitions, rough links."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from meshheal.errors import UsageError
from meshheal.model import PURPOSES, Purpose
from meshheal.types import AgentId
from sim.links import LinkProfile


class Swap(Struct, frozen=True, tag="swap"):
    """The models behind an agent's own abilities are `to` for arrivals `at` <= i < `back`.

    Calls under way keep their model. `roles`: only these purposes (empty: all). `degraded`: whether the swap makes the
    agent worse; False for placebos, which open no episode.
    """

    agent: AgentId
    to: str
    at: int
    back: int
    roles: tuple[Purpose, ...] = ()
    degraded: bool = True


class TimedSwap(Struct, frozen=True, tag="timed_swap"):
    """A swap by the run's clock: in force for calls that begin from `at_seconds` on and before `back_seconds`."""

    agent: AgentId
    to: str
    at_seconds: float
    back_seconds: float
    roles: tuple[Purpose, ...] = ()
    degraded: bool = True


BackendSwap = Swap | TimedSwap


class Crash(Struct, frozen=True, tag="crash"):
    """The agent's process dies `after` seconds into arrival `at`; at arrival `back` it restarts from its checkpoint.

    `planned`: it is away because it left or has not joined yet. No task enters the network there meanwhile, and it comes
    without a memory.
    """

    agent: AgentId
    at: int
    back: int
    after: float = 0.0
    planned: bool = False


class Partition(Struct, frozen=True, tag="partition"):
    """No message passes between the groups for arrivals `at` <= i < `back`."""

    groups: tuple[tuple[AgentId, ...], ...]
    at: int
    back: int


class Weather(Struct, frozen=True, tag="weather"):
    """All links are as `links` says for arrivals `at` <= i < `back`; before and after, as the world declares them."""

    links: LinkProfile
    at: int
    back: int


Fault = Swap | Crash | Partition | Weather
"""What is scheduled by arrivals."""
AnyFault = Fault | TimedSwap


def swap(agent: AgentId, to: str, at: int, back: int, roles: Sequence[Purpose] = (), degraded: bool = True) -> Swap:
    """A backend swap of `agent` to model `to` from arrival `at` up to, not including, `back`."""
    if not 0 <= at < back:
        raise UsageError(f"swap of agent {agent}: needs 0 <= at < back, got at={at}, back={back}")
    _check_roles(agent, roles)
    return Swap(agent, to, at, back, tuple(roles), degraded)


def staggered(to: str) -> tuple[Swap, Swap]:
    """The swaps of experiments/staggered_math: 105 arrivals of one degraded agent, of both, and of the other."""
    return swap(agent=0, to=to, at=105, back=315), swap(agent=3, to=to, at=210, back=420)


def timed_swap(
    agent: AgentId,
    to: str,
    at_seconds: float,
    back_seconds: float,
    roles: Sequence[Purpose] = (),
    degraded: bool = True,
) -> TimedSwap:
    """A backend swap of `agent` to model `to` between two times of the run's clock, in seconds from its start."""
    if not 0 <= at_seconds < back_seconds:
        raise UsageError(
            f"swap of agent {agent}: needs 0 <= at_seconds < back_seconds, got {at_seconds:g} and {back_seconds:g}"
        )
    _check_roles(agent, roles)
    return TimedSwap(agent, to, at_seconds, back_seconds, tuple(roles), degraded)


def _check_roles(agent: AgentId, roles: Sequence[Purpose]) -> None:
    unknown = [r for r in roles if r not in PURPOSES]
    if unknown:
        raise UsageError(f"swap of agent {agent}: unknown role {unknown[0]!r}; there are {', '.join(PURPOSES)}")


NEVER = 2**31
"""An arrival that does not come."""


def join(agent: AgentId, at: int) -> Crash:
    """`agent` is not there before arrival `at`; its place in the graph and its abilities are known."""
    if at < 1:
        raise UsageError(f"join of agent {agent}: at={at} must be 1 or more")
    return Crash(agent, 0, at, planned=True)


def leave(agent: AgentId, at: int) -> Crash:
    """`agent` is gone for good from arrival `at` on."""
    return Crash(agent, at, NEVER, planned=True)


def check(faults: Sequence[AnyFault], agents: int) -> None:
    """Raise `UsageError` where a fault has no window or names an agent that is not there, or two swaps overlap."""
    for fault in faults:
        begins, ends = _window(fault)
        if not 0 <= begins < ends:
            raise UsageError(f"fault {fault}: needs 0 <= at < back")
        if isinstance(fault, Weather):
            continue
        named = [a for g in fault.groups for a in g] if isinstance(fault, Partition) else [fault.agent]
        for agent in named:
            if not 0 <= agent < agents:
                raise UsageError(f"fault at agent {agent}: the topology has agents 0 to {agents - 1}")
    _check_overlaps([f for f in faults if isinstance(f, Swap)])
    timed = [f for f in faults if isinstance(f, TimedSwap)]
    _check_overlaps(timed)
    both = {f.agent for f in timed} & {f.agent for f in faults if isinstance(f, Swap)}
    if both:
        raise UsageError(f"agent {min(both)} is swapped by arrivals and by the clock; choose one of them")


def _window(fault: AnyFault) -> tuple[float, float]:
    return (fault.at_seconds, fault.back_seconds) if isinstance(fault, TimedSwap) else (fault.at, fault.back)


def _check_overlaps(swaps: Sequence[BackendSwap]) -> None:
    for one, two in pairwise(sorted(swaps, key=lambda f: (f.agent, _window(f)))):
        (at, back), (again, until) = _window(one), _window(two)
        if one.agent == two.agent and again < back:
            raise UsageError(f"swaps of agent {one.agent} overlap: {at:g}-{back:g} and {again:g}-{until:g}")
