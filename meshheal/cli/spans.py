"""`meshheal spans RUN --otlp URL`: tasks and model calls of a run to an OpenTelemetry collector."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshheal.errors import NetworkError, UsageError
from meshheal.folds.layout import layout
from meshheal.folds.openmetrics import default_epoch
from meshheal.folds.spans import spans as spans_of
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import Arm, RunDir, open_run

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_BATCH = 512


def spans(
    run: Annotated[str, typer.Argument(help="Run directory, its name under --runs, or 'latest'.")] = "latest",
    otlp: Annotated[
        str, typer.Option("--otlp", metavar="URL", help="Where traces go, by OTLP over HTTP.")
    ] = "http://127.0.0.1:4318/v1/traces",
    runs: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
    method: Annotated[str, typer.Option(help="Only this method (its twin is METHOD+twin).")] = "",
    seed: Annotated[int | None, typer.Option(help="Only this seed.")] = None,
) -> None:
    """Send a run's tasks and model calls as spans, by the conventions for generative AI."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise UsageError("spans need OpenTelemetry: install the extra, pip install 'meshheal[otel]'") from None
    found = open_run(run, runs)
    arms = [arm for arm in found.arms() if method in ("", arm.method) and seed in (None, arm.seed)]
    if not arms:
        raise UsageError(f"run {found.name} has no such log")
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each attempt; the error says it once
    exporter: Any = OTLPSpanExporter(endpoint=otlp)
    try:
        sent = send(found, arms, exporter)
    finally:
        exporter.shutdown()
    print(f"run {found.name}: {sent:,} spans sent to {otlp}")


def send(run: RunDir, arms: Sequence[Arm], exporter: SpanExporter) -> int:
    """Export the spans of some arms; return how many. Raises `NetworkError` where the collector does not take them."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    sent = 0
    for arm in arms:
        with LogFile(run.log_path(*arm)) as log:
            shape = layout(run, log.header)
            footer = log.footer or {}
            seconds = float(footer.get("virtual_seconds", footer.get("seconds", 0.0)))
            found = spans_of(log.events(), shape, default_epoch(run, seconds))
            while batch := list(islice(found, _BATCH)):
                if exporter.export(batch) is not SpanExportResult.SUCCESS:
                    raise NetworkError("the collector did not take the spans: is one listening there? See --otlp")
                sent += len(batch)
    return sent
