"""What hosts send one another: parcels in batches, encoded, with bounded queues per destination."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from meshheal.network import Reply, Request
from meshheal.types import AgentId

HostId = int


class HostLost(Exception):
    """A host died or cannot be reached; what was on its way to it may or may not have been done."""


class Refused(Struct, frozen=True, tag=True):
    """The reply of an agent that could not do what it was asked, or was not there."""

    reason: str


class Missing(Struct, frozen=True, tag=True):
    """The reply to evidence for several agents: those that did not take it in."""

    agents: tuple[AgentId, ...] = ()


class Parcel(Struct, frozen=True, array_like=True, gc=False):
    """A request or reply. `id` names the request at its sending host; the reply carries the same."""

    id: int
    sender: AgentId
    to: tuple[AgentId, ...]
    """Receivers; empty in a reply."""
    body: Request | Reply | Refused | Missing


class Batch(Struct, frozen=True, array_like=True):
    """Parcels of one host for another. `t` is the sender's clock, which the receiver's never falls behind."""

    host: HostId
    incarnation: int
    t: float
    parcels: list[Parcel]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch)
_PLAIN, _PICKLED = b"m", b"p"


def encode(batch: Batch) -> bytes:
    """A batch as bytes. What MessagePack cannot hold (a lone surrogate in a model's text) goes as a pickle."""
    try:
        return _PLAIN + _encoder.encode(batch)
    except (UnicodeEncodeError, TypeError):
        return _PICKLED + pickle.dumps(batch)


def decode(data: bytes) -> Batch:
    """The batch in `data`, which comes from a host of the same run."""
    if data[:1] == _PICKLED:
        batch: Batch = pickle.loads(data[1:])
        return batch
    return _decoder.decode(memoryview(data)[1:])


class Outbox:
    """Parcels on their way to one host.

    Whatever gathers while a batch is under way (or for `linger` seconds) makes the next batch. `put` waits while `limit`
    parcels are unsent, so that a slow receiver slows its senders; replies are posted without waiting, so that two hosts
    that wait for one another go on.
    """

    def __init__(
        self,
        send: Callable[[list[Parcel]], Awaitable[None]],
        lost: Callable[[Sequence[Parcel]], None],
        *,
        limit: int = 4096,
        linger: float = 0.0,
        window: int = 4,
    ) -> None:
        """`send` carries a batch and returns once it is accepted; where it raises `HostLost`, `lost` is told the parcels."""
        self._send = send
        self._lost = lost
        self._limit = limit
        self._linger = linger
        self._window = window
        self._queue: deque[Parcel] = deque()
        self._room: deque[asyncio.Future[None]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._scheduled = False

    def __len__(self) -> int:
        """Parcels not sent yet."""
        return len(self._queue)

    async def put(self, parcel: Parcel) -> None:
        """Queue a request, once there is room."""
        while len(self._queue) >= self._limit:
            room = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room
        self.post(parcel)

    def post(self, parcel: Parcel) -> None:
        """Queue a parcel."""
        self._queue.append(parcel)
        if not self._scheduled and len(self._under_way) < self._window:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            if self._linger > 0:
                loop.call_later(self._linger, self._flush)
            else:
                loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        while self._queue and len(self._under_way) < self._window:
            queue = self._queue
            batch = [queue.popleft() for _ in range(min(len(queue), _BATCH))]
            task = asyncio.get_running_loop().create_task(self._carry(batch))
            self._under_way.add(task)
            task.add_done_callback(self._carried)
        while self._room and len(self._queue) < self._limit:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)

    async def _carry(self, batch: list[Parcel]) -> None:
        try:
            await self._send(batch)
        except HostLost:
            self._lost(batch)

    def _carried(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a batch could not be sent", "exception": error}
            )
        if self._queue and not self._scheduled:
            self._flush()

    def close(self) -> None:
        """Drop what is unsent."""
        self._queue.clear()
        for task in self._under_way:
            task.cancel()


_BATCH = 1024
"""Most parcels a batch holds."""


class Inbox:
    """Requests that a host took in, so that a copy of one gets the same reply and makes no second work."""

    def __init__(self, limit: int = 8192) -> None:
        self._limit = limit
        self._replies: dict[tuple[HostId, int, int], Any] = {}

    def first_time(self, key: tuple[HostId, int, int]) -> bool:
        """Whether the request with this key (host, incarnation, id) is new; it is then under way."""
        if key in self._replies:
            return False
        self._replies[key] = _UNDER_WAY
        if len(self._replies) > self._limit:
            del self._replies[next(iter(self._replies))]
        return True

    def replied(self, key: tuple[HostId, int, int], body: Any) -> None:
        if key in self._replies:
            self._replies[key] = body

    def reply(self, key: tuple[HostId, int, int]) -> Any:
        """The reply that was given; None while the request is under way: then one is still to come."""
        found = self._replies.get(key, _UNDER_WAY)
        return None if found is _UNDER_WAY else found


_UNDER_WAY = object()
