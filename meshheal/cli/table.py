"""The tables at the end of a run, and where everything is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from meshheal.output.tables import tables
from meshheal.output.text import show as show_table


def show(results: dict[str, Any], directory: Path, to: TextIO) -> None:
    """Print what a run came to, what is simulated in it, and its directory."""
    for table in tables(results):
        show_table(table, to)
    Console(file=to, highlight=False, width=None if to.isatty() else 140).print(
        f"run directory: {directory}", soft_wrap=True
    )
