"""What runs cost the machine, and on what network: read from their logs' ends, as results leave the machine out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshheal.measures import episodes
from meshheal.output.tables import Table, cell, nature
from meshheal.results import plain, read_arms
from meshheal.stats import mean_interval
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import SUITE, RunDir, suite_runs


def costs(path: Path) -> Table:
    """Per experiment and method: the graph, who was isolated of whom, processor time and log a task."""
    suite = (path / SUITE).is_file()
    runs = suite_runs(path) if suite else {"": RunDir(path)}
    contents = {label: run.results for label, run in runs.items()}
    rows: list[tuple[str, ...]] = []
    for label, run in runs.items():
        content = contents[label]
        if content is None:
            continue
        for method, seeds in read_arms(content).items():
            found = [d for r in seeds for d in episodes(r)]
            footers = [_footer(run, method, r.seed) for r in seeds]
            ms = [1000 * f["processor_seconds"] / max(1, r.tasks) for f, r in zip(footers, seeds, strict=True)
                  if "processor_seconds" in f]  # fmt: skip
            rows.append(
                (
                    label,
                    method,
                    *_graph(content),
                    _of([d.delay_tasks is not None for d in found]),
                    _of([d.delay_tasks is not None for d in found if d.among_healthy]),
                    cell(plain(mean_interval(ms)), 2),
                )
            )
    known = [c for c in contents.values() if c is not None]
    natures = " and ".join(sorted({nature(c) for c in known}))
    head = ("", "method", "agents", "edges", "of complete", "isolated", "of those among healthy", "processor ms a task")
    notes = (
        "Isolated: excluded by all neighbours that share an ability, summed over seeds. Times are of this machine.",
    )
    return Table(f"{path.name}: networks and costs, {natures}", head, tuple(rows), notes, labels=2)


def _graph(content: Mapping[str, Any]) -> tuple[str, str, str]:
    g = content.get("network")
    if g is None:
        return ("?", "?", "?")
    return (f"{g['agents']:,}", f"{g['edges']:,}", f"{100 * g['share_of_complete']:.2f} %")


def _of(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else "–"


def _footer(run: RunDir, method: str, seed: int) -> Mapping[str, Any]:
    with LogFile(run.log_path(method, seed)) as log:
        return log.footer or {}
