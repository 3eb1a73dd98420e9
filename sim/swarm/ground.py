"""What a checker knows besides the events: the drawn world. And what observers believe, folded from the log alone."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from meshheal.events import Event, EventId, Restarted, State, StateChanged
from meshheal.types import ANY, Ability, AgentId, TaskId


class Violation(Struct, frozen=True):
    """An invariant that did not hold: the check, what happened, and the events that show it."""

    check: str
    what: str
    events: tuple[EventId, ...] = ()
    task: TaskId = ""

    def line(self) -> str:
        """One line: check, description, task, events as node.incarnation.seq."""
        ids = ", ".join(".".join(map(str, e)) for e in self.events)
        return f"{self.check}: {self.what}" + f" [task {self.task}]" * bool(self.task) + f" (events {ids})" * bool(ids)


class Ground(Struct):
    """The truth about a world. `neighbours`, `abilities` by agent; `exact`: nothing is ever lost in it."""

    neighbours: Sequence[Sequence[AgentId]]
    abilities: Sequence[Sequence[Ability]]
    min_eligible: int = 1
    exact: bool = True
    patience: float = float("inf")
    """Seconds of a model call up to which certainly nobody stops waiting for it."""
    arrivals_per_beat: float = 1.0
    texts: dict[str, str] = field(default_factory=dict)
    """Texts of the log by id."""


class Views:
    """What every observer believes, as its own events tell it."""

    def __init__(self) -> None:
        self.states: dict[tuple[AgentId, AgentId], State] = {}
        """(observer, agent) -> state of the whole agent; absent: healthy."""
        self.partly: dict[tuple[AgentId, AgentId], set[Ability]] = {}
        """(observer, agent) -> abilities from which it alone is excluded."""

    def __call__(self, event: Event) -> None:
        if type(event) is StateChanged:
            pair = (event.node, event.agent)
            if event.ability:
                held = self.partly.setdefault(pair, set())
                (held.add if event.to == "excluded" else held.discard)(event.ability)
            else:
                self.states[pair] = event.to
                if "excluded" in (event.before, event.to):
                    self.partly.pop(pair, None)
        elif type(event) is Restarted:
            for pairs in (self.states, self.partly):
                for pair in [p for p in pairs if p[0] == event.agent]:
                    del pairs[pair]

    def excludes(self, observer: AgentId, agent: AgentId, ability: Ability) -> bool:
        """Whether the observer excludes the agent from an ability."""
        pair = (observer, agent)
        return self.states.get(pair) == "excluded" or ability in self.partly.get(pair, ())

    def excludes_all(self, observer: AgentId, agent: AgentId, abilities: Sequence[Ability]) -> bool:
        """Whether the observer excludes the agent from everything it is able to do."""
        return all(self.excludes(observer, agent, a) for a in abilities)

    def eligible(self, observer: AgentId, ability: Ability, ground: Ground) -> int:
        """Producers of an ability that the observer has left in its closed neighbourhood, itself included."""
        return sum(
            1
            for a in (observer, *ground.neighbours[observer])
            if (ability == ANY or ability in ground.abilities[a]) and not self.excludes(observer, a, ability)
        )
