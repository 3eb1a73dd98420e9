"""The clock of a process that is one of several: real seconds of the run, never behind what it has heard."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Seconds since the run began, by the wall clock at first and by this process' own from there.

    Each reading is above the last, and above every reading that came with a message (a hybrid logical clock, Kulkarni et
    al., 2014): sorted by time, no effect stands before its cause, even where the machines' clocks differ a little.
    """

    def __init__(
        self,
        began: float,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`began` is when the run began, in seconds since the epoch."""
        self._monotonic = monotonic
        self._offset = wall() - began - monotonic()
        self._last = 0.0

    def now(self) -> float:
        t = round(self._offset + self._monotonic(), 6)
        if t <= self._last:
            t = round(self._last + _TICK, 6)
        self._last = t
        return t

    def hear(self, t: float) -> None:
        """Take note of another process' reading."""
        self._last = max(self._last, t)


_TICK = 1e-6
