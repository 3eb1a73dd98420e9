"""Journal: where one agent writes what happens to it. Numbers its events and stamps them with its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshheal.events import Event, EventId, Log


class Journal:
    """Events of one node. `incarnation` rises with each restart, so that event ids stay unique."""

    __slots__ = ("_log", "incarnation", "node", "now", "seq")

    def __init__(self, node: int, log: Log, now: Callable[[], float], incarnation: int = 0) -> None:
        self.node = node
        self.incarnation = incarnation
        self.seq = 0
        self._log = log
        self.now = now

    def next(self) -> int:
        """The number of the event that is about to be written."""
        self.seq += 1
        return self.seq

    def write(self, event: Event) -> EventId:
        """Write an event that was made by hand, numbered by `next`: faster than `add`. Returns its id."""
        self._log.write(event)
        return (self.node, self.incarnation, event.seq)

    def add(
        self, kind: type[Event], task: str = "", causes: tuple[EventId, ...] = (), step: int = 0, **fields: Any
    ) -> EventId:
        """Write one event of `kind` and return its id."""
        return self.write(
            kind(
                node=self.node,
                incarnation=self.incarnation,
                seq=self.next(),
                t=self.now(),
                task=task,
                step=step,
                causes=causes,
                **fields,
            )
        )

    def text(self, text: str) -> str:
        """Keep a long text in the log and return the id that events refer to it by."""
        return self._log.text(text)
