"""Which runtime a world runs on: one process under virtual time, one in real time, or the actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from meshheal.errors import UsageError
from meshheal.events import Log
from sim.local import LocalRun
from sim.realtime import RealtimeRun
from sim.traffic import Traffic
from sim.world import World

Runtime = Literal["local", "realtime", "ray"]
RUNTIMES = ("auto", "local", "realtime", "ray")
_CLUSTER = ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR")
"""Variables that a shell on a cluster, or a submitted job, has."""


class Placement(Struct, frozen=True):
    """How agents are spread over the hosts of a cluster: `hosts`, or as many as `agents_per_host` makes.

    With neither, one a CPU, and at least three agents on each.
    """

    hosts: int | None = None
    agents_per_host: int | None = None

    def count(self, agents: int, cpus: int) -> int:
        """Hosts for that many agents."""
        if self.hosts is not None:
            return min(self.hosts, agents)
        if self.agents_per_host is not None:
            return -(-agents // self.agents_per_host)
        return max(1, min(cpus, agents // _LEAST))


_LEAST = 3
"""Agents of a host, where nothing is said: more hosts would only exchange more messages."""


class Run(Protocol):
    """A world being run."""

    traffic: Traffic

    def run(self) -> None: ...


def on_cluster(environ: Mapping[str, str]) -> bool:
    """Whether the environment is that of a Ray cluster."""
    return any(environ.get(name) for name in _CLUSTER)


def choose(asked: str, live: bool, environ: Mapping[str, str]) -> Runtime:
    """The runtime to take. `live`: a model is behind a server. Raises `UsageError` for one that cannot be."""
    if asked not in RUNTIMES:
        raise UsageError(f"--runtime {asked}: choose one of {', '.join(RUNTIMES)}")
    if asked == "auto":
        if on_cluster(environ):
            return "ray"
        return "realtime" if live else "local"
    if asked == "local" and live:
        raise UsageError(
            "--runtime local: its time is virtual, and a live model answers in real time; take --runtime realtime or ray"
        )
    return asked  # type: ignore[return-value]


def make(
    runtime: Runtime,
    world: World,
    log: Log,
    progress: Callable[[int], None],
    placement: Placement,
) -> Run:
    """A run of `world` on a runtime. Raises `UsageError` where the extra `ray` is missing, or a fault cannot be had there."""
    if runtime == "local":
        return LocalRun(world, log, progress)
    if runtime == "realtime":
        return RealtimeRun(world, log, progress, hosts=placement.hosts or 1)
    from sim.cluster import ClusterRun

    return ClusterRun(world, log, progress, placement=placement)


def footer(run: Any) -> dict[str, float]:
    """How long the run took: `virtual_seconds`, or `seconds` of a real clock."""
    return {"virtual_seconds": run.loop.now} if isinstance(run, LocalRun) else {"seconds": run.now()}
