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


def swap(agent: AgentId, to: str, at: int, back: int, roles: Sequence[Purpose] = (), degraded: bool = True) -> Swap:
    """A backend swap of `agent` to model `to` from arrival `at` up to, not including, `back`."""
    if not 0 <= at < back:
        raise UsageError(f"swap of agent {agent}: needs 0 <= at < back, got at={at}, back={back}")
    unknown = [r for r in roles if r not in PURPOSES]
    if unknown:
        raise UsageError(f"swap of agent {agent}: unknown role {unknown[0]!r}; there are {', '.join(PURPOSES)}")
    return Swap(agent, to, at, back, tuple(roles), degraded)


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


def check(faults: Sequence[Fault], agents: int) -> None:
    """Raise `UsageError` where a fault has no window or names an agent that is not there, or two swaps overlap."""
    for fault in faults:
        if not 0 <= fault.at < fault.back:
            raise UsageError(f"fault {fault}: needs 0 <= at < back")
        if isinstance(fault, Weather):
            continue
        named = [a for g in fault.groups for a in g] if isinstance(fault, Partition) else [fault.agent]
        for agent in named:
            if not 0 <= agent < agents:
                raise UsageError(f"fault at agent {agent}: the topology has agents 0 to {agents - 1}")
    swaps = sorted((f for f in faults if isinstance(f, Swap)), key=lambda f: (f.agent, f.at))
    for one, two in pairwise(swaps):
        if one.agent == two.agent and two.at < one.back:
            raise UsageError(f"swaps of agent {one.agent} overlap: {one.at}-{one.back} and {two.at}-{two.back}")
