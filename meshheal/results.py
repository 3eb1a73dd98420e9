"""results.json: the contract with whoever reads results, and the summaries in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec

from meshheal.folds.summary import Detection, SeedResult
from meshheal.stats import Interval, arl0, mean_interval, wilson

SCHEMA_VERSION = 1

_PER_SEED = (
    "accuracy_healthy",
    "accuracy_degraded",
    "accuracy_twin",
    "tokens_per_task",
    "calls_per_task",
    "probe_calls_per_task",
    "false_exclusions",
    "premature_reintegrations",
    "ordinary_tasks_while_excluded",
)


def results(
    experiment: str,
    runs: Mapping[str, Sequence[SeedResult]],
    twins: Mapping[str, Sequence[SeedResult]],
    natures: Iterable[str],
) -> dict[str, Any]:
    """Everything a run came to. `runs` and `twins` hold one result per seed and method; `natures` those of its models."""
    kinds = set(natures)
    mode = "live" if "live" in kinds else "recorded" if "recorded" in kinds else "simulated"
    arms: dict[str, Any] = {}
    for method, seeds in runs.items():
        by_seed = {t.seed: t for t in twins.get(method, ())}
        for r in seeds:
            twin = by_seed.get(r.seed)
            if twin is not None:
                r.accuracy_twin = twin.accuracy_degraded
                r.false_exclusions_twin, r.observations_twin = twin.false_exclusions, twin.observations_healthy
        arms[method] = {"per_seed": [msgspec.to_builtins(r) for r in seeds], "summary": summarise(seeds)}
    everything = [r for seeds in (*runs.values(), *twins.values()) for r in seeds]
    counted = "partly estimated" if any(r.calls_estimated for r in everything) else "measured"
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment,
        "valid": bool(everything) and not any(r.failures for r in everything),
        "mode": mode,
        "reviews": "live" if mode == "live" else "simulated",
        "tokens": counted if mode == "live" else "estimated",
        "seeds": sorted({r.seed for seeds in runs.values() for r in seeds}),
        "arms": arms,
    }


def summarise(seeds: Sequence[SeedResult]) -> dict[str, Any]:
    """Per metric: mean over seeds with Student's t interval; rates over episodes with Wilson's; ARL0 with Garwood's."""
    out: dict[str, Any] = {}
    for metric in _PER_SEED:
        values = [getattr(r, metric) for r in seeds]
        _put(out, metric, mean_interval([float(v) for v in values if v is not None]))
    tasks = max(1, sum(r.tasks for r in seeds))
    _put(out, "no_answer_rate", wilson(sum(r.no_answer for r in seeds), tasks))
    _put(out, "unscored_per_task", mean_interval([r.unscored / max(1, r.tasks) for r in seeds]))
    if any(r.accuracy_twin is not None for r in seeds):
        gaps = [
            r.accuracy_degraded - r.accuracy_twin
            for r in seeds
            if r.accuracy_degraded is not None and r.accuracy_twin is not None
        ]
        _put(out, "degraded_minus_twin", mean_interval(gaps))
    episodes = [d for r in seeds for d in r.detection if d.reason != "already_excluded"]
    if episodes:
        _put(out, "detected", wilson(sum(d.delay_tasks is not None for d in episodes), len(episodes)))
        for agent in sorted({d.agent for d in episodes}):
            of = [d for d in episodes if d.agent == agent]
            _put(out, f"detection_tasks.agent_{agent}", mean_interval([restricted(d) for d in of]))
        _put(out, "detection_tasks", mean_interval([restricted(d) for d in episodes]))
        _put(
            out,
            "detection_outputs",
            mean_interval([float(d.delay_outputs) for d in episodes if d.delay_outputs is not None]),
        )
    ways_back = [b for r in seeds for b in r.reintegration if b.reason != "not_excluded"]
    if ways_back:
        _put(out, "reintegrated", wilson(sum(b.delay_tasks is not None for b in ways_back), len(ways_back)))
        for agent in sorted({b.agent for b in ways_back}):
            back = [float(b.delay_tasks) for b in ways_back if b.agent == agent and b.delay_tasks is not None]
            _put(out, f"reintegration_tasks.agent_{agent}", mean_interval(back))
        done = [float(b.delay_tasks) for b in ways_back if b.delay_tasks is not None]
        _put(out, "reintegration_tasks", mean_interval(done))
    observations = sum(r.observations_healthy + r.observations_twin for r in seeds)
    if any(r.detection for r in seeds) and observations:
        false = sum(r.false_exclusions + r.false_exclusions_twin for r in seeds)
        _put(out, "arl0_outputs", arl0(false, observations))
    return out


def restricted(d: Detection) -> float:
    """The delay in tasks, cut off at the length of the episode where there was no detection (restricted mean)."""
    return float(d.delay_tasks if d.delay_tasks is not None else (d.window_tasks or 0))


def _put(out: dict[str, Any], metric: str, i: Interval) -> None:
    out[metric] = {
        "mean": _json(i.mean),
        "sd": _json(i.sd),
        "ci95": [_json(i.low), _json(i.high)],
        "n": i.n,
    }


def _json(value: float) -> float | None:
    """JSON has no nan and no infinity."""
    return value if isfinite(value) else None
