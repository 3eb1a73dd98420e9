"""`meshheal report RUN`: one HTML file that shows what happened, to be opened anywhere, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshheal.errors import UsageError
from meshheal.trace.rundir import open_run


def report(
    run: Annotated[str, typer.Argument(help="Run directory, its name under --runs, or 'latest'.")] = "latest",
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default report.html in the run's directory.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method and its twin; may be repeated.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; may be repeated.")] = None,
    stories: Annotated[float, typer.Option(help="Megabytes that tasks' prompts and replies may take in it.")] = 8.0,
    runs: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
) -> None:
    """Write a report of a run: what happened, the network over time, incidents, agents, tokens, tasks' stories."""
    from meshheal.folds.report.build import build, write

    if not 0 <= stories <= 500:
        raise UsageError(f"--stories {stories:g}: give 0 to 500 megabytes")
    found = open_run(run, runs)
    made = build(found, tuple(method or ()), tuple(seed or ()), round(stories * 750_000))
    path = out if out is not None else found.path / "report.html"
    write(made, path)
    print(f"{path}: {made.arms} logs, {made.events:,} events, {len(made.html) / 1e6:.1f} MB")
    if made.stories < made.tasks:
        print(
            f"It holds the stories of {made.stories:,} of {made.tasks:,} tasks: those that changed a belief or went wrong, "
            f"and a sample. More with --stories MB; all with: meshheal view {found.path}"
        )
    for left in made.thinned:
        print(f"Drawn in part, {left}")
