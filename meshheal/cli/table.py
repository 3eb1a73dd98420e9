"""The table at the end of a run. Never a bare mean: every figure with its 95 % interval."""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from meshheal.study import Study

_ROWS = (
    ("accuracy, healthy phase", "accuracy_healthy", 3),
    ("accuracy, degraded phase", "accuracy_degraded", 3),
    ("accuracy, twin (no faults)", "accuracy_twin", 3),
    ("degraded minus twin", "degraded_minus_twin", 3),
    ("tokens a task", "tokens_per_task", 0),
    ("model calls a task", "calls_per_task", 2),
    ("probe calls a task", "probe_calls_per_task", 2),
    ("episodes detected", "detected", 2),
    ("detection, tasks", "detection_tasks", 1),
    ("detection, its outputs", "detection_outputs", 1),
    ("reinstated", "reintegrated", 2),
    ("reintegration, tasks", "reintegration_tasks", 1),
    ("false exclusions a run", "false_exclusions", 2),
    ("premature returns a run", "premature_reintegrations", 2),
    ("ordinary tasks while excluded", "ordinary_tasks_while_excluded", 2),
    ("no answer, rate", "no_answer_rate", 4),
    ("unscored reviews a task", "unscored_per_task", 3),
)


def show(results: dict[str, Any], study: Study, to: TextIO) -> None:
    """Print the table, what is simulated in it, and where everything is."""
    console = Console(file=to, highlight=False, width=None if to.isatty() else 140)
    arms = results["arms"]
    n = len(results["seeds"])
    table = Table(title=f"{results['experiment']}: {_caption(results)}, {n} seed{'s' * (n != 1)}, mean [95 % interval]")
    table.add_column("")
    for method in arms:
        table.add_column(method, justify="right")
    for label, metric, digits in _ROWS:
        cells = [_cell(arm["summary"].get(metric), digits) for arm in arms.values()]
        if any(c != "–" for c in cells):
            table.add_row(label, *cells)
        if metric in ("detection_tasks", "reintegration_tasks"):
            _per_agent(table, arms, metric, digits)
    purposes = sorted({p for arm in arms.values() for s in arm["per_seed"] for p in s["tokens_by_purpose"]})
    for purpose in purposes:
        table.add_row(f"tokens a task: {purpose}", *[_tokens(arm, purpose) for arm in arms.values()])
    console.print(table)
    console.print(_note(results))
    console.print(f"run directory: {study.directory.path}", soft_wrap=True)


def _per_agent(table: Table, arms: dict[str, Any], metric: str, digits: int) -> None:
    for key in sorted({k for arm in arms.values() for k in arm["summary"] if k.startswith(f"{metric}.agent_")})[:6]:
        agent = key.rpartition("_")[2]
        table.add_row(f"  agent {agent}", *[_cell(arm["summary"].get(key), digits) for arm in arms.values()])


def _caption(results: dict[str, Any]) -> str:
    return {"simulated": "simulated models", "recorded": "recorded models", "live": "live models"}[results["mode"]]


def _note(results: dict[str, Any]) -> str:
    if results["mode"] == "simulated":
        return "Models are simulated from published accuracies (docs/MODELS.md); tokens are estimated. No real model was called."
    if results["mode"] == "recorded":
        return (
            "Answers are real models' recorded ones; reviews are simulated by comparing answers; tokens are estimated."
        )
    return "Answers, reviews and tokens are of real models, live."


def _cell(value: dict[str, Any] | None, digits: int) -> str:
    if value is None or value["mean"] is None:
        return "–"
    low, high = value["ci95"]
    mean = f"{value['mean']:,.{digits}f}"
    if low is None or high is None:
        return f"{mean} [one seed]" if value["n"] == 1 else mean
    return f"{mean} [{low:,.{digits}f}, {high:,.{digits}f}]"


def _tokens(arm: dict[str, Any], purpose: str) -> str:
    values = [s["tokens_by_purpose"].get(purpose, 0.0) for s in arm["per_seed"]]
    from meshheal.stats import mean_interval

    i = mean_interval(values)
    return _cell({"mean": i.mean, "ci95": [i.low if i.n > 1 else None, i.high if i.n > 1 else None], "n": i.n}, 0)
