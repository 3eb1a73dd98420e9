"""What is measured of a run, by name: how a seed's value is read, how seeds are summed up, how it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Literal

from msgspec import Struct

from meshheal.errors import UsageError
from meshheal.folds.summary import Detection, Reintegration, SeedResult
from meshheal.stats import Delay, Interval, arl0, mean_interval, poisson_rate, restricted_mean, wilson

Better = Literal["more", "less", ""]


class Measure(Struct, frozen=True):
    """One figure. `of` is a seed's value (None: it has none), which tests compare; `over` sums up seeds with an interval."""

    name: str
    label: str
    digits: int
    better: Better
    of: Callable[[SeedResult], float | None]
    over: Callable[[Sequence[SeedResult]], Interval | None]


def episodes(r: SeedResult) -> list[Detection]:
    """Degraded episodes that could be detected: of an agent that was not excluded already."""
    return [d for d in r.detection if d.reason != "already_excluded"]


def ways_back(r: SeedResult) -> list[Reintegration]:
    """Recoveries of agents that somebody excluded."""
    return [b for b in r.reintegration if b.reason != "not_excluded"]


def restricted(d: Detection) -> float:
    """The delay in tasks, cut off at the length of the episode where there was no detection (restricted mean)."""
    return float(d.delay_tasks if d.delay_tasks is not None else (d.window_tasks or 0))


def waits(found: Sequence[Detection]) -> list[Delay]:
    """Delays of detection in tasks, censored where the swap was undone first."""
    return [Delay(restricted(d), d.delay_tasks is not None) for d in found]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(hits: int, n: int) -> float | None:
    return hits / n if n else None


def _plain(
    name: str, label: str, digits: int, better: Better, of: Callable[[SeedResult], float | None] | None = None
) -> Measure:
    """A measure whose summary is the mean over seeds with Student's t interval."""

    def field(r: SeedResult) -> float | None:
        value = getattr(r, name)
        return None if value is None else float(value)

    read = of or field

    def over(seeds: Sequence[SeedResult]) -> Interval | None:
        return mean_interval([v for v in map(read, seeds) if v is not None])

    return Measure(name, label, digits, better, read, over)


def _field(name: str, label: str, digits: int, better: Better) -> Measure:
    """The same, absent where no seed has a value."""
    plain = _plain(name, label, digits, better)
    return Measure(name, label, digits, better, plain.of, _if_any(plain.of))


def _gap(r: SeedResult) -> float | None:
    if r.accuracy_degraded is None or r.accuracy_twin is None:
        return None
    return r.accuracy_degraded - r.accuracy_twin


def _detected(seeds: Sequence[SeedResult]) -> Interval | None:
    found = [d for r in seeds for d in episodes(r)]
    return wilson(sum(d.delay_tasks is not None for d in found), len(found)) if found else None


def _detected_among(seeds: Sequence[SeedResult]) -> Interval | None:
    found = [d for r in seeds for d in episodes(r) if d.among_healthy]
    return wilson(sum(d.delay_tasks is not None for d in found), len(found)) if found else None


def _share_among(r: SeedResult) -> float | None:
    found = [d for d in episodes(r) if d.among_healthy]
    return _share(sum(d.delay_tasks is not None for d in found), len(found))


def _detection(seeds: Sequence[SeedResult]) -> Interval | None:
    return restricted_mean([waits(episodes(r)) for r in seeds]) if any(episodes(r) for r in seeds) else None


def _outputs(r: SeedResult) -> float | None:
    return _mean([float(d.delay_outputs) for d in episodes(r) if d.delay_outputs is not None])


def _reintegrated(seeds: Sequence[SeedResult]) -> Interval | None:
    found = [b for r in seeds for b in ways_back(r)]
    return wilson(sum(b.delay_tasks is not None for b in found), len(found)) if found else None


def _back(r: SeedResult) -> float | None:
    return _mean([float(b.delay_tasks) for b in ways_back(r) if b.delay_tasks is not None])


def _false(seeds: Sequence[SeedResult]) -> tuple[int, int]:
    return (
        sum(r.false_exclusions + r.false_exclusions_twin for r in seeds),
        sum(r.observations_healthy + r.observations_twin for r in seeds),
    )


def _arl0(seeds: Sequence[SeedResult]) -> Interval | None:
    false, seen = _false(seeds)
    return arl0(false, seen) if seen else None


def _per_100k(seeds: Sequence[SeedResult]) -> Interval | None:
    false, seen = _false(seeds)
    return poisson_rate(false, seen / 1e5) if seen else None


def _unanswered(seeds: Sequence[SeedResult]) -> Interval | None:
    return wilson(sum(r.no_answer for r in seeds), max(1, sum(r.tasks for r in seeds)))


def _if_any(
    read: Callable[[SeedResult], float | None],
) -> Callable[[Sequence[SeedResult]], Interval | None]:
    def over(seeds: Sequence[SeedResult]) -> Interval | None:
        values = [v for v in map(read, seeds) if v is not None]
        return mean_interval(values) if values else None

    return over


def _alarm(kind: str) -> Callable[[SeedResult], float | None]:
    return lambda r: float(r.alarms.get(kind, 0))


_ALL = (
    _plain("accuracy_healthy", "accuracy, healthy phase", 3, "more"),
    _plain("accuracy_degraded", "accuracy, degraded phase", 3, "more"),
    _plain("accuracy_twin", "accuracy, twin (no faults)", 3, "more"),
    Measure("degraded_minus_twin", "degraded minus twin", 3, "more", _gap, _if_any(_gap)),
    _plain("tokens_per_task", "tokens a task", 0, "less"),
    _plain("calls_per_task", "model calls a task", 2, "less"),
    _plain("probe_calls_per_task", "probe calls a task", 2, ""),
    Measure(
        "detected",
        "episodes detected",
        2,
        "more",
        lambda r: _share(sum(d.delay_tasks is not None for d in episodes(r)), len(episodes(r))),
        _detected,
    ),
    Measure("detected_among", "detected, of those among healthy", 2, "more", _share_among, _detected_among),
    Measure(
        "detection_tasks",
        "detection, tasks",
        1,
        "less",
        lambda r: _mean([restricted(d) for d in episodes(r)]),
        _detection,
    ),
    Measure("detection_outputs", "detection, its outputs", 1, "less", _outputs, _if_any(_outputs)),
    Measure(
        "reintegrated",
        "reinstated",
        2,
        "more",
        lambda r: _share(sum(b.delay_tasks is not None for b in ways_back(r)), len(ways_back(r))),
        _reintegrated,
    ),
    Measure("reintegration_tasks", "reintegration, tasks", 1, "less", _back, _if_any(_back)),
    _plain("false_exclusions", "false exclusions a run", 2, "less"),
    Measure("arl0_outputs", "outputs to a false exclusion", 0, "more", lambda _: None, _arl0),
    Measure("false_exclusions_per_100k", "false exclusions in 100,000 outputs", 2, "less", lambda _: None, _per_100k),
    _plain("premature_reintegrations", "premature returns a run", 2, "less"),
    _plain("ordinary_tasks_while_excluded", "ordinary tasks while excluded", 2, "less"),
    Measure("no_answer_rate", "no answer, rate", 4, "less", lambda r: r.no_answer / max(1, r.tasks), _unanswered),
    _plain("unscored_per_task", "unscored reviews a task", 3, "less", lambda r: r.unscored / max(1, r.tasks)),
    _field("requests_per_task", "requests a task", 1, "less"),
    _field("evidence_per_task", "evidence messages a task", 1, "less"),
    _field("two_hops_per_task", "of these to two hops away", 2, "less"),
    _plain("group_alarms", "group alarms a run", 2, "", _alarm("correlated_degradation")),
    _field("alarm_delay", "first group alarm, tasks", 1, "less"),
    _plain("uninformative_alarms", "reviewers uninformative, a run", 2, "", _alarm("reviewers_uninformative")),
    _plain("sidelined", "reviewers sidelined, a run", 2, "", _alarm("reviewer_sidelined")),
    _plain("withheld", "exclusions withheld, a run", 2, "", _alarm("exclusion_withheld")),
)
MEASURES: dict[str, Measure] = {m.name: m for m in _ALL}
"""Every measure by name, in the order in which tables list them."""


def find(name: str) -> Measure:
    """The measure of that name. Raises `UsageError`."""
    if name not in MEASURES:
        raise UsageError(f"unknown measure {name!r}; there are: {', '.join(MEASURES)}")
    return MEASURES[name]


def values(measure: Measure, seeds: Sequence[SeedResult]) -> dict[int, float]:
    """The value of each seed that has one."""
    read = {r.seed: measure.of(r) for r in seeds}
    return {seed: v for seed, v in read.items() if v is not None and isfinite(v)}
