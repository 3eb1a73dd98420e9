"""What a run declares, as far as a page of it needs that: its network, its models, whether they are simulated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from meshheal.trace.rundir import Arm, RunDir

Mode = Literal["simulated", "recorded", "live"]
TWIN = "+twin"


class About(Struct):
    """A run as it was declared. `phase`: arrivals from the first onset to the last recovery, half open."""

    name: str
    experiment: str
    meshheal: str
    mode: Mode
    topology: str
    neighbours: list[list[int]]
    abilities: list[list[str]]
    workload: str
    declared_tasks: int
    phase: tuple[int, int] | None
    accept_at: float
    in_flight: str
    healthy: list[str]
    outside: str

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [(a, b) for a, around in enumerate(self.neighbours) for b in around if a < b]


def about(run: RunDir) -> About:
    """Read experiment.json, and results.json where there is one. Raises `TraceError`."""
    e = run.experiment
    declared, topology = e.get("declaration", {}), e.get("topology", {})
    faults = declared.get("faults", [])
    swaps = [f for f in faults if f.get("type") == "swap" and f.get("degraded", True)]
    healthy = declared.get("healthy", "")
    healthy = [healthy] if isinstance(healthy, str) else list(healthy)
    models = [*healthy, declared.get("outside", ""), *(f["to"] for f in faults if f.get("type") == "swap")]
    settings = e.get("settings", {})
    return About(
        name=run.name,
        experiment=str(e.get("name", run.name)),
        meshheal=str(e.get("meshheal", "")),
        mode=_mode(run, models),
        topology=str(topology.get("name", "")),
        neighbours=[list(n) for n in topology.get("neighbours", [])],
        abilities=[list(a) for a in topology.get("abilities", [])],
        workload=str(e.get("workload", {}).get("name", "")),
        declared_tasks=int(declared.get("workload", {}).get("tasks", 0)),
        phase=(min(f["at"] for f in swaps), max(f["back"] for f in swaps)) if swaps else None,
        accept_at=float(settings.get("review", {}).get("accept_at", 0.6)),
        in_flight=_stream(declared.get("stream", {})),
        healthy=sorted(set(healthy)),
        outside=str(declared.get("outside", "")),
    )


def _mode(run: RunDir, models: Iterable[str]) -> Mode:
    """As results.json says; while there is none, by what models are called."""
    results = run.results
    if results is not None and results.get("mode") in ("simulated", "recorded", "live"):
        mode: Mode = results["mode"]
        return mode
    kinds = {name.partition("/")[0] for name in models if name}
    if kinds - {"synthetic", "recorded"}:
        return "live"
    return "recorded" if "recorded" in kinds else "simulated"


def _stream(stream: dict[str, Any]) -> str:
    if stream.get("type") == "poisson":
        return f"{stream.get('rate', 0):g} tasks a second"
    return f"{stream.get('in_flight', 1)} in flight"


def order(arms: Iterable[Arm], methods: list[str]) -> list[Arm]:
    """Arms as a reader wants them: methods as declared, the run before its fault-free twin, seeds in order."""
    place = {method: i for i, method in enumerate(methods)}

    def key(arm: Arm) -> tuple[int, str, bool, int]:
        method = arm.method.removesuffix(TWIN)
        return place.get(method, len(place)), method, arm.method.endswith(TWIN), arm.seed

    return sorted(arms, key=key)
