"""One arm's log being read into what a page draws of it, all at once or bit by bit while it grows."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from meshheal.folds.report.about import TWIN, About
from meshheal.folds.report.arm import ArmFold
from meshheal.folds.report.columns import Arm
from meshheal.folds.report.heads import Head, curve
from meshheal.trace.reader import LogFile


class Snapshot(NamedTuple):
    """What has been read so far."""

    head: Head
    arm: Arm


class Reading:
    """A log and the fold of as much of it as was read."""

    def __init__(self, about: About, path: Path, method: str, seed: int) -> None:
        """Raises `TraceError` where the log cannot be read."""
        self.log = LogFile(path)
        self.method, self.seed = method, seed
        self.key = f"{method}-{seed}"
        self._frames = 0
        self._events = 0
        self._fold = ArmFold(about.neighbours, about.abilities, seed, about.phase, about.accept_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.log.close()

    @property
    def behind(self) -> int:
        """Whole frames of the log that are not read yet."""
        return self.log.frames() - self._frames

    def read(self, frames: int | None = None) -> int:
        """Take in so many frames, or all there are; return how many were."""
        end = self.log.frames()
        if frames is not None:
            end = min(end, self._frames + frames)
        begin = self._frames
        fold = self._fold
        for number in range(begin, end):
            events = self.log.frame(number)
            for event in events:
                fold(event)
            self._events += len(events)
        self._frames = end
        return end - begin

    def snapshot(self) -> Snapshot:
        """Everything as far as it was read."""
        arm, fold, log = self._fold.arm(), self._fold, self.log
        head = Head(
            key=self.key,
            method=self.method.removesuffix(TWIN),
            seed=self.seed,
            twin=self.method.endswith(TWIN),
            complete=log.complete,
            events=len(log),
            hash=str((log.footer or {}).get("hash", "")),
            arrivals=arm.arrivals,
            seconds=arm.seconds,
            figures=fold.result(),
            curve=curve(fold.graded),
            models=dict(sorted(fold.tokens_by_model.items())),
            folded=self._folded(),
        )
        return Snapshot(head, arm)

    def _folded(self) -> float:
        """The share of the log that was read. Before anything is, that needs no look at how many frames there are."""
        if not self._frames:
            return 0.0 if len(self.log) else 1.0
        return self._frames / self.log.frames()
