"""Which endpoint serves the next request, and how many it may have open: queueing, least outstanding first, rest for the ill."""

from __future__ import annotations

from asyncio import Future, TimerHandle, get_running_loop, timeout_at
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

REST_AFTER = 3
"""Failures in a row after which an endpoint is left alone."""
REST = 1.0
REST_MAX = 30.0
"""Seconds of the first rest; each further one doubles, to at most this."""


class Endpoint(Struct, eq=False):
    """One server. `outstanding` requests are open at it; after `failures` in a row it rests until `rests_until`."""

    url: str
    index: int
    outstanding: int = 0
    failures: int = 0
    rests: int = 0
    rests_until: float = 0.0

    def room(self, now: float, cap: int) -> bool:
        """Whether it takes one more. After a rest it gets one request at a time until one succeeds."""
        return now >= self.rests_until and self.outstanding < (1 if self.rests else cap)


class Endpoints:
    """The endpoints of one model on one event loop, whose clock it goes by. Requests beyond the cap wait their turn."""

    def __init__(self, urls: Sequence[str], cap: int) -> None:
        self.all = [Endpoint(url, i) for i, url in enumerate(urls)]
        self._cap = cap
        self._waiting: deque[Future[Endpoint]] = deque()
        self._loop = get_running_loop()
        self._timer: TimerHandle | None = None

    async def acquire(self, until: float, avoid: Endpoint | None = None) -> Endpoint:
        """The endpoint with the fewest open requests, once one has room; `avoid` only if no other has.

        Raises `TimeoutError` where none has by the time `until`, at once where that is certain.
        """
        free = None if self._waiting else self._free(avoid)
        if free is not None:
            free.outstanding += 1
            return free
        if min(e.rests_until for e in self.all) >= until:
            raise TimeoutError
        turn: Future[Endpoint] = self._loop.create_future()
        self._waiting.append(turn)
        self._hand_out()
        try:
            async with timeout_at(until):
                return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave(turn.result())  # handed over just as the wait ended
            else:
                turn.cancel()
            raise

    def succeeded(self, endpoint: Endpoint) -> None:
        """A request ended, and the server is well."""
        endpoint.failures = endpoint.rests = 0
        endpoint.rests_until = 0.0
        self._leave(endpoint)

    def refused(self, endpoint: Endpoint, after: float | None = None) -> None:
        """A request ended without saying anything about the server's health; it may have asked for `after` seconds of rest."""
        if after:
            endpoint.rests_until = max(endpoint.rests_until, self._loop.time() + after)
        self._leave(endpoint)

    def failed(self, endpoint: Endpoint, after: float | None = None) -> None:
        """A request failed by the server's fault. Failures of requests that were open together count as one spell."""
        now = self._loop.time()
        endpoint.failures += 1
        if endpoint.failures >= REST_AFTER and now >= endpoint.rests_until:
            endpoint.rests_until = now + min(REST_MAX, REST * 2.0 ** min(endpoint.rests, 30))
            endpoint.rests += 1
        self.refused(endpoint, after)

    def _free(self, avoid: Endpoint | None = None) -> Endpoint | None:
        now = self._loop.time()
        able = [e for e in self.all if e.room(now, self._cap)]
        if not able:
            return None
        return min(able, key=lambda e: (e is avoid, e.outstanding, e.index))

    def _leave(self, endpoint: Endpoint) -> None:
        endpoint.outstanding -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        """Give room to those who wait, in the order they came; wake again when a rest ends."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            free = self._free()
            if free is None:
                break
            free.outstanding += 1
            self._waiting.popleft().set_result(free)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        resting = [e.rests_until for e in self.all if e.rests_until > now]
        if self._waiting and resting:
            self._timer = self._loop.call_at(min(resting), self._hand_out)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
