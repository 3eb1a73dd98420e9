"""Logs being read in the background for whoever looks at them: a little at a time, the arm looked at first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from meshheal.errors import MeshHealError
from meshheal.folds.report.about import About, about, order
from meshheal.folds.report.build import Overview, Stories
from meshheal.folds.report.columns import Arm
from meshheal.folds.report.heads import Head, Network, network, speak
from meshheal.folds.report.page import encoded
from meshheal.folds.report.reading import Reading, Snapshot
from meshheal.folds.report.stories import Block, story
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import RunDir

_OPEN_RUNS = 3
"""Runs that are kept read. Who comes back to one of them waits for nothing."""
_SLICE = 4
"""Frames read at a time, so that a question never waits long."""
_LOOK_AGAIN = 1.0
"""Seconds between looks at logs that still grow."""
_SMALL, _PATIENCE = 300_000, 4.0
"""The first answer about a run of so few events waits, at most so many seconds, until its logs are read."""
_FEW = 500
"""Ids of tasks in one answer."""


class ArmAnswer(Struct):
    """An arm as far as it was read; `version` grows with that."""

    version: int
    arm: Arm


class _Shelf:
    """One arm: its log, and what was read of it."""

    def __init__(self, described: About, run: RunDir, method: str, seed: int) -> None:
        self.lock = threading.Lock()
        self.reading = Reading(described, run.log_path(method, seed), method, seed)
        self.version = 0
        self.story_lock = threading.Lock()
        self.stories = LogFile(run.log_path(method, seed))
        self.ids: list[str] | None = None
        self.error = ""
        self._taken: tuple[int, Snapshot] | None = None

    def advance(self) -> bool:
        """Read on a little; say whether there was anything to read."""
        with self.lock:
            read = self.reading.read(_SLICE)
            self.version += read
        return read > 0

    def look_again(self) -> None:
        with self.lock:
            if not self.reading.log.complete:
                self.reading.log.refresh()

    def snapshot(self) -> tuple[int, Snapshot]:
        with self.lock:
            if (
                self._taken is None
                or self._taken[0] != self.version
                or self._taken[1].head.complete != self.reading.log.complete
            ):
                self._taken = self.version, self.reading.snapshot()
            return self._taken

    @property
    def done(self) -> bool:
        return self.reading.behind == 0

    def close(self) -> None:
        with self.lock, self.story_lock:
            self.reading.log.close()
            self.stories.close()


class _OpenRun:
    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.about = about(run)
        self.network: Network = network(self.about)
        self.shelves: dict[str, _Shelf] = {}
        self.asked = time.monotonic()
        self.find_arms()

    def find_arms(self) -> None:
        """Take in arms that were begun since the last look."""
        methods = [str(m) for m in self.run.experiment.get("declaration", {}).get("methods", [])]
        found: dict[str, _Shelf] = {}
        for arm in order(self.run.arms(), methods):
            key = f"{arm.method}-{arm.seed}"
            with suppress(MeshHealError):  # a log that was only just made; the next look finds it
                found[key] = self.shelves.get(key) or _Shelf(self.about, self.run, arm.method, arm.seed)
        self.shelves = found


class Desk:
    """Open runs, and one thread that reads their logs."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _OpenRun] = OrderedDict()
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._progress = threading.Condition()
        self._asking = 0
        self._ended = False
        self._first = ""
        self._thread = threading.Thread(target=self._read, name="meshheal-view-reader", daemon=True)
        self._thread.start()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """While somebody waits for an answer the reading thread rests: they would take turns slowly."""
        with self._progress:
            self._asking += 1
        try:
            yield
        finally:
            with self._progress:
                self._asking -= 1
                self._progress.notify_all()

    def overview(self, run: RunDir) -> Overview:
        """What the page of a run opens with, as far as its logs are read. Raises `TraceError`."""
        with self._asked():
            opened, new = self._open(run)
        if new:
            self._wait(opened)
        with self._asked():
            return self._overview(opened)

    def _overview(self, opened: _OpenRun) -> Overview:
        heads: list[Head] = []
        incidents = {}
        for shelf in list(opened.shelves.values()):
            _, snapshot = shelf.snapshot()
            heads.append(snapshot.head)
            incidents[snapshot.head.key] = snapshot.arm.incidents
        speak(opened.about, heads, incidents)
        return Overview(opened.about, opened.network, heads, Stories(), opened.run.results)

    def arm(self, run: RunDir, key: str, since: int | None) -> ArmAnswer | dict[str, Any] | None:
        """The tables of one arm, or that nothing is new since that version; None where there is no such arm."""
        with self._asked():
            opened, new = self._open(run)
        self._first = key
        if new:
            self._wait(opened)
        with self._asked():
            shelf = opened.shelves.get(key)
            if shelf is None:
                return None
            if since is not None and since == shelf.version:
                return {"unchanged": True}
            version, snapshot = shelf.snapshot()
            return ArmAnswer(version, snapshot.arm)

    def story(self, run: RunDir, key: str, task: str) -> Block | None:
        """One task's story, read from the log now; None where there is no such arm."""
        with self._asked():
            shelf = self._shelf(run, key)
            return None if shelf is None else self._story(shelf, task)

    def _story(self, shelf: _Shelf, task: str) -> Block:
        with shelf.story_lock:
            if not shelf.stories.complete:
                shelf.stories.refresh()
            return story(shelf.stories, task)

    def tasks(self, run: RunDir, key: str, start: int, query: str) -> dict[str, Any] | None:
        """Ids of tasks from the log's index, which is there before its events are read."""
        with self._asked():
            shelf = self._shelf(run, key)
            return None if shelf is None else self._tasks(shelf, start, query)

    def _tasks(self, shelf: _Shelf, start: int, query: str) -> dict[str, Any]:
        with shelf.story_lock:
            if shelf.ids is None or not shelf.stories.complete:
                shelf.ids = shelf.stories.tasks()
        found = [id for id in shelf.ids if query in id.lower()] if query else shelf.ids
        return {"count": len(found), "from": start, "ids": found[start : start + _FEW]}

    def close(self) -> None:
        """End reading."""
        with self._progress:
            self._ended = True
            self._progress.notify_all()
        self._work.set()
        self._thread.join(timeout=5)
        for opened in self._runs.values():
            for shelf in opened.shelves.values():
                shelf.close()

    def _open(self, run: RunDir) -> tuple[_OpenRun, bool]:
        dropped: list[_OpenRun] = []
        with self._lock:
            opened = self._runs.get(run.name)
            new = opened is None
            if opened is None:
                opened = self._runs[run.name] = _OpenRun(run)
                while len(self._runs) > _OPEN_RUNS:
                    dropped.append(self._runs.popitem(last=False)[1])
            self._runs.move_to_end(run.name)
            opened.asked = time.monotonic()
        for old in dropped:
            for shelf in old.shelves.values():
                shelf.close()
        self._work.set()
        return opened, new

    def _shelf(self, run: RunDir, key: str) -> _Shelf | None:
        opened, _ = self._open(run)
        return opened.shelves.get(key)

    def _wait(self, opened: _OpenRun) -> None:
        """Small runs are read whole before they are shown; large ones are shown while they are read."""
        if sum(len(shelf.stories) for shelf in opened.shelves.values()) > _SMALL:
            return
        with self._progress:
            self._progress.wait_for(lambda: all(shelf.done for shelf in opened.shelves.values()), timeout=_PATIENCE)

    # --- the reading thread ------------------------------------------------------------------------------------------

    def _read(self) -> None:
        looked = 0.0
        while not self._ended:
            with self._lock:
                runs = list(reversed(self._runs.values()))
            busy = False
            for opened in runs:
                busy |= self._advance(opened)
                if busy:
                    break
            with self._progress:
                self._progress.notify_all()
                self._progress.wait_for(lambda: not self._asking or self._ended)
            if time.monotonic() - looked > _LOOK_AGAIN:
                looked = time.monotonic()
                for opened in runs:
                    self._look_again(opened)
            if not busy:
                self._work.clear()
                self._work.wait(timeout=_LOOK_AGAIN)

    def _advance(self, opened: _OpenRun) -> bool:
        shelves = sorted(opened.shelves.values(), key=lambda shelf: shelf.reading.key != self._first)
        for shelf in shelves:
            if shelf.error:
                continue
            try:
                if shelf.advance():
                    return True
            except MeshHealError as error:
                shelf.error = str(error)
            except OSError as error:  # closed while being read
                shelf.error = str(error)
        return False

    def _look_again(self, opened: _OpenRun) -> None:
        if time.monotonic() - opened.asked > 30 * _LOOK_AGAIN:
            return  # nobody looks at it now
        with suppress(MeshHealError, OSError):
            opened.find_arms()
            for shelf in opened.shelves.values():
                shelf.look_again()


def body(answer: Any) -> bytes:
    """An answer as it goes over the wire."""
    return encoded(answer)
