"""results.json: the contract with whoever reads results, the summaries in it, and the tests declared beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Literal

import msgspec
from msgspec import Struct

from meshheal.folds.summary import SeedResult
from meshheal.measures import MEASURES, Measure, episodes, find, restricted, values, ways_back
from meshheal.methods import METHODS
from meshheal.stats import Comparison, Interval, holm, mean_interval, paired, unpaired

SCHEMA_VERSION = 1

_OF_EXCLUSION = (
    "detect", "reintegrat", "false_exclusions", "withheld", "premature", "ordinary_tasks_while_excluded", "arl0",
)  # fmt: skip
"""Beginnings of the metrics that only a method with exclusions has."""


class Family(Struct, frozen=True):
    """The comparisons declared before a run: one method against each of the others, by each measure.

    Their p values are adjusted together (Holm). Whatever else is tested is exploratory and says so.
    """

    method: str = "meshheal"
    against: tuple[str, ...] = ()
    """Empty: every other method of the experiment."""
    measures: tuple[str, ...] = ("accuracy_degraded",)

    def pairs(self, methods: Sequence[str]) -> list[tuple[str, str, str]]:
        """(method, against, measure) for the methods that ran; none where the declared one did not."""
        if self.method not in methods:
            return []
        others = [m for m in (self.against or methods) if m in methods and m != self.method]
        return [(self.method, other, measure) for measure in self.measures for other in others]


class Network(Struct, frozen=True):
    """Figures of the graph a run was on, and which of its agents a swap degrades at some time."""

    agents: int
    edges: int
    share_of_complete: float
    degraded: tuple[int, ...] = ()
    among_healthy: tuple[int, ...] = ()
    """Of the degraded, those each of whose neighbours has a healthy majority among its own neighbours."""


def merge_twins(runs: Sequence[SeedResult], twins: Iterable[SeedResult]) -> None:
    """Put what the fault-free twin of each seed came to beside it, in place."""
    by_seed = {t.seed: t for t in twins}
    for r in runs:
        twin = by_seed.get(r.seed)
        if twin is not None:
            r.accuracy_twin = twin.accuracy_degraded
            r.false_exclusions_twin, r.observations_twin = twin.false_exclusions, twin.observations_healthy


def results(
    experiment: str,
    runs: Mapping[str, Sequence[SeedResult]],
    twins: Mapping[str, Sequence[SeedResult]],
    natures: Iterable[str],
    family: Family | None = None,
    network: Network | None = None,
    tuned_on: Sequence[int] = (),
) -> dict[str, Any]:
    """Everything a run came to. `runs` and `twins` hold one result per seed and method; `natures` those of its models;
    `tuned_on` the development seeds that settings of methods were chosen on."""
    kinds = set(natures)
    mode = "live" if "live" in kinds else "recorded" if "recorded" in kinds else "simulated"
    arms: dict[str, Any] = {}
    for method, seeds in runs.items():
        merge_twins(seeds, twins.get(method, ()))
        summary = summarise(seeds)
        if method in METHODS and not METHODS[method].excludes:
            # It cannot exclude anybody: that it detects nothing is no finding.
            summary = {k: v for k, v in summary.items() if not k.startswith(_OF_EXCLUSION)}
        arms[method] = {"per_seed": [msgspec.to_builtins(r) for r in seeds], "summary": summary}
    everything = [r for seeds in (*runs.values(), *twins.values()) for r in seeds]
    counted = "partly estimated" if any(r.calls_estimated for r in everything) else "measured"
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment,
        "valid": bool(everything) and not any(r.failures for r in everything),
        "mode": mode,
        "reviews": "live" if mode == "live" else "simulated",
        "tokens": counted if mode == "live" else "estimated",
        "seeds": sorted({r.seed for seeds in runs.values() for r in seeds}),
        "arms": arms,
        "comparisons": compared(runs, family or Family()),
    }
    marks = {m: METHODS[m].marks for m in runs if m in METHODS and METHODS[m].marks}
    if marks:
        content["marks"] = marks
    if tuned_on:
        content["tuned_on"] = list(tuned_on)
    if network is not None:
        content["network"] = {
            k: list(v) if isinstance(v, tuple) else v for k, v in msgspec.structs.asdict(network).items()
        }
    return content


def read_arms(content: Mapping[str, Any]) -> dict[str, list[SeedResult]]:
    """The results of each method and seed in the content of a results.json."""
    return {m: [msgspec.convert(r, SeedResult) for r in arm["per_seed"]] for m, arm in content["arms"].items()}


# --- summaries -------------------------------------------------------------------------------------------------------


def summarise(seeds: Sequence[SeedResult]) -> dict[str, Any]:
    """Per measure its summary over seeds, absent where it does not apply; delays of detection and return by agent too."""
    out: dict[str, Any] = {}
    for measure in MEASURES.values():
        interval = measure.over(seeds)
        if interval is not None:
            out[measure.name] = plain(interval)
    found = [d for r in seeds for d in episodes(r)]
    for agent in _first(sorted({d.agent for d in found})):
        of = [restricted(d) for d in found if d.agent == agent]
        out[f"detection_tasks.agent_{agent}"] = plain(mean_interval(of))
    back = [b for r in seeds for b in ways_back(r)]
    for agent in _first(sorted({b.agent for b in back})):
        delays = [float(b.delay_tasks) for b in back if b.agent == agent and b.delay_tasks is not None]
        out[f"reintegration_tasks.agent_{agent}"] = plain(mean_interval(delays))
    return out


def _first(agents: list[int]) -> list[int]:
    """With many degraded agents a summary of each says little and fills the file."""
    return agents[:_AGENTS_LISTED]


_AGENTS_LISTED = 24


def plain(i: Interval) -> dict[str, Any]:
    """An interval as results.json has it: null where JSON has no number for it."""
    return {"mean": _json(i.mean), "sd": _json(i.sd), "ci95": [_json(i.low), _json(i.high)], "n": i.n}


def _json(value: float) -> float | None:
    """JSON has no nan and no infinity."""
    return value if isfinite(value) else None


# --- tests -----------------------------------------------------------------------------------------------------------


class Tested(Struct, frozen=True):
    """One comparison: `method` minus `against` by a measure. `p_holm` is null for the exploratory."""

    measure: str
    method: str
    against: str
    family: Literal["declared", "exploratory"]
    difference: dict[str, Any]
    p: float | None
    p_holm: float | None
    test: str


def tested(
    asked: Sequence[tuple[Measure, str, str, Literal["declared", "exploratory"], Comparison]],
) -> list[Tested]:
    """The comparisons with the p values of the declared family adjusted together."""
    adjusted = iter(holm([c.p for _, _, _, family, c in asked if family == "declared"]))
    return [
        Tested(
            measure.name,
            method,
            against,
            family,
            plain(c.difference),
            _json(c.p),
            _json(next(adjusted)) if family == "declared" else None,
            c.test,
        )
        for measure, method, against, family, c in asked
    ]


def contrast(measure: Measure, one: Sequence[SeedResult], other: Sequence[SeedResult], same_tasks: bool) -> Comparison:
    """`one` minus `other` by a measure: paired by seed where both saw the same tasks under the same seeds, else not."""
    a, b = values(measure, one), values(measure, other)
    common = sorted(a.keys() & b.keys())
    if same_tasks and len(common) >= min(2, len(a), len(b)) and common:
        return paired([a[s] - b[s] for s in common])
    return unpaired(list(b.values()), list(a.values()))


def compared(runs: Mapping[str, Sequence[SeedResult]], family: Family) -> list[dict[str, Any]]:
    """The declared comparisons of one experiment; empty where the method they are about did not run."""
    asked: list[tuple[Measure, str, str, Literal["declared", "exploratory"], Comparison]] = []
    for method, against, name in family.pairs(list(runs)):
        measure = find(name)
        asked.append(
            (measure, method, against, "declared", contrast(measure, runs[method], runs[against], same_tasks=True))
        )
    return [msgspec.to_builtins(t) for t in tested(asked)]
