"""A run's metrics over its own time, as OpenMetrics text that Prometheus takes in afterwards.

Virtual seconds are mapped onto timestamps: second 0 is the *epoch*. A sample is written where a value changes, with the
tick before it so that a step stays a step, and often enough in between that Prometheus' look-back of five minutes never
finds a gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil
from typing import TextIO

from msgspec import Struct

from meshheal.folds.catalogue import ARM_LABELS, METRICS, Metric
from meshheal.folds.layout import Layout, layout, run_label
from meshheal.folds.metrics import Counts, Families, Metrics
from meshheal.folds.summary import Summary, watchers
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import Arm, RunDir

LOOK_BACK = 300.0
"""Seconds after which Prometheus takes a series without a new sample for gone."""
_MARGIN = 10.0
_BEFORE_NOW = 3 * 3600.0
"""Seconds between the mapped end of a run and its real start: Prometheus' newest block must not be overlapped."""
_STARTED = re.compile(r"-(\d{8}T\d{6})-\d+(?:/|$)")


class Written(Struct, frozen=True):
    """What an export came to. `epoch` is the timestamp of second 0."""

    epoch: float
    end: float
    series: int
    samples: int


class _Series:
    """One labelled family over time: (second, value), thinned."""

    __slots__ = ("held", "points")

    def __init__(self) -> None:
        self.points: list[tuple[float, float | Counts]] = []
        self.held: tuple[float, float | Counts] | None = None

    def take(self, t: float, value: float | Counts, every: float) -> None:
        if self.points:
            at, last = self.points[-1]
            if value == last and t + every - at <= LOOK_BACK - _MARGIN:
                self.held = (t, value)
                return
            if value != last and self.held is not None:
                self.points.append(self.held)
        self.points.append((t, value))
        self.held = None

    def end(self) -> None:
        if self.held is not None:
            self.points.append(self.held)
            self.held = None


Labelled = dict[str, dict[tuple[str, ...], _Series]]
"""Series by family, and by the values of arm labels and own labels."""


def fold_for(layout: Layout, seed: int) -> tuple[Summary, Metrics]:
    """The two folds of an arm's events, in the order in which they must be called."""
    summary = Summary(watchers(layout.neighbours, layout.abilities), layout.abilities, seed)
    return summary, Metrics(layout, summary)


def over_time(log: LogFile, layout: Layout, seed: int, every: float) -> Iterator[tuple[float, Families]]:
    """The metrics of a log at every tick of the run's clock, from 0 on, and at its end."""
    summary, metrics = fold_for(layout, seed)
    due, t = 0.0, 0.0
    for event in log.events():
        if event.t > due:
            families = metrics.families(due)
            while event.t > due:
                families[_clock_name(layout)] = [((), due)]
                yield due, families
                due += every
        t = max(t, event.t)
        summary(event)
        metrics(event)
    yield max(t, due - every), metrics.families(t)


def _clock_name(layout: Layout) -> str:
    return "meshheal_clock_virtual_seconds" if layout.clock == "virtual" else "meshheal_clock_seconds"


def collect(run: RunDir, arms: Iterable[Arm], every: float) -> tuple[Labelled, float]:
    """All series of some arms, and the latest second of any of them."""
    found: Labelled = {}
    end = 0.0
    for arm in arms:
        with LogFile(run.log_path(*arm)) as log:
            shape = layout(run, log.header)
            for t, families in over_time(log, shape, arm.seed, every):
                _take(found, shape, t, families, every)
                end = max(end, t)
    for by_labels in found.values():
        for series in by_labels.values():
            series.end()
    return found, end


def _take(found: Labelled, shape: Layout, t: float, families: Families, every: float) -> None:
    for name, points in families.items():
        by_labels = found.setdefault(name, {})
        for values, value in points:
            key = shape.labels + values
            series = by_labels.get(key)
            if series is None:
                series = by_labels[key] = _Series()
            series.take(t, value, every)


def export(run: RunDir, arms: Sequence[Arm], out: TextIO, every: float = 60.0, epoch: float | None = None) -> Written:
    """Write the metrics of some arms. `every` is the tick in seconds of the run's clock, below Prometheus' look-back.

    Without an `epoch` the run is put before its own real start, so that all of it lies in the past: Prometheus takes no
    live sample that is older than its newest block.
    """
    found, end = collect(run, arms, every)
    if epoch is None:
        epoch = default_epoch(run, end)
    labels = (run_label(run),)
    found["meshheal_export_epoch_timestamp_seconds"] = {labels: _Series()}
    found["meshheal_export_epoch_timestamp_seconds"][labels].points = [(0.0, epoch)]
    series = samples = 0
    for metric in METRICS.values():
        by_labels = found.get(metric.name)
        if not by_labels:
            continue
        out.write("".join(_head(metric)))
        for values, one in by_labels.items():
            names = _sample_names(metric, values)
            series += len(names)
            samples += len(names) * len(one.points)
            for t, value in one.points:
                stamp = f"{epoch + t:.3f}\n"
                for name, number in zip(names, _numbers(value), strict=True):
                    out.write(f"{name} {_text(number)} {stamp}")
    out.write("# EOF\n")
    return Written(epoch, epoch + end, series, samples)


def default_epoch(run: RunDir, seconds: float) -> float:
    """Such that `seconds` of the run's clock end three hours before its real start, at a whole minute."""
    found = _STARTED.search(run_label(run))
    if found:
        start = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
    else:
        start = (run.path / "experiment.json").stat().st_mtime
    return (start - _BEFORE_NOW - ceil(seconds)) // 60 * 60.0


def _head(metric: Metric) -> Iterator[str]:
    yield f"# TYPE {metric.name} {metric.kind}\n"
    if metric.unit:
        yield f"# UNIT {metric.name} {metric.unit}\n"
    yield f"# HELP {metric.name} {metric.help}\n"


def _sample_names(metric: Metric, values: tuple[str, ...]) -> list[str]:
    """The samples of one labelled family, with their labels, in the order of `_numbers`."""
    pairs = [f'{k}="{_escaped(v)}"' for k, v in zip((*ARM_LABELS, *metric.labels), values, strict=False)]
    plain = "{" + ",".join(pairs) + "}"
    if metric.kind not in ("histogram", "gaugehistogram"):
        return [f"{metric.samples[0]}{plain}"]
    bucket, count, total = metric.samples
    bounds = [*map(str, map(float, metric.buckets)), "+Inf"]
    buckets = ["{" + ",".join([*pairs, f'le="{le}"']) + "}" for le in bounds]
    return [*(f"{bucket}{labels}" for labels in buckets), f"{count}{plain}", f"{total}{plain}"]


def _numbers(value: float | Counts) -> list[float]:
    if not isinstance(value, Counts):
        return [value]
    cumulated = list(accumulate(value.buckets))
    return [*cumulated, cumulated[-1], value.sum]


def _text(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(float(number))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
