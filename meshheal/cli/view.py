"""`meshheal view RUN_OR_DIR`: runs in a browser on this machine, also while they go on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from meshheal.errors import UsageError
from meshheal.trace.rundir import open_run


def view(
    run: Annotated[str, typer.Argument(help="Run directory, a run's name, 'latest', or a directory of runs.")] = "runs",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 7749,
    runs: Annotated[Path, typer.Option(help="Where runs are, if RUN is a name.")] = Path("runs"),
) -> None:
    """Show runs in a browser: list, filter, open, compare; a run in progress is followed. Ctrl-C ends it."""
    from meshheal.view.library import Library
    from meshheal.view.server import Server

    place = Path(run)
    if not place.is_dir():
        place = open_run(run, runs).path
    library = Library(place)
    if not library.names():
        raise UsageError(f"{place} holds no run: run an experiment first, or give another directory")
    with Server(library, port) as server, suppress(KeyboardInterrupt):
        where = f"{server.url}#/run/{library.names()[0]}" if library.only else server.url
        print(f"{place}: open {where} (Ctrl-C ends)", flush=True)
        server.serve_forever(poll_interval=0.2)
