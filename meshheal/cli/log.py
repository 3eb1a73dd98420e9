"""`meshheal log RUN`: what is in a run's event logs, and the story of one task."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshheal.errors import TraceError, UsageError
from meshheal.folds.story import BELIEFS, Line, tell, text_ids
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import Arm, RunDir, open_run

_SHORT = 160
"""Characters shown of a text, unless all are asked for."""
_EXAMPLES = 3


def log(
    run: Annotated[str, typer.Argument(help="Run directory, its name under --out, or 'latest'.")] = "latest",
    task: Annotated[str, typer.Option(help="Tell the story of this task.")] = "",
    method: Annotated[str, typer.Option(help="Only the logs of this method.")] = "",
    seed: Annotated[int | None, typer.Option(help="Only the logs of this seed.")] = None,
    out: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
    full: Annotated[bool, typer.Option("--full", help="Show texts whole.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")] = False,
) -> None:
    """Show header and counts of a run's event logs, or with --task who did and believed what in one task."""
    found = open_run(run, out)
    arms = [arm for arm in found.arms() if method in ("", arm.method) and seed in (None, arm.seed)]
    if not arms:
        raise UsageError(f"run {found.name} has no such log: {_choices(found)}")
    console = Console(highlight=False, soft_wrap=True)
    if task:
        _show_task(console, found, _preferred(arms), task, full=full, as_json=as_json)
    elif as_json:
        _print_json({"run": found.name, "logs": [_summary(found, arm) for arm in arms]})
    elif len(arms) == 1:
        _show_log(console, found, arms[0])
    else:
        _show_logs(console, found, arms)


def _preferred(arms: list[Arm]) -> Arm:
    """The protocol's own log before the others, so that `--task` alone shows what is mostly meant."""
    return next((arm for arm in arms if arm.method == "meshheal"), arms[0])


def _choices(run: RunDir) -> str:
    arms = run.arms()
    if not arms:
        return "nothing was recorded in it"
    methods = ", ".join(dict.fromkeys(arm.method for arm in arms))
    return f"methods are {methods}; seeds {', '.join(str(s) for s in sorted({arm.seed for arm in arms}))}"


@contextmanager
def _open(run: RunDir, arm: Arm) -> Iterator[LogFile]:
    with LogFile(run.log_path(*arm)) as log_file:
        yield log_file


def _summary(run: RunDir, arm: Arm) -> dict[str, Any]:
    with _open(run, arm) as log_file:
        return {
            "method": arm.method,
            "seed": arm.seed,
            "complete": log_file.complete,
            "header": log_file.header,
            "footer": log_file.footer,
            "events": len(log_file),
            "counts": log_file.counts(),
        }


def _show_logs(console: Console, run: RunDir, arms: list[Arm]) -> None:
    table = Table(box=None, title=f"run {run.name}", title_justify="left")
    table.add_column("method", no_wrap=True)
    for name in ("seed", "tasks", "calls", "events"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("event hash", no_wrap=True)
    table.add_column("state")
    for arm in arms:
        s = _summary(run, arm)
        counts = s["counts"]
        n = [counts.get("TaskArrived", 0), counts.get("ModelCalled", 0), s["events"]]
        hash = s["footer"]["hash"][:12] if s["footer"] else "–"
        table.add_row(arm.method, str(arm.seed), *[f"{i:,}" for i in n], hash, _state(s))
    console.print(table)
    console.print("One log: --method M --seed N. One task: --task ID.")


def _show_log(console: Console, run: RunDir, arm: Arm) -> None:
    s = _summary(run, arm)
    console.print(f"run {run.name}, method {arm.method}, seed {arm.seed}: {_state(s)}", markup=False)
    for name, value in s["header"].items():
        console.print(Text("  ").append_text(_shown(f"{name}: {json.dumps(value)}", full=False)))
    if s["footer"]:
        console.print(f"  event hash: {s['footer']['hash']}", markup=False)
    table = Table("events", box=None)
    table.add_column("number", justify="right")
    for kind, n in s["counts"].items():
        table.add_row(kind, f"{n:,}")
    table.add_row("all", f"{s['events']:,}")
    console.print(table)
    with _open(run, arm) as log_file:
        console.print(_shown(f"Tasks, e.g. {', '.join(_examples(log_file))}: --task ID", full=False))


def _state(summary: dict[str, Any]) -> str:
    return "complete" if summary["complete"] else "not complete (still running, or cut)"


def _examples(log_file: LogFile) -> list[str]:
    tasks = log_file.tasks()
    return tasks[: _EXAMPLES - 1] + tasks[_EXAMPLES - 1 :][-1:]


def _show_task(console: Console, run: RunDir, arm: Arm, task: str, *, full: bool, as_json: bool) -> None:
    with _open(run, arm) as log_file:
        events = log_file.task(task)
        if not events:
            some = ", ".join(_examples(log_file)) or "none"
            raise UsageError(
                f"the log of {arm.method}, seed {arm.seed} has no task {task!r}; its tasks are e.g. {some}"
            )
        if as_json:
            ids = dict.fromkeys(id for event in events for id in text_ids(event))
            texts = {id: _text(log_file, id) for id in ids}
            story = {"run": run.name, "method": arm.method, "seed": arm.seed, "task": task}
            _print_json({**story, "events": msgspec.to_builtins(events), "texts": texts})
            return
        lines = tell(events, lambda id: _text(log_file, id))
    console.print(_shown(f"task {task} in run {run.name}, method {arm.method}, seed {arm.seed}", full=True))
    _show_lines(console, [line for line in lines if line.kind not in BELIEFS], full=full)
    beliefs = [line for line in lines if line.kind in BELIEFS]
    console.print("What was believed because of it:" if beliefs else "It changed nobody's belief.")
    _show_lines(console, beliefs, full=full)


def _text(log_file: LogFile, id: str) -> str:
    try:
        return log_file.text(id)
    except TraceError:
        return f"({id}: not in the log)"  # a story with a gap is better than none


def _show_lines(console: Console, lines: list[Line], *, full: bool) -> None:
    quoted: set[str] = set()
    for line in lines:
        console.print(_shown(f"{line.at:12.2f} s  {line.who:<9} {line.what}", full=True))
        for label, text in line.quotes:
            if text in quoted:
                console.print(Text(f"{'':26}{label}: (as above)", style="dim"))
                continue
            quoted.add(text)
            console.print(Text(f"{'':26}{label}: ", style="dim").append_text(_shown(text, full=full)))


def _shown(text: str, *, full: bool) -> Text:
    """Text from a log, safe for a terminal: control characters and broken surrogates are spelled out."""
    if not full:
        text = " ".join(text[: 4 * _SHORT].split())
        text = text if len(text) <= _SHORT else text[:_SHORT] + " …"
    return Text("".join([c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text]))


def _print_json(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
