"""What a check of the event log looks like."""

from __future__ import annotations

from typing import Protocol

from meshheal.events import Event
from sim.swarm.ground import Ground, Violation


class Check(Protocol):
    """Reads a log event by event; `found` are its violations, complete after `finish`."""

    found: list[Violation]

    def __call__(self, event: Event) -> None: ...

    def finish(self) -> None: ...


class LogCheck:
    """A check under its name, told the ground truth."""

    name = ""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.found: list[Violation] = []

    def fail(self, what: str, *events: Event) -> None:
        """A violation, shown by `events`; the last of them is the one that should not be."""
        task = events[-1].task if events else ""
        self.found.append(Violation(self.name, what, tuple(e.id for e in events), task))

    def finish(self) -> None: ...
