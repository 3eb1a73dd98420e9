"""The truth about a world, for methods that are marked as oracles."""

from __future__ import annotations

from meshheal.types import AgentId, Task
from sim.workloads import AnswerSheet


class Truth:
    """The answer sheet, and who runs on a worse model now, as the runtime tells it (`meshheal.agent.Oracle`)."""

    def __init__(self, sheet: AnswerSheet) -> None:
        self._sheet = sheet
        self._degraded: set[AgentId] = set()

    def swapped(self, agent: AgentId, degraded: bool) -> None:
        """An agent's backend was swapped, or swapped back."""
        (self._degraded.add if degraded else self._degraded.discard)(agent)

    def correct(self, task: Task, value: str) -> bool:
        return self._sheet.correct(task, value)

    def degraded(self, agent: AgentId) -> bool:
        return agent in self._degraded
