"""`meshheal tables`, `meshheal plot` and `meshheal compare`: what can be made of a finished run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
import typer

from meshheal import compare as comparing
from meshheal.cli.table import all_tables
from meshheal.errors import UsageError
from meshheal.folds.states import States, StatesOverTime
from meshheal.folds.summary import watchers
from meshheal.operating import FILE
from meshheal.output.costs import costs
from meshheal.output.pages import put
from meshheal.output.rows import write_parquet
from meshheal.output.tables import comparisons
from meshheal.output.text import render, show
from meshheal.trace.reader import LogFile
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
    into: Annotated[
        Path | None, typer.Option("--into", help="Markdown page with a place for them: <!-- NAME: begin --> and end.")
    ] = None,
    with_costs: Annotated[bool, typer.Option("--costs", help="Instead: networks, processor time a task.")] = False,
    out: OutOption = Path("runs"),
) -> None:
    """The tables of a run."""
    path, content = contents(run, out)
    made = [costs(path)] if with_costs else all_tables(content, path)
    if into is not None:
        name = content["suite"] if "suite" in content else content["experiment"]
        put(into, f"{name} costs" if with_costs else name, f"{_origin(path, content)}\n\n{render(made, 'md')}")
    elif form == "parquet":
        target = output or path / "results.parquet"
        print(f"{write_parquet(content, target)} rows in {target}", file=sys.stderr)
    elif form in ("md", "latex"):
        _put(render(made, cast("Literal['md', 'latex']", form)), output)
    elif form == "text":
        if output is not None:
            raise UsageError(f"--output {output}: text is for the terminal; add --format md, latex or parquet")
        for table in made:
            show(table, sys.stdout)
    else:
        raise UsageError(f"--format {form}: choose text, md, latex or parquet")


def _origin(path: Path, content: dict[str, Any]) -> str:
    """Which code the figures are of."""
    git = read_json(path / "lock.json").get("git") or {}
    commit = str(git.get("commit", "unknown"))[:7] + (" and changes" if git.get("changed") else "")
    seeds = sorted({len(one["seeds"]) for one in content.get("experiments", {"": content}).values()})
    return f"Code {commit}; seeds: {' to '.join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))}."


def _put(text: str, output: Path | None) -> None:
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error


def plot_command(
    run: RunArgument = "latest",
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="frontier, delays, measures, states or arl0; by default all that apply."),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="png or svg.")] = "png",
    method: Annotated[str | None, typer.Option("--method", help="For states: whose beliefs.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="For states: of which seed.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder; else plots/ in the run.")] = None,
    out: OutOption = Path("runs"),
) -> None:
    """Plots of a run."""
    from meshheal.output import plots

    if form not in ("png", "svg"):
        raise UsageError(f"--format {form}: choose png or svg")
    known = (*plots.KINDS, "states")
    if kind is not None and kind not in known:
        raise UsageError(f"--kind {kind}: choose one of {', '.join(known)}")
    path, content = contents(run, out)
    for name in [kind] if kind else known:
        try:
            made = _drawn(name, path, content, method, seed)
        except UsageError:
            if kind is None:
                continue
            raise
        target = (output or path / "plots") / f"{name}.{form}"
        plots.write(made, target)
        print(target)


def _drawn(name: str, path: Path, content: dict[str, Any], method: str | None, seed: int | None) -> Any:
    from meshheal.output import plots

    if name == "arl0":
        if not (path / FILE).is_file():
            raise UsageError(f"{path.name} is no study of detectors: run experiments/detectors.py")
        return plots.operating(read_json(path / FILE))
    if name != "states":
        return plots.KINDS[name](content)
    if "suite" in content:
        raise UsageError(f"{path.name} is a study of several experiments: plot states of one, e.g. {path.name}/LABEL")
    run = RunDir(path)
    arms = list(content["arms"])
    chosen, number = method or arms[0], content["seeds"][0] if seed is None else seed
    if chosen not in arms or number not in content["seeds"]:
        raise UsageError(f"{path.name} has no {chosen} with seed {number}; it ran {', '.join(arms)}")
    return plots.states(_states(run, chosen, number), f"{chosen}, seed {number}", content)


def _states(run: RunDir, method: str, seed: int) -> States:
    topology = run.experiment["topology"]
    fold = StatesOverTime(watchers(topology["neighbours"], topology["abilities"]))
    with LogFile(run.log_path(method, seed)) as log:
        for event in log.events():
            fold(event)
    return fold.result


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
