"""Progress while runs go on: a live panel on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Literal

from meshheal.experiment import Arm
from meshheal.folds.summary import SeedResult
from meshheal.study import Snapshot, Study, Watch

_PLAIN_EVERY = 2.0
_Run = tuple[str, Arm]


class Tally:
    """Progress of one study or of several run as one, from the snapshots of their runs."""

    def __init__(self, studies: Mapping[str, Study]) -> None:
        self._per_run = {label: study.experiment.workload.tasks for label, study in studies.items()}
        runs = {label: len(study.experiment.arms()) for label, study in studies.items()}
        self.runs = sum(runs.values())
        self.total = sum(n * self._per_run[label] for label, n in runs.items())
        self._tasks: dict[_Run, int] = {}
        self._tokens: dict[_Run, float] = {}
        self._excluded: dict[_Run, tuple[int, ...]] = {}
        self.ended = 0
        self._began = time.monotonic()

    def take(self, label: str, arm: Arm, value: Snapshot | SeedResult) -> None:
        run = label, arm
        if isinstance(value, Snapshot):
            self._tasks[run], self._tokens[run], self._excluded[run] = value.tasks, value.tokens, value.excluded
        else:
            self.ended += 1
            self._tasks[run] = self._per_run[label]
            self._tokens[run] = value.tokens_per_task * value.tasks
            self._excluded.pop(run, None)

    @property
    def tasks(self) -> int:
        return sum(self._tasks.values())

    def line(self) -> str:
        """Tasks, runs, tokens, who is excluded now, time left."""
        tokens = sum(self._tokens.values())
        now = [
            f"{label + ' ' if label else ''}{arm.label}/{arm.seed}: {_few(out)}"
            for (label, arm), out in self._excluded.items()
            if out
        ]
        states = f" · excluded now {'; '.join(now[:3])}" if now else ""
        return f"{self.tasks}/{self.total} tasks · {self.ended}/{self.runs} runs · {_short(tokens)} tokens{states} · {self._eta()}"

    def _eta(self) -> str:
        spent = time.monotonic() - self._began
        if not self.tasks or self.tasks >= self.total:
            return f"{spent:.0f} s"
        return f"ETA {spent * (self.total - self.tasks) / self.tasks:.0f} s"


def _few(agents: tuple[int, ...]) -> str:
    listed = ",".join(map(str, agents[:4]))
    return listed if len(agents) <= 4 else f"{listed} and {len(agents) - 4} more"


def _short(n: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return f"{n:.0f}"


@contextmanager
def display(
    how: Literal["", "none", "plain", "full"], name: str, studies: Mapping[str, Study]
) -> Iterator[list[Watch]]:
    """Watchers to call with every snapshot, one for each study. Everything goes to standard error."""
    tally = Tally(studies)
    if how == "":
        how = "full" if sys.stderr.isatty() else "plain"
    if how == "none":
        yield _watches(tally, studies, lambda: None)
    elif how == "plain":
        yield _watches(tally, studies, _plain(tally, name))
        print(f"{name}: {tally.line()}", file=sys.stderr, flush=True)
    else:
        with _full(tally, name) as shown:
            yield _watches(tally, studies, shown)


def _watches(tally: Tally, studies: Mapping[str, Study], shown: Callable[[], None]) -> list[Watch]:
    def watch(label: str, arm: Arm, value: Snapshot | SeedResult) -> None:
        tally.take(label, arm, value)
        shown()

    return [partial(watch, label) for label in studies]


def _plain(tally: Tally, name: str) -> Callable[[], None]:
    last = time.monotonic()

    def shown() -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_EVERY:
            last = time.monotonic()
            print(f"{name}: {tally.line()}", file=sys.stderr, flush=True)

    return shown


@contextmanager
def _full(tally: Tally, name: str) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[line]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(name, total=tally.total, line="starting")
        yield lambda: progress.update(bar, completed=tally.tasks, line=tally.line())
