"""What must hold at every moment, each as a fold over the event log that says where it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from meshheal.events import (
    AgentFailed,
    Event,
    ModelCalled,
    ProducerAsked,
    StateChanged,
    TaskArrived,
    TaskGraded,
    TaskSettled,
)
from meshheal.types import AgentId, TaskId
from sim.swarm.checks import Check, LogCheck
from sim.swarm.ground import Ground, Views, Violation
from sim.swarm.scores import NobodyReviewsItself, ParseFailuresAreNoScores, ScoresBelongToProducers


class NoWorkForExcluded(LogCheck):
    """An observer gives no ordinary task to an agent that it excludes from the task's ability."""

    name = "no-work-for-excluded"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._views = Views()
        self._since: dict[tuple[AgentId, AgentId], Event] = {}

    def __call__(self, event: Event) -> None:
        self._views(event)
        if type(event) is StateChanged and event.to == "excluded":
            self._since[event.node, event.agent] = event
        elif type(event) is ProducerAsked:
            o, p = event.node, event.producer
            if event.state == "excluded" or self._views.excludes(o, p, event.ability):
                why = [self._since[o, p]] if (o, p) in self._since else []
                self.fail(f"agent {o} gave {event.ability!r} work to agent {p}, which it excludes", *why, event)


class ExclusionsLeaveProducers(LogCheck):
    """No exclusion leaves an observer fewer than `min_eligible` producers of an ability in its closed neighbourhood."""

    name = "exclusions-leave-producers"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._views = Views()

    def __call__(self, event: Event) -> None:
        self._views(event)
        if type(event) is not StateChanged or event.to != "excluded" or event.reason == "restored":
            return
        for ability in (event.ability,) if event.ability else self.ground.abilities[event.agent]:
            left = self._views.eligible(event.node, ability, self.ground)
            if left < self.ground.min_eligible:
                self.fail(
                    f"agent {event.node} excluded agent {event.agent} and has {left} producers of {ability!r} left "
                    f"(min_eligible {self.ground.min_eligible})",
                    event,
                )


class TokensAddUp(LogCheck):
    """A task's own figure is never above what its calls took, and equal where nothing is lost; and so is the total."""

    name = "tokens-add-up"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._spent: Counter[TaskId] = Counter()
        self._calls: Counter[TaskId] = Counter()
        self._total = self._probing = 0
        self._slow: set[TaskId] = set()
        """Tasks with a call that failed or came near its timeout: who asked may have stopped waiting."""
        self._settled: list[TaskSettled] = []

    def __call__(self, event: Event) -> None:
        if type(event) is ModelCalled:
            self._total += event.usage.total
            if event.probing:
                self._probing += event.usage.total
            else:
                self._spent[event.task] += event.usage.total
                self._calls[event.task] += 1
                if event.failure or event.latency > self.ground.patience:
                    self._slow.add(event.task)
        elif type(event) is TaskSettled:
            self._settled.append(event)

    def finish(self) -> None:
        for event in self._settled:
            exact = self.ground.exact and event.task not in self._slow
            spent, calls = self._spent[event.task], self._calls[event.task]
            if event.usage.total > spent or (exact and event.usage.total != spent):
                self.fail(f"the task says {event.usage.total} tokens, its calls took {spent}", event)
            if event.calls > calls or (exact and event.calls != calls):
                self.fail(f"the task says {event.calls} calls, there were {calls}", event)
        ledger = sum(e.usage.total for e in self._settled) + self._probing
        exact = self.ground.exact and not self._slow
        if ledger > self._total or (exact and ledger != self._total):
            self.fail(f"tasks and probes come to {ledger} tokens, all calls to {self._total}")


class EachTaskEndsOnce(LogCheck):
    """Every task that arrived has exactly one outcome and one grade; nothing else has."""

    name = "each-task-ends-once"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._arrived: dict[TaskId, TaskArrived] = {}
        self._ends: dict[TaskId, list[Event]] = {}
        self._grades: dict[TaskId, list[Event]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case TaskArrived():
                self._arrived[event.task] = event
            case TaskSettled():
                self._ends.setdefault(event.task, []).append(event)
            case TaskGraded():
                self._grades.setdefault(event.task, []).append(event)
            case _:
                pass

    def finish(self) -> None:
        for task, arrival in self._arrived.items():
            for what, found in (("outcomes", self._ends), ("grades", self._grades)):
                ends = found.get(task, [])
                if len(ends) != 1:
                    self.fail(f"the task has {len(ends)} {what}", arrival, *ends)
        for task in [t for t in self._ends if t not in self._arrived]:
            self.fail("a task ended that never arrived", *self._ends[task])


class NobodyFails(LogCheck):
    """No exception escapes an agent's code."""

    name = "nobody-fails"

    def __call__(self, event: Event) -> None:
        if type(event) is AgentFailed:
            self.fail(event.error, event)


SAFETY: tuple[Callable[[Ground], Check], ...] = (
    NoWorkForExcluded,
    NobodyReviewsItself,
    ScoresBelongToProducers,
    ExclusionsLeaveProducers,
    TokensAddUp,
    EachTaskEndsOnce,
    ParseFailuresAreNoScores,
    NobodyFails,
)


def safety(ground: Ground, events: Iterable[Event]) -> list[Violation]:
    """Everything in a log that must not be."""
    checks = [make(ground) for make in SAFETY]
    for event in events:
        for check in checks:
            check(event)
    for check in checks:
        check.finish()
    return [v for check in checks for v in check.found]
