"""Progress while runs go on: a live panel on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from meshheal.experiment import Arm
from meshheal.folds.summary import SeedResult
from meshheal.study import Snapshot, Study, Watch

_PLAIN_EVERY = 2.0


class Tally:
    """Progress of a whole study, from the snapshots of its runs."""

    def __init__(self, study: Study) -> None:
        self._per_run = study.experiment.workload.tasks
        self.runs = len(study.experiment.arms())
        self.total = self.runs * self._per_run
        self._tasks: dict[Arm, int] = {}
        self._tokens: dict[Arm, float] = {}
        self._excluded: dict[Arm, tuple[int, ...]] = {}
        self.ended = 0
        self._began = time.monotonic()

    def take(self, arm: Arm, value: Snapshot | SeedResult) -> None:
        if isinstance(value, Snapshot):
            self._tasks[arm], self._tokens[arm], self._excluded[arm] = value.tasks, value.tokens, value.excluded
        else:
            self.ended += 1
            self._tasks[arm] = self._per_run
            self._tokens[arm] = value.tokens_per_task * value.tasks
            self._excluded.pop(arm, None)

    @property
    def tasks(self) -> int:
        return sum(self._tasks.values())

    def line(self) -> str:
        """Tasks, runs, tokens, who is excluded now, time left."""
        tokens = sum(self._tokens.values())
        now = [f"{arm.label}/{arm.seed}: {','.join(map(str, out))}" for arm, out in self._excluded.items() if out]
        states = f" · excluded now {'; '.join(now[:3])}" if now else ""
        return f"{self.tasks}/{self.total} tasks · {self.ended}/{self.runs} runs · {_short(tokens)} tokens{states} · {self._eta()}"

    def _eta(self) -> str:
        spent = time.monotonic() - self._began
        if not self.tasks or self.tasks >= self.total:
            return f"{spent:.0f} s"
        return f"ETA {spent * (self.total - self.tasks) / self.tasks:.0f} s"


def _short(n: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return f"{n:.0f}"


@contextmanager
def display(how: Literal["", "none", "plain", "full"], study: Study) -> Iterator[Watch]:
    """A watcher to call with every snapshot. Everything goes to standard error."""
    tally = Tally(study)
    if how == "":
        how = "full" if sys.stderr.isatty() else "plain"
    if how == "none":
        yield tally.take
    elif how == "plain":
        yield _plain(tally, study)
        print(f"{study.experiment.name}: {tally.line()}", file=sys.stderr, flush=True)
    else:
        with _full(tally, study) as watch:
            yield watch


def _plain(tally: Tally, study: Study) -> Watch:
    last = time.monotonic()

    def watch(arm: Arm, value: Snapshot | SeedResult) -> None:
        nonlocal last
        tally.take(arm, value)
        if time.monotonic() - last >= _PLAIN_EVERY:
            last = time.monotonic()
            print(f"{study.experiment.name}: {tally.line()}", file=sys.stderr, flush=True)

    return watch


@contextmanager
def _full(tally: Tally, study: Study) -> Iterator[Watch]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[line]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(study.experiment.name, total=tally.total, line="starting")

        def watch(arm: Arm, value: Snapshot | SeedResult) -> None:
            tally.take(arm, value)
            progress.update(bar, completed=tally.tasks, line=tally.line())

        yield watch
