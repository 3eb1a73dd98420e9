"""What a host and the others say to one another: requests by id, each served once, and their replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from meshheal.errors import NetworkError
from meshheal.types import AgentId
from sim.harness import HARNESS_ERRORS
from sim.wire import Batch, HostId, HostLost, Inbox, Outbox, Parcel, Refused

Post = Callable[[HostId, Batch], Awaitable[None]]
"""Carries a batch to another host; returns once it is accepted there, raises `HostLost` where it will not be."""


class Exchange:
    """One host's correspondence with the others.

    A request is served once however often it arrives; a reply that was lost with its host is a `NetworkError` for whoever
    waits.
    """

    def __init__(
        self,
        id: HostId,
        incarnation: int,
        now: Callable[[], float],
        post: Post | None,
        start: Callable[[AgentId, Coroutine[Any, Any, None]], object],
        answer: Callable[[Parcel], Awaitable[Any]],
    ) -> None:
        """`post` reaches the other hosts (None: there are none), `start` starts work that dies with an agent, `answer` serves a
        request; what it raises ends the run.
        """
        self._id = id
        self._incarnation = incarnation
        self._now = now
        self._post = post
        self._start = start
        self._answer = answer
        self._asked = 0
        self._pending: dict[int, tuple[HostId, asyncio.Future[Any]]] = {}
        self._outboxes: dict[HostId, Outbox] = {}
        self._inbox = Inbox()
        self._known: dict[HostId, int] = {}

    async def ask(self, sender: AgentId, host: HostId, to: tuple[AgentId, ...], message: Any, timeout: float) -> Any:
        """Send a request to another host and wait for its reply."""
        self._asked = id = self._asked + 1
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._pending[id] = (host, reply)
        late = loop.call_later(timeout, _expire, reply, f"agent {to[0]} did not reply within {timeout} s")
        try:
            await self._outbox(host).put(Parcel(id, sender, to, message))
            body = await reply
        finally:
            late.cancel()
            self._pending.pop(id, None)
        if isinstance(body, Refused):
            raise NetworkError(body.reason)
        return body

    def _outbox(self, host: HostId) -> Outbox:
        """Where parcels for another host gather."""
        found = self._outboxes.get(host)
        if found is None:
            found = self._outboxes[host] = Outbox(
                lambda parcels: self._send(host, parcels), lambda parcels: self._undelivered(host, parcels)
            )
        return found

    async def _send(self, host: HostId, parcels: list[Parcel]) -> None:
        if self._post is None:
            raise HostLost(f"host {host} is not to be reached from here")
        await self._post(host, Batch(self._id, self._incarnation, self._now(), parcels))

    def _undelivered(self, host: HostId, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            if parcel.to and parcel.id in self._pending:
                reply = self._pending[parcel.id][1]
                if not reply.done():
                    reply.set_result(Refused(f"host {host} cannot be reached"))

    def deliver(self, batch: Batch) -> None:
        """Take in what another host sent: replies at once, requests as work of their own."""
        if batch.incarnation > self._known.setdefault(batch.host, batch.incarnation):
            self._known[batch.host] = batch.incarnation
            self.lost(batch.host)
        for parcel in batch.parcels:
            if not parcel.to:
                found = self._pending.get(parcel.id)
                if found is not None and not found[1].done():
                    found[1].set_result(parcel.body)
                continue
            key = (batch.host, batch.incarnation, parcel.id)
            if self._inbox.first_time(key):
                self._start(parcel.to[0], self._reply(batch.host, key, parcel))
            elif (body := self._inbox.reply(key)) is not None:
                self._outbox(batch.host).post(Parcel(parcel.id, parcel.sender, (), body))

    async def _reply(self, host: HostId, key: tuple[HostId, int, int], parcel: Parcel) -> None:
        try:
            body = await self._answer(parcel)
        except HARNESS_ERRORS:
            return  # the run ends: the host's `broken` says why
        self._inbox.replied(key, body)
        self._outbox(host).post(Parcel(parcel.id, parcel.sender, (), body))

    def lost(self, host: HostId) -> None:
        """Another host died: what was asked of it will not be answered."""
        for id, (asked, reply) in list(self._pending.items()):
            if asked == host and not reply.done():
                reply.set_result(Refused(f"host {host} was lost"))
                del self._pending[id]

    def close(self) -> None:
        """Drop what is unsent."""
        for box in self._outboxes.values():
            box.close()


def _expire(reply: asyncio.Future[Any], reason: str) -> None:
    if not reply.done():
        reply.set_result(Refused(reason))
