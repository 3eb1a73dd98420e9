"""An asyncio loop whose clock jumps from timer to timer, for tests of waiting that take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise AssertionError("everything waits and no timer is set")
            self.now += max(timeout, 0.0)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything is ready, and jumps to the next timer when nothing is."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._jumping.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end under virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
