"""How far a run is: tasks, tokens, beliefs. Light enough to be read while it goes on."""

from __future__ import annotations

from meshheal.events import Event, ModelCalled, StateChanged, TaskGraded
from meshheal.types import AgentId


class Progress:
    """Fold: tasks ended and right, model calls and tokens, and which agents are excluded by anybody."""

    def __init__(self) -> None:
        self.tasks = 0
        self.right = 0
        self.tokens = 0
        self.calls = 0
        self._excluders: dict[AgentId, set[AgentId]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, ModelCalled):
            self.tokens += event.usage.total
            self.calls += 1
        elif isinstance(event, TaskGraded):
            self.tasks += 1
            self.right += event.correct is True
        elif isinstance(event, StateChanged) and not event.ability:
            by = self._excluders.setdefault(event.agent, set())
            (by.add if event.to == "excluded" else by.discard)(event.node)

    @property
    def excluded(self) -> tuple[AgentId, ...]:
        """Agents that at least one neighbour excludes now."""
        return tuple(sorted(a for a, by in self._excluders.items() if by))
