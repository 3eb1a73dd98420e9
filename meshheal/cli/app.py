"""The `meshheal` command. One file a subcommand; errors end in one line and the exit code of their kind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshheal import __version__
from meshheal.errors import InternalError, MeshHealError

if TYPE_CHECKING:
    import typer


def build() -> typer.Typer:
    """The command with all its subcommands."""
    import typer

    from meshheal.cli import export, log, methods, metrics, report, results, run, spans, swarm, top, view

    def version(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
        if version:
            print(f"meshheal {__version__}")
            raise typer.Exit

    app = typer.Typer(
        name="meshheal",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Networks of LLM agents that notice and route around members whose answers have become bad.",
    )
    app.command("run", help="Run an experiment, or a study of several: a script that declares one.")(run.run)
    app.command("log", help="What is in a run's event logs; the story of one task.")(log.log)
    app.command("export", help="A run's model calls as recordings, to be used in place of the models.")(export.export)
    app.command("tables", help="A run's tables: as text, Markdown, LaTeX, or per-seed rows in Parquet.")(
        results.tables_command
    )
    app.command("plot", help="A run's plots, with intervals: accuracy against tokens, delays, states over time.")(
        results.plot_command
    )
    app.command("compare", help="Test two runs against each other, or the methods of one.")(results.compare_command)
    app.command("report", help="Write a run as one HTML page, to be opened anywhere.")(report.report)
    app.command("view", help="Show runs in a browser on this machine, also while they go on.")(view.view)
    app.command("methods", help="Every method there is, and what it is.")(methods.methods)
    app.command("metrics", help="A run's metrics over its own time, as OpenMetrics for Prometheus.")(metrics.metrics)
    app.command("top", help="Agents, states, suspicion and incidents of a run, live.")(top.top)
    app.command("spans", help="A run's tasks and model calls as OpenTelemetry spans.")(spans.spans)
    app.command("swarm", help="Draw worlds at random, run them, and check what must always hold.")(swarm.swarm)
    app.callback(invoke_without_command=True)(version)
    return app


def guarded(command: Callable[[], object]) -> None:
    """Run a command; print errors as one line on standard error, and exit with their code.

    In a job submitted to a cluster the last line repeats the code, of which a job's client may make another.
    """
    try:
        _guarded(command)
    except SystemExit as end:
        _tell_job(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    _tell_job(0)


def _tell_job(code: int) -> None:
    if os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR"):
        sys.stdout.flush()
        print(f"meshheal: exit code {code}", file=sys.stderr, flush=True)


def _guarded(command: Callable[[], object]) -> None:
    try:
        command()
    except KeyboardInterrupt:
        print("meshheal: interrupted", file=sys.stderr)
        sys.exit(130)
    except MeshHealError as error:
        kind = "" if not isinstance(error, InternalError) else "internal error: "
        print(f"meshheal: {kind}{error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run() -> None:
    """Entry point of the `meshheal` command."""
    guarded(lambda: build()())  # what it imports takes a while, in which one may interrupt
