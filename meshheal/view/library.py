"""Which runs there are, and how far each is: read from indexes, not from events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from meshheal.errors import MeshHealError, TraceError, UsageError
from meshheal.folds.report.about import Mode, about, order
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import Arm, RunDir

_FRESH = 60.0
"""Seconds without a change after which a log that has no end counts as cut."""


class Listed(Struct):
    """A run in the list. `expected` is the number of tasks of all its arms; `error` says what could not be read."""

    name: str
    experiment: str
    mode: Mode
    methods: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    seeds: int = 0
    tasks: int = 0
    expected: int = 0
    accuracy: dict[str, float] = field(default_factory=dict)
    complete: bool = False
    writing: bool = False
    error: str = ""


class Library:
    """The runs in a directory, or the one run that a directory is."""

    def __init__(self, place: Path) -> None:
        """Raises `UsageError` where there is neither a run nor a directory."""
        if not place.is_dir():
            raise UsageError(f"{place} is no directory: give a run's directory, or one that holds runs")
        self.only = (place / "experiment.json").is_file()
        self._place = place
        self._counts: dict[Path, tuple[int, int, bool]] = {}

    def names(self) -> list[str]:
        """Names of the runs, the newest first."""
        if self.only:
            return [self._place.resolve().name]
        try:
            found = [path.parent for path in self._place.glob("*/experiment.json")]
            return [path.name for path in sorted(found, key=lambda p: (-p.stat().st_mtime, p.name))]
        except OSError as error:
            raise TraceError(f"cannot list {self._place}: {error.strerror}") from error

    def run(self, name: str) -> RunDir | None:
        """The run of that name. A name is looked up among those there are, never used as a path."""
        if name not in self.names():
            return None
        return RunDir(self._place.resolve() if self.only else self._place / name)

    def listed(self) -> Iterator[Listed]:
        """All runs, the newest first."""
        for name in self.names():
            run = self.run(name)
            if run is not None:
                try:
                    yield self._entry(run)
                except MeshHealError as error:
                    yield Listed(name, name, "simulated", error=str(error))

    def _entry(self, run: RunDir) -> Listed:
        described, results, declared = about(run), run.results, run.experiment.get("declaration", {})
        arms = order(run.arms(), declared.get("methods", []))
        tasks, whole, fresh = 0, True, False
        for arm in arms:
            n, complete, changed = self._count(run.log_path(*arm))
            tasks += n
            whole &= complete
            fresh |= not complete and time.time() - changed < _FRESH
        methods = [str(m) for m in declared.get("methods", [])] or list(dict.fromkeys(arm.method for arm in arms))
        return Listed(
            name=run.name,
            experiment=described.experiment,
            mode=described.mode,
            methods=methods,
            models=[*described.healthy, described.outside],
            seeds=int(declared.get("seeds", len({arm.seed for arm in arms}))),
            tasks=tasks,
            expected=_arms(declared, arms) * described.declared_tasks,
            accuracy=_accuracy(results),
            complete=whole and results is not None,
            writing=fresh,
        )

    def _count(self, path: Path) -> tuple[int, bool, float]:
        """Tasks in a log, whether it is whole, when it changed; looked at again only where it grew."""
        try:
            stat = path.stat()
            known = self._counts.get(path)
            if known is None or known[0] != stat.st_size:
                with LogFile(path) as log:
                    known = self._counts[path] = (stat.st_size, log.counts().get("TaskArrived", 0), log.complete)
        except (OSError, TraceError):
            return 0, False, 0.0
        return known[1], known[2], stat.st_mtime


def _arms(declared: dict[str, Any], arms: list[Arm]) -> int:
    swaps = [f for f in declared.get("faults", []) if f.get("type") == "swap" and f.get("degraded", True)]
    twins = 2 if declared.get("twin", True) and swaps else 1
    return max(len(arms), len(declared.get("methods", [])) * int(declared.get("seeds", 0)) * twins)


def _accuracy(results: dict[str, Any] | None) -> dict[str, float]:
    """Mean accuracy of the degraded phase, or of the whole where there is none, by method."""
    found = {}
    for method, arm in (results or {}).get("arms", {}).items():
        for metric in ("accuracy_degraded", "accuracy_healthy"):
            mean = arm.get("summary", {}).get(metric, {}).get("mean")
            if mean is not None:
                found[method] = mean
                break
    return found
