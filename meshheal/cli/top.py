"""`meshheal top RUN`: agents, states, suspicion and incidents of a run, live while it goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from meshheal.errors import UsageError
from meshheal.folds.layout import Layout, layout
from meshheal.folds.roster import Roster, Row
from meshheal.folds.summary import Summary, watchers
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import Arm, RunDir, open_run

_COLOURS = {
    "down": "bold magenta",
    "excluded": "bold red",
    "partly excluded": "red",
    "suspect": "yellow",
    "probation": "cyan",
}
_INCIDENTS = 8


class Follower:
    """The roster of one log, taken in as far as it is written."""

    def __init__(self, run: RunDir, arm: Arm) -> None:
        self.log = LogFile(run.log_path(*arm))
        self.layout: Layout = layout(run, self.log.header)
        around = watchers(self.layout.neighbours, self.layout.abilities)
        self._summary = Summary(around, self.layout.abilities, arm.seed)
        self.roster = Roster(len(around), self._summary)
        self._taken = 0

    @property
    def over(self) -> bool:
        """Whether the run ended the log, and all of it is taken in."""
        return self.log.complete and self._taken == self.log.frames()

    def take(self) -> None:
        """Take in what was written since the last time."""
        self.log.refresh()
        while self._taken < self.log.frames():
            for event in self.log.frame(self._taken):
                self._summary(event)
                self.roster(event)
            self._taken += 1


def top(
    run: Annotated[str, typer.Argument(help="Run directory, its name under --runs, or 'latest'.")] = "latest",
    runs: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
    method: Annotated[str, typer.Option(help="The method to watch; by default meshheal, else the first.")] = "",
    seed: Annotated[int | None, typer.Option(help="The seed to watch; by default the first.")] = None,
    every: Annotated[float, typer.Option(help="Seconds between looks at the log.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show how it stands now, and end.")] = False,
) -> None:
    """A live table of a run's agents; it ends when the run does. Without a terminal it is printed once."""
    if every <= 0:
        raise UsageError(f"--every {every:g}: give seconds above 0")
    found = open_run(run, runs)
    follower = Follower(found, _arm(found, method, seed))
    console = Console(highlight=False)
    try:
        watch(follower, console, every, time.sleep, once=once or not console.is_terminal)
    finally:
        follower.log.close()


def watch(follower: Follower, console: Console, every: float, pause: Callable[[float], None], *, once: bool) -> None:
    """Show the log until it ends, looking again after each pause; or show it once."""
    follower.take()
    if once or follower.over:
        console.print(render(follower, len(follower.layout.neighbours)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(render(follower, max(3, shutil.get_terminal_size().lines - _INCIDENTS - 7)), refresh=True)
            if follower.over:
                return
            pause(every)
            follower.take()


def render(follower: Follower, rows: int) -> Group:
    """The whole picture, with that many agents, the worst."""
    roster, shape = follower.roster, follower.layout
    run, method, twin, seed = shape.labels
    clock = "virtual s" if shape.clock == "virtual" else "s"
    state = "ended" if follower.over else "going on"
    accuracy = f"{roster.right / roster.graded:.1%} right" if roster.graded else "none graded"
    title = Text(
        f"{run} · {method}{' (twin)' if twin == 'true' else ''}, seed {seed} · {state} · {shape.info[2]} models", "bold"
    )
    line = Text(
        f"{roster.task + 1} tasks, {accuracy} · {roster.calls:,} calls, {roster.tokens:,} tokens · {roster.t:,.0f} {clock}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("agent", justify="right")
    table.add_column("state")
    for name in ("excluded by", "suspected by", "suspicion", "produced", "last score", "probes right"):
        table.add_column(name, justify="right")
    table.add_column("truth")
    every = roster.rows()
    for row in every[:rows]:
        table.add_row(*_cells(row))
    parts: list[Text | Table] = [title, line, table]
    if len(every) > rows:
        parts.append(Text(f"… and {len(every) - rows} more", "dim"))
    parts.append(Text("Incidents" if roster.incidents else "No incidents", "bold"))
    for i in list(roster.incidents)[-_INCIDENTS:]:
        parts.append(Text(f"{i.t:10.0f} {clock}  task {i.task:<6} {_plain(i.what)}"))
    return Group(*parts)


def _cells(row: Row) -> list[Text]:
    colour = _COLOURS.get(row.standing, "")
    score = "–" if row.last_score is None else f"{row.last_score:.2f}"
    cells = [
        str(row.agent), row.standing, f"{row.excluded_by}/{row.watchers}", f"{row.suspected_by}/{row.watchers}",
        f"{row.suspicion:,.3g}", str(row.produced), score, f"{row.probes_right}/{row.probes}",
    ]  # fmt: skip
    return [*(Text(c, colour) for c in cells), Text("degraded" if row.degraded else "", "bold")]


def _plain(text: str) -> str:
    """Text from a log, safe for a terminal, on one line."""
    return "".join([c if c.isprintable() else " " for c in text])[:200]


def _arm(run: RunDir, method: str, seed: int | None) -> Arm:
    arms = [arm for arm in run.arms() if method in ("", arm.method) and seed in (None, arm.seed)]
    if not arms:
        there = ", ".join(sorted({arm.method for arm in run.arms()})) or "none yet"
        raise UsageError(f"run {run.name} has no such log; its methods are {there}")
    return next((arm for arm in arms if arm.method == "meshheal"), arms[0])
