"""A virtual-time event loop that drives coroutines: time jumps to the next timer, equal times run in order of asking.

Deliberately not asyncio: a process switch costs a generator `send`, and an idle loop with waiting processes is an error
that can be named (`Stalled`) instead of a hang.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from meshheal.errors import InternalError

T = TypeVar("T")


class Stalled(InternalError):
    """Nothing is scheduled any more, but somebody still waits."""


class Killed(BaseException):
    """Raised in whoever awaits a process that was killed. Not an `Exception`: a crash is not to be handled away."""


class Future(Generic[T]):
    """A value that will be there later. Await it, or `resolve`/`fail` it once."""

    __slots__ = ("_error", "_loop", "_value", "_waiters", "done")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Process[Any]] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def resolve(self, value: T) -> None:
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.done = True
        if self._waiters is not None:
            self._loop._ready.extend(self._waiters)
            self._waiters = None

    def result(self) -> T:
        """The value, or raise the error. Only once `done`."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Process(Future[T]):
    """A running coroutine; awaiting it gives its return value."""

    __slots__ = ("_coro",)

    def __init__(self, loop: Loop, coro: Coroutine[Any, Any, T]) -> None:
        super().__init__(loop)
        self._coro = coro

    def step(self) -> None:
        if self.done:
            return
        try:
            command = self._coro.send(None)
        except StopIteration as end:
            self.resolve(end.value)
        except Exception as error:
            self.fail(error)
        except Killed as error:
            self.fail(error)
        else:
            if type(command) is float:
                self._loop._at(self._loop.now + command, self.step)
            elif command._waiters is None:
                command._waiters = [self]
            else:
                command._waiters.append(self)

    def kill(self) -> None:
        """Stop the coroutine where it stands (its `finally` blocks run); whoever awaits it gets `Killed`."""
        if not self.done:
            self._coro.close()
            self.fail(Killed())

    def ended(self) -> _Settled:
        """Awaitable that waits for the end without raising the process' error."""
        return _Settled(self)


class _Sleep:
    __slots__ = ("_loop", "_seconds")

    def __init__(self, loop: Loop, seconds: float) -> None:
        self._loop = loop
        self._seconds = float(seconds)

    def __await__(self) -> Generator[float, None, None]:
        if self._seconds > 0 and not self._loop._jump(self._seconds):
            yield self._seconds


class Loop:
    """Virtual time in seconds, from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: deque[Process[Any]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._starting = 0
        """Processes that are being started within one another now."""
        self._broken: BaseException | None = None

    def break_off(self, error: BaseException) -> None:
        """Have `run` raise `error` at its next step, whoever is running: for what no process may handle away."""
        self._broken = error

    def sleep(self, seconds: float) -> _Sleep:
        """Awaitable that ends `seconds` later; at once for 0 or less."""
        return _Sleep(self, seconds)

    def _jump(self, seconds: float) -> bool:
        """Move time on at once, where nobody else would have run before whoever sleeps until then runs on."""
        if self._ready or self._starting or self._broken is not None:
            return False
        when = self.now + seconds
        if self._timers and self._timers[0][0] <= when:
            return False
        self.now = when
        return True

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._timers, (when, self._count, action))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` after `seconds`."""
        self._at(self.now + max(0.0, seconds), action)

    def spawn(self, coro: Coroutine[Any, Any, T]) -> Process[T]:
        """Start a coroutine; it runs at once up to its first wait."""
        process = Process(self, coro)
        self._starting += 1
        process.step()
        self._starting -= 1
        return process

    async def gather(self, coros: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run all at the same time; results in order. The first error is raised once all have ended."""
        if len(coros) == 1:
            return [await coros[0]]
        processes = [self.spawn(c) for c in coros]
        for p in processes:
            if not p.done:
                await p.ended()
        return [p.result() for p in processes]

    async def within(self, seconds: float, process: Process[T]) -> T:
        """The value of `process`, or `TimeoutError` (and the process killed) when `seconds` pass first."""
        self.later(seconds, lambda: self._expire(process))
        return await process

    @staticmethod
    def _expire(process: Process[Any]) -> None:
        if not process.done:
            process._coro.close()
            process.fail(TimeoutError())

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Drive everything until `main` ends. Raises `Stalled` when nothing can happen any more before that, and what
        `break_off` was given.
        """
        process = self.spawn(main)
        try:
            self._drive(process)
        except BaseException:
            self._close_all(process)
            raise
        return process.result()

    def _drive(self, process: Process[Any]) -> None:
        ready, timers = self._ready, self._timers
        while not process.done:
            while ready and self._broken is None:
                ready.popleft().step()
            if self._broken is not None:
                raise self._broken
            if process.done:
                break
            if not timers:
                raise Stalled("the network is idle, but the run has not ended: somebody waits for what never comes")
            self.now, _, action = heappop(timers)
            action()

    def _close_all(self, main: Process[Any]) -> None:
        """Stop what an interrupted run leaves suspended, outermost first: left to the garbage collector, which begins
        anywhere, coroutines complain as they go.
        """
        waiting = [getattr(action, "__self__", None) for _, _, action in self._timers]
        for process in (main, *self._ready, *waiting):
            if isinstance(process, Process):
                with suppress(RuntimeError, ValueError):
                    process._coro.close()
        self._ready.clear()
        self._timers.clear()


class _Settled:
    """Wait for a process to end without raising its error."""

    __slots__ = ("_process",)

    def __init__(self, process: Process[Any]) -> None:
        self._process = process

    def __await__(self) -> Generator[Any, None, None]:
        if not self._process.done:
            yield self._process
