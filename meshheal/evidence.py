"""Review records on their way: dropped when seen before, sent again until acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshheal.config import Evidence
from meshheal.events import EventId
from meshheal.network import Network, Tell
from meshheal.types import AgentId, ReviewRecord


class Seen:
    """Ids of the last records an agent took in; a record counts once however often it arrives."""

    __slots__ = ("_ids", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids: dict[str, None] = {}

    def first_time(self, record: ReviewRecord) -> bool:
        ids = self._ids
        if record.id in ids:
            return False
        ids[record.id] = None
        if len(ids) > self._limit:
            del ids[next(iter(ids))]
        return True

    def state(self) -> Any:
        return list(self._ids)

    def restore(self, state: Any) -> None:
        self._ids = dict.fromkeys(state)


class Outbox:
    """Sends records at least once: the first time while the sender waits, then in the background with doubled waits."""

    __slots__ = ("_given_up", "_network", "_settings")

    def __init__(self, settings: Evidence, network: Network, given_up: Callable[[ReviewRecord, AgentId], None]) -> None:
        self._settings = settings
        self._network = network
        self._given_up = given_up

    async def share(self, record: ReviewRecord, to: Sequence[AgentId], cause: EventId) -> None:
        """Returns once all have acknowledged, or the first wait is over."""
        message = Tell((record,), cause)
        missing = await self._network.tell(to, message, self._settings.ack_timeout)
        if missing:
            self._network.spawn(self._insist(message, missing), patient=True)

    async def _insist(self, message: Tell, missing: list[AgentId]) -> None:
        wait = self._settings.ack_timeout
        for _ in range(self._settings.attempts - 1):
            await self._network.sleep(wait)
            missing = await self._network.tell(missing, message, self._settings.ack_timeout)
            if not missing:
                return
            wait *= 2
        for agent in missing:
            self._given_up(message.records[0], agent)
