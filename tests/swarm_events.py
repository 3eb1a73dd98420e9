"""Events written by hand, and the ground truth they are judged by, for the tests of the swarm's checks."""

from __future__ import annotations

from typing import Any

from meshheal.events import Event, EventId, EvidenceShared, ModelCalled
from meshheal.types import ReviewRecord
from sim.swarm.ground import Ground


class Writer:
    """Writes events by hand, numbered as an agent's journal does."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.texts: dict[str, str] = {}

    def add(self, kind: type[Event], node: int = -1, **fields: Any) -> EventId:
        event = kind(node=node, seq=len(self.events) + 1, t=float(len(self.events)), **fields)
        self.events.append(event)
        return event.id

    def called(self, node: int, purpose: str, subject: int, *replies: str, task: str = "t", **fields: Any) -> EventId:
        for reply in replies:
            self.texts[reply] = reply
        return self.add(
            ModelCalled,
            node,
            task=task,
            model="m",
            purpose=purpose,
            subject=subject,
            n=0,
            prompt=(),
            prompt_hash="",
            replies=replies,
            **fields,
        )

    def share(
        self, coordinator: int, producer: int, score: float, task: str = "t", to: tuple[int, ...] = (), **fields: Any
    ) -> EventId:
        told = {"channel": "first_look", "score": score, "reviewers": (), "coordinator": coordinator, "time": 0.0}
        record = ReviewRecord(
            id=f"{coordinator}.{len(self.events)}",
            task=task,
            producer=producer,
            ability="a",
            kind="",
            **{**told, **fields},
        )
        return self.add(EvidenceShared, coordinator, task=task, record=record, to=to)


def ground(**fields: Any) -> Ground:
    """Four agents that all know one another and hold the abilities a and b."""
    made = Ground([[b for b in range(4) if b != a] for a in range(4)], [("a", "b")] * 4)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
