"""`meshheal metrics RUN`: a run's metrics over its own time, for Prometheus to take in afterwards."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from meshheal.errors import TraceError, UsageError
from meshheal.folds.openmetrics import LOOK_BACK, Written, export
from meshheal.trace.rundir import RunDir, open_run


def metrics(
    run: Annotated[str, typer.Argument(help="Run directory, its name under --runs, or 'latest'.")] = "latest",
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; '-' is standard output. [RUN/metrics.om]")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
    method: Annotated[str, typer.Option(help="Only this method (its twin is METHOD+twin).")] = "",
    seed: Annotated[int | None, typer.Option(help="Only this seed.")] = None,
    every: Annotated[float, typer.Option(help="Seconds of the run's clock between samples.")] = 60.0,
    epoch: Annotated[
        str, typer.Option(help="Date and time (ISO, UTC) that second 0 is put at; by default before the run's start.")
    ] = "",
) -> None:
    """Write a run's metrics as OpenMetrics, simulated time mapped onto timestamps."""
    found = open_run(run, runs)
    if not 1.0 <= every < LOOK_BACK:
        raise UsageError(
            f"--every {every:g}: choose 1 to {LOOK_BACK - 1:g} seconds; Prometheus takes a series for gone after {LOOK_BACK:g}"
        )
    arms = [arm for arm in found.arms() if method in ("", arm.method) and seed in (None, arm.seed)]
    if not arms:
        raise UsageError(
            f"run {found.name} has no log of method {method or 'any'}, seed {'any' if seed is None else seed}"
        )
    start = _epoch(epoch)
    if out is not None and str(out) == "-":
        export(found, arms, sys.stdout, every, start)
        return
    path = out or found.path / "metrics.om"
    try:
        with path.open("w", encoding="utf-8") as file:
            written = export(found, arms, file, every, start)
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error
    _say(found, path, written)


def _epoch(text: str) -> float | None:
    if not text:
        return None
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--epoch {text}: write a date and time, e.g. 2026-01-31T12:00") from error
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()


def _say(run: RunDir, path: Path, written: Written) -> None:
    first, last = (datetime.fromtimestamp(t, UTC) for t in (written.epoch, written.end))
    print(f"run {run.name}: {written.samples:,} samples of {written.series:,} series in {path}")
    print(f"the run's time is mapped onto {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC")
    print(
        f"take it in: promtool tsdb create-blocks-from openmetrics {path} DATA   (then prometheus --storage.tsdb.path=DATA)"
    )
