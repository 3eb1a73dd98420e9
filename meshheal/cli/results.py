"""`meshheal tables`, `meshheal plot` and `meshheal compare`: what can be made of a finished run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
import typer

from meshheal import compare as comparing
from meshheal.errors import UsageError
from meshheal.output.rows import write_parquet
from meshheal.output.tables import comparisons, tables
from meshheal.output.text import render, show
from meshheal.trace.rundir import RunDir, find_run, open_run, read_json

RunArgument = Annotated[str, typer.Argument(help="A run's directory or name, STUDY/LABEL, or 'latest'.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where run directories are.")]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")]


def contents(run: str, out: Path) -> tuple[Path, dict[str, Any]]:
    """The directory and the results.json of a run or a study of several. Raises `UsageError`."""
    found = find_run(run, out)
    path = found.path if isinstance(found, RunDir) else found
    if not (path / "results.json").is_file():
        raise UsageError(f"run {path.name} has no results.json: complete it with --resume {path.name}")
    return path, read_json(path / "results.json")


def tables_command(
    run: RunArgument = "latest",
    form: Annotated[str, typer.Option("--format", help="text, md, latex or parquet.")] = "text",
    output: OutputOption = None,
    out: OutOption = Path("runs"),
) -> None:
    """The tables of a run."""
    path, content = contents(run, out)
    if form == "parquet":
        target = output or path / "results.parquet"
        print(f"{write_parquet(content, target)} rows in {target}", file=sys.stderr)
    elif form in ("md", "latex"):
        _put(render(tables(content), cast("Literal['md', 'latex']", form)), output)
    elif form == "text":
        for table in tables(content):
            show(table, sys.stdout)
    else:
        raise UsageError(f"--format {form}: choose text, md, latex or parquet")


def _put(text: str, output: Path | None) -> None:
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error


def compare_command(
    run: RunArgument,
    other: Annotated[
        str | None, typer.Argument(help="The run to hold against it; without one: its methods against each other.")
    ] = None,
    measures: Annotated[
        str | None, typer.Option("--measures", metavar="MEASURE[,...]", help="Measures as results.json names them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
    out: OutOption = Path("runs"),
) -> None:
    """Test two runs."""
    asked = [m.strip() for m in (measures or "").split(",") if m.strip()]
    one = open_run(run, out)
    found = comparing.within(one, asked) if other is None else comparing.between(one, open_run(other, out), asked)
    if as_json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
        return
    against = "its methods" if other is None else f"{found.other} minus {found.one}"
    table = comparisons(msgspec.to_builtins(found), f"{found.one}: {against}, {found.mode} models")
    if table is None:
        raise UsageError(f"{found.one}: nothing can be compared: no measure has a value on both sides")
    show(table, sys.stdout)
    print(found.seeds)
    print("Declared comparisons are adjusted together (Holm); exploratory ones are not adjusted and prove nothing.")
