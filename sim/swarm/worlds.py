"""A world drawn from a seed: its network, models, settings, stream and faults; phases calm, faults, heal, quiet.

The seed draws the *rates* and kinds of what goes wrong first and the single faults after (swarm testing: Groce and
others, 2012), so that some worlds have none of a kind and others plenty.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct

from meshheal.config import Settings
from meshheal.methods import find
from meshheal.rng import Stream as Draws
from meshheal.types import AgentId, Task
from sim.faults import Crash, Fault, Partition, Swap, Weather, check
from sim.links import LinkProfile
from sim.models import resolve
from sim.swarm.mishaps import degradations, mishaps
from sim.workloads import Workload, gym
from sim.world import Closed, Poisson, Stream, World
from topologies import Topology, assign, parse

POOL_SEED, POOL = 7, 6000
"""All worlds draw their tasks from one generated pool: generating them anew would take longer than the run."""

QUIET = 250
"""Most beats that a world is given to have everybody back; it ends when they are."""
SETTLE = 10
"""Least beats of quiet."""

STRONG = ("synthetic/gpt-oss-120b", "synthetic/qwen3-30b-a3b", "synthetic/gpt-oss-20b")
WEAK = "synthetic/llama-3.1-8b"


class Phases(Struct, frozen=True):
    """Arrivals at which the phases begin: faults, heal (links and processes are well again, degraded agents are not
    yet), quiet (nothing is wrong any more); and by which everybody must be back.
    """

    faults: int
    heal: int
    quiet: int
    end: int


class Drawn(Struct, frozen=True):
    """One world as its seed declares it: plain values, from which `build` makes it."""

    seed: int
    topology: str
    per_agent: int
    healthy: tuple[str, ...]
    phases: Phases
    stream: Stream
    links: LinkProfile
    faults: tuple[Fault, ...]
    settings: dict[str, dict[str, Any]]

    @property
    def exact(self) -> bool:
        """Whether no message and no process is ever lost, so that ledgers must agree to the token."""
        lossy = any(isinstance(f, Crash | Partition | Weather) for f in self.faults)
        return not lossy and not self.links.loss

    def describe(self) -> str:
        """The world in two lines."""
        names = [m.removeprefix("synthetic/") for m in self.healthy]
        s, p = self.stream, self.phases
        stream = f"closed({s.in_flight})" if isinstance(s, Closed) else f"poisson({s.rate:.3g})"
        faults = "; ".join(_told(f) for f in self.faults) or "none"
        settings = " ".join(f"{name}.{k}={v}" for name, values in self.settings.items() for k, v in values.items())
        return (
            f"{self.topology} per_agent={self.per_agent} {'+'.join(names)} {stream} "
            f"phases {p.faults}/{p.heal}/{p.quiet}/{p.end} latency={self.links.latency:.2g} faults: {faults}\n"
            f"  {settings}"
        )


def _told(fault: Fault) -> str:
    span = f"{fault.at}-{fault.back}"
    match fault:
        case Swap():
            roles = f" roles={','.join(fault.roles)}" if fault.roles else ""
            kind, to = "swap" if fault.degraded else "placebo", fault.to.removeprefix("synthetic/")
            return f"{kind} {fault.agent}->{to} {span}{roles}"
        case Crash():
            return f"crash {fault.agent} {span}"
        case Partition():
            return f"partition {'|'.join(str(len(g)) for g in fault.groups)} {span}"
        case Weather():
            w = fault.links
            return f"weather loss={w.loss:.2g} duplicate={w.duplicate:.2g} latency={w.latency:.2g} {span}"


def draw(seed: int) -> Drawn:
    """The world of a seed."""
    d = Draws("swarm", seed)
    topology = _topology(d, seed)
    graph = parse(topology).build()
    per_agent = (2, 2, 2, 2, 2, 2, 2, 3, 3, 1)[d.index(10)]
    degree = sum(len(n) for n in graph.neighbours) / len(graph)
    beat = max(1.0, len(graph) / (degree + 1))
    phases = _phases(d, beat)
    healthy = _healthy(d)
    faults = (
        *degradations(d, graph.neighbours, healthy, phases.faults, phases.heal, phases.quiet, beat),
        *mishaps(d, len(graph), phases.faults, phases.heal, beat),
    )
    latency = (0.0, 0.0, 0.0, 0.02, 0.3)[d.index(5)]
    return Drawn(
        seed,
        topology,
        per_agent,
        healthy,
        phases,
        _stream(d, beat),
        LinkProfile(latency, 0.3 if latency else 0.0),
        faults,
        _settings(d),
    )


def _topology(d: Draws, seed: int) -> str:
    u = d.uniform()
    if u < 0.35:
        n = 6
    elif u < 0.75:
        n = 7 + d.index(6)
    elif u < 0.97:
        n = 13 + d.index(12)
    else:
        n = 25 + d.index(36)
    kinds = ["cells", "regular", "small_world", "coverage", "ring"] + (["complete"] * 6 if n <= 8 else [])
    match d.choice(kinds):
        case "cells":
            return f"cells:{n},size={4 + d.index(3)},seed={seed}"
        case "regular":
            degree = min(4 + d.index(4), n - 1)
            return f"regular:{n},degree={degree - (n * degree) % 2},seed={seed}"
        case "small_world":
            return f"small_world:{n},k={(4, 4, 6)[d.index(3)] if n > 6 else 4},p={(0.1, 0.3)[d.index(2)]},seed={seed}"
        case "coverage":
            return f"coverage:{n},at_least={3 + d.index(2)},seed={seed}"
        case "ring":
            return f"ring:{n},k={2 + d.index(2)}"
        case _:
            return f"complete:{n}"


def _phases(d: Draws, beat: float) -> Phases:
    """Lengths in beats, so that observers see about as much in a large network as in a small one."""
    lengths = (40 + d.index(15), 40 + d.index(20), 50 + d.index(20), QUIET)
    at, starts = 0.0, list[int]()
    for length in lengths:
        at += length * beat
        starts.append(int(at))
    return Phases(*starts)


def _healthy(d: Draws) -> tuple[str, ...]:
    """Models of the healthy agents, given out in turn: one family, several strong models, or three families of which
    one is much weaker.
    """
    u = d.uniform()
    if u < 0.45:
        return (STRONG[d.index(3)],)
    if u < 0.85:
        return STRONG
    return (*STRONG[:2], WEAK)


def _stream(d: Draws, beat: float) -> Stream:
    u = d.uniform()
    if u < 0.55:
        return Closed()
    if u < 0.75:
        return Closed(2 + d.index(5))
    return Poisson(round((0.01 + 0.08 * d.uniform()) * beat, 4))


def _settings(d: Draws) -> dict[str, dict[str, Any]]:
    """Settings that differ from the default; those nobody draws stay as they are."""
    review: dict[str, Any] = {
        "committee": 1 + d.index(3),
        "verdict": ("median", "median", "minority_veto")[d.index(3)],
        "repeats": (1, 1, 3)[d.index(3)],
        "repeat": ("adaptive", "always")[d.index(2)],
        "takeover": d.uniform() < 0.9,
    }
    detector: dict[str, Any] = {
        "min_eligible": (2, 2, 3)[d.index(3)],
        "max_excluded_fraction": (0.5, 0.7, 1.0)[d.index(3)],
        "own_offset": d.uniform() < 0.85,
    }
    u = d.uniform()
    if u < 0.06:
        detector["kind"] = ("e-sr", "bernoulli-cusum")[d.index(2)]
    elif u < 0.12:
        detector["threshold"] = "guaranteed"
    elif u < 0.22:
        detector["exclude_at"] = (20.0, 200.0)[d.index(2)]
    elif u < 0.30:
        detector["shadow"] = ("ewma", "beta-reputation", "outlier-ejection", "fixed-threshold")
    recovery: dict[str, Any] = {
        "burst": (0, 2, 4, 4)[d.index(4)],
        "budget": (0.2, 0.4, 0.8)[d.index(3)],
        "compare": d.uniform() < 0.85,
        "probation": (0, 3, 6)[d.index(3)],
    }
    limits: dict[str, Any] = {"call_timeout": 120.0, "max_seconds": 1200.0}
    if d.uniform() < 0.1:
        limits["max_calls"] = 3 + d.index(4)
    routing: dict[str, Any] = {
        "suspicion_weight": (0.0, 0.0, 0.5)[d.index(3)],
        "load_weight": (0.0, 0.0, 1.0)[d.index(3)],
    }
    return {"review": review, "detector": detector, "recovery": recovery, "limits": limits, "routing": routing}


# --- from a declaration to a world -----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _pool() -> tuple[Workload, tuple[Task, ...]]:
    workload = gym("math", tasks=POOL).load()
    return workload, tuple(workload.tasks(POOL, POOL_SEED))


def network(drawn: Drawn) -> Topology:
    """The graph of a drawn world, with abilities given out."""
    workload, _ = _pool()
    return assign(parse(drawn.topology).build(), workload.abilities, drawn.per_agent)


def build(drawn: Drawn) -> World:
    """The world itself, ready to run."""
    workload, pool = _pool()
    graph = network(drawn)
    check(drawn.faults, len(graph))
    tasks = list(pool)
    Draws("swarm tasks", drawn.seed).shuffle(tasks)
    tasks = tasks[: drawn.phases.end]
    by_id = {t.id: t for t in tasks}
    models: dict[str, Any] = {}

    def model(name: str) -> Any:
        if name not in models:
            models[name] = resolve(name, workload, by_id, drawn.seed)
        return models[name]

    return World(
        neighbours=graph.neighbours,
        abilities=[graph.held(a) for a in range(len(graph))],
        tasks=tasks,
        sheet=workload.sheet,
        healthy=[drawn.healthy[a % len(drawn.healthy)] for a in range(len(graph))],
        outside=WEAK,
        model=model,
        settings=Settings.model_validate(drawn.settings),
        method=find("meshheal").settle,
        seed=drawn.seed,
        faults=drawn.faults,
        links=drawn.links,
        stream=drawn.stream,
    )


def weak(drawn: Drawn, agent: AgentId) -> bool:
    """Whether an agent runs on the much weaker model from the beginning."""
    return drawn.healthy[agent % len(drawn.healthy)] == WEAK
