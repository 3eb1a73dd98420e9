"""What observers expected of the scores they took: no event tells it, and an oracle is to have the same references."""

from __future__ import annotations

from typing import Any

from meshheal.beliefs import Beliefs, Finding
from meshheal.types import AgentId, ReviewRecord

Notes = dict[AgentId, dict[str, float]]
"""By observer and record: the expected score, fixed before the score was seen. None without a reference."""


class Noting(Beliefs):
    """Judges as always, and writes down what it expected."""

    def __init__(self, notes: Notes, me: AgentId, *args: Any) -> None:
        super().__init__(me, *args)
        self._notes = notes.setdefault(me, {})

    def observe(self, record: ReviewRecord) -> list[Finding]:
        expected = self.expected(record) if record.producer in self.opinions else None
        if expected is not None:
            self._notes[record.id] = expected
        return super().observe(record)
