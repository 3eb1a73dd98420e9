"""What neighbours believed of each agent over the run: shares of its observers in each state, arrival by arrival."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from meshheal.events import AnyEvent, Event, State, StateChanged, Swapped, TaskArrived
from meshheal.types import AgentId

SHOWN: tuple[State, ...] = ("suspect", "excluded", "probation")


class Window(Struct):
    """Arrivals `at` <= i < `back` in which an agent was degraded; `back` None: until the end."""

    agent: AgentId
    at: int
    back: int | None = None


class States(Struct):
    """Per agent and state the steps of the share of its observers that hold it: (arrival, share from there on)."""

    steps: dict[AgentId, dict[State, list[tuple[int, float]]]] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    arrivals: int = 0


class StatesOverTime:
    """Fold. `watchers` are, per agent, the neighbours that share an ability with it."""

    def __init__(self, watchers: Sequence[Sequence[AgentId]]) -> None:
        self._watchers = [frozenset(w) for w in watchers]
        self._held: dict[AgentId, dict[AgentId, State]] = {}
        self._open: dict[AgentId, Window] = {}
        self._index = 0
        self.result = States(
            {a: {s: [(0, 0.0)] for s in SHOWN} for a in range(len(watchers))},
        )

    def __call__(self, event: Event | AnyEvent) -> None:
        match event:
            case TaskArrived(index=index):
                self._index = index
                self.result.arrivals = index + 1
            case Swapped(agent=agent, degraded=True, index=index):
                self._open[agent] = Window(agent, index)
                self.result.windows.append(self._open[agent])
            case Swapped(agent=agent, index=index) if agent in self._open:
                self._open.pop(agent).back = index
            case StateChanged(node=observer, agent=agent, ability="", to=state):
                self._moved(observer, agent, state)
            case _:
                pass

    def _moved(self, observer: AgentId, agent: AgentId, state: State) -> None:
        if observer not in self._watchers[agent]:
            return
        held = self._held.setdefault(agent, {})
        held[observer] = state
        for shown in SHOWN:
            steps = self.result.steps[agent][shown]
            share = sum(s == shown for s in held.values()) / len(self._watchers[agent])
            if steps[-1][0] == self._index:
                steps[-1] = (self._index, share)
            elif steps[-1][1] != share:
                steps.append((self._index, share))
