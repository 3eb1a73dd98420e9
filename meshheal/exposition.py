"""The metrics of a study's runs behind one port, for Prometheus to scrape.

One registry of its own; every arm's samples carry its labels, so that arms that run at once, or one after another, in
this process or in workers, stand side by side. An arm that ended stays with its last values until the study ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from meshheal.errors import UsageError
from meshheal.folds.catalogue import ARM_LABELS, METRICS, Metric
from meshheal.folds.layout import Layout
from meshheal.folds.metrics import Counts, Families, Point

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

_ATTEMPTS = 5
"""Readings of a fold that goes on in another thread; one that meets a growing table is repeated."""


class Exposition:
    """The newest metrics of every arm. A collector in the sense of prometheus_client."""

    def __init__(self) -> None:
        self._arms: dict[tuple[str, ...], tuple[Layout, Callable[[], Families]]] = {}

    def watch(self, layout: Layout, families: Callable[[], Families]) -> None:
        """Ask `families` at every scrape. It may be called from another thread than the fold runs in."""
        self._arms[layout.labels] = (layout, families)

    def told(self, layout: Layout, families: Families) -> None:
        """Show `families` until newer ones are told."""
        self._arms[layout.labels] = (layout, lambda: families)

    def describe(self) -> list[Family]:
        """Nothing: what there is depends on the runs."""
        return []

    def collect(self) -> Iterator[Family]:
        """All families, each with the samples of all arms."""
        arms = [(layout, read(families)) for layout, families in list(self._arms.values())]
        for metric in METRICS.values():
            found = [(layout.labels, families[metric.name]) for layout, families in arms if metric.name in families]
            if found:
                yield _family(metric, found)

    def registry(self) -> CollectorRegistry:
        """A registry with nothing else in it."""
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        registry.register(self)
        return registry


@contextmanager
def serve(exposition: Exposition, host: str, port: int) -> Iterator[int]:
    """Answer scrapes on a port while inside; gives the port (0 takes a free one). Raises `UsageError`."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, exposition.registry())
    except (OSError, OverflowError) as error:
        raise UsageError(f"--metrics-port {port}: cannot listen on {host}: {error}; choose another port") from error
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read(families: Callable[[], Families]) -> Families:
    """Metrics of a fold that may be going on in another thread."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return families()
        except RuntimeError:  # a dictionary grew under the reader
            continue
    return families()


def _family(metric: Metric, found: list[tuple[tuple[str, ...], list[Point]]]) -> Family:
    from prometheus_client import core

    made: Any
    names = [*ARM_LABELS, *metric.labels]
    match metric.kind:
        case "info":
            made = core.InfoMetricFamily(metric.name, metric.help, labels=ARM_LABELS)
        case "counter":
            made = core.CounterMetricFamily(metric.name, metric.help, labels=names, unit=metric.unit)
        case "gauge":
            made = core.GaugeMetricFamily(metric.name, metric.help, labels=names, unit=metric.unit)
        case "histogram":
            made = core.HistogramMetricFamily(metric.name, metric.help, labels=names, unit=metric.unit)
        case "gaugehistogram":
            made = core.GaugeHistogramMetricFamily(metric.name, metric.help, labels=names, unit=metric.unit)
    bounds = [*map(str, map(float, metric.buckets)), "+Inf"]
    for arm, points in found:
        for values, value in points:
            if isinstance(value, Counts):
                buckets = list(zip(bounds, accumulate(value.buckets), strict=True))
                made.add_metric([*arm, *values], buckets, value.sum)
            elif metric.kind == "info":
                made.add_metric(arm, dict(zip(metric.labels, values, strict=True)))
            else:
                made.add_metric([*arm, *values], value)
    return made  # type: ignore[no-any-return]
