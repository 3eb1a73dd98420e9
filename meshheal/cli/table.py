"""The tables at the end of a run, and where everything is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from meshheal.operating import FILE
from meshheal.output.tables import Table, operating, tables, tuning
from meshheal.output.text import show as show_table
from meshheal.trace.rundir import read_json
from meshheal.tuning import SCORES


def all_tables(results: dict[str, Any], directory: Path) -> list[Table]:
    """The tables of results, and of what else a study wrote into its directory.

    Of a tuning study only what was chosen: every configuration in a row of its own would hide it (`tuning.json` has all).
    """
    if (directory / SCORES).is_file():
        return [tuning(results, read_json(directory / SCORES))]
    found = tables(results)
    if (directory / FILE).is_file():
        found.append(operating(read_json(directory / FILE)))
    return found


def show(results: dict[str, Any], directory: Path, to: TextIO) -> None:
    """Print what a run came to, what is simulated in it, and its directory."""
    for table in all_tables(results, directory):
        show_table(table, to)
    Console(file=to, highlight=False, width=None if to.isatty() else 140).print(
        f"run directory: {directory}", soft_wrap=True
    )
