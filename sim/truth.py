"""The truth about a world, for methods that are marked as oracles."""

from __future__ import annotations

from collections.abc import Sequence

from meshheal.types import AgentId, Task
from sim.faults import AnyFault, Swap
from sim.workloads import AnswerSheet


class Truth:
    """The answer sheet and the schedule of swaps, as of arrival `index` (`meshheal.agent.Oracle`)."""

    def __init__(self, sheet: AnswerSheet, faults: Sequence[AnyFault]) -> None:
        self.index = -1
        self._sheet = sheet
        self._swaps = [f for f in faults if isinstance(f, Swap) and f.degraded]

    def correct(self, task: Task, value: str) -> bool:
        return self._sheet.correct(task, value)

    def degraded(self, agent: AgentId) -> bool:
        return any(s.agent == agent and s.at <= self.index < s.back for s in self._swaps)
