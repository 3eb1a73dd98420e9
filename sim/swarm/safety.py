"""What must hold at every moment, each as a fold over the event log that says where it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from meshheal import prompts
from meshheal.events import (
    AgentFailed,
    Answered,
    CommitteeMet,
    Event,
    EventId,
    EvidenceShared,
    FirstLook,
    ModelCalled,
    Probed,
    ProducerAsked,
    StateChanged,
    TaskArrived,
    TaskGraded,
    TaskSettled,
    TookOver,
)
from meshheal.types import AgentId, Score, TaskId
from sim.swarm.ground import Ground, Views, Violation

_CLOSE = 1e-9


class Check(Protocol):
    """Reads a log event by event; `found` are its violations, complete after `finish`."""

    found: list[Violation]

    def __call__(self, event: Event) -> None: ...

    def finish(self) -> None: ...


class _Check:
    name = ""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.found: list[Violation] = []

    def fail(self, what: str, *events: EventId, task: TaskId = "") -> None:
        self.found.append(Violation(self.name, what, events, task))

    def finish(self) -> None: ...


class NoWorkForExcluded(_Check):
    """An observer gives no ordinary task to an agent that it excludes from the task's ability."""

    name = "no-work-for-excluded"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._views = Views()
        self._since: dict[tuple[AgentId, AgentId], EventId] = {}

    def __call__(self, event: Event) -> None:
        self._views(event)
        if type(event) is StateChanged and event.to == "excluded":
            self._since[event.node, event.agent] = event.id
        elif type(event) is ProducerAsked:
            o, p = event.node, event.producer
            if event.state == "excluded" or self._views.excludes(o, p, event.ability):
                why = [self._since[o, p]] if (o, p) in self._since else []
                self.fail(f"agent {o} gave {event.ability!r} work to agent {p}, which it excludes", *why, event.id, task=event.task)


class NobodyReviewsItself(_Check):
    """No agent scores its own output, alone, in a committee, or of a probe."""

    name = "nobody-reviews-itself"

    def __call__(self, event: Event) -> None:
        match event:
            case ModelCalled() if event.purpose in ("review", "deliberate") and event.node == event.subject:
                self.fail(f"agent {event.node} was asked to review its own output", event.id, task=event.task)
            case FirstLook() if event.reviewer == event.producer:
                self.fail(f"the first look at agent {event.producer} was its own", event.id, task=event.task)
            case CommitteeMet() if event.producer in event.members:
                self.fail(f"agent {event.producer} sat in the committee on its own output", event.id, task=event.task)
            case EvidenceShared() if event.record.producer in event.record.reviewers:
                self.fail(f"a record says that agent {event.record.producer} reviewed itself", event.id, task=event.task)
            case _:
                pass


class ScoresBelongToProducers(_Check):
    """A record names who produced the output that was scored, and carries the score that was given to it."""

    name = "scores-belong-to-producers"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._wrote: set[tuple[TaskId, AgentId, str]] = set()
        self._answers: dict[tuple[AgentId, TaskId], list[Answered]] = {}
        self._looks: dict[tuple[AgentId, TaskId], list[FirstLook]] = {}
        self._probes: dict[tuple[AgentId, TaskId], list[Probed]] = {}

    def __call__(self, event: Event) -> None:
        key = (event.node, event.task)
        match event:
            case ModelCalled() if event.purpose in ("produce", "probe"):
                self._wrote.add((event.task, event.node, event.purpose))
            case Answered():
                self._answers.setdefault(key, []).append(event)
                self._must_have_written(event, event.producer, "produce")
            case FirstLook():
                self._looks.setdefault(key, []).append(event)
                self._must_have_answered(event, event.producer)
            case CommitteeMet() | TookOver():
                self._must_have_answered(event, event.producer)
            case Probed():
                self._probes.setdefault(key, []).append(event)
                if event.score is not None:
                    self._must_have_written(event, event.agent, "probe")
            case EvidenceShared():
                self._shared(event)
            case _:
                pass

    def _must_have_written(self, event: Event, agent: AgentId, purpose: str) -> None:
        if (event.task, agent, purpose) not in self._wrote:
            self.fail(f"agent {agent} is credited with an output it did not write", event.id, task=event.task)

    def _must_have_answered(self, event: Event, agent: AgentId) -> None:
        answers = self._answers.get((event.node, event.task), [])
        if agent not in [a.producer for a in answers]:
            self.fail(
                f"agent {agent} is judged for an output of others", *[a.id for a in answers[-1:]], event.id, task=event.task
            )

    def _shared(self, event: EvidenceShared) -> None:
        record, key = event.record, (event.node, event.task)
        if record.coordinator != event.node:
            self.fail(f"agent {event.node} shares a record in the name of {record.coordinator}", event.id, task=event.task)
        if record.channel == "first_look":
            looks = self._looks.get(key, [])
            fits = [f for f in looks if f.producer == record.producer and f.scores and _mean(f.scores, record.score)]
            source: tuple[EventId, ...] = tuple(f.id for f in looks[-1:])
        else:
            probes = self._probes.get(key, [])
            fits = [p for p in probes if p.agent == record.producer and p.score is not None and abs(p.score - record.score) < _CLOSE]  # type: ignore[misc]
            source = tuple(p.id for p in probes[-1:])
        if not fits:
            self.fail(
                f"the record gives {record.score:.3g} to agent {record.producer}, which nobody gave it", *source, event.id,
                task=event.task,
            )


def _mean(scores: Iterable[float], value: float) -> bool:
    scores = list(scores)
    return abs(sum(scores) / len(scores) - value) < _CLOSE


class ExclusionsLeaveProducers(_Check):
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
                    f"(min_eligible {self.ground.min_eligible})", event.id, task=event.task,
                )


class TokensAddUp(_Check):
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
                self.fail(f"the task says {event.usage.total} tokens, its calls took {spent}", event.id, task=event.task)
            if event.calls > calls or (exact and event.calls != calls):
                self.fail(f"the task says {event.calls} calls, there were {calls}", event.id, task=event.task)
        ledger = sum(e.usage.total for e in self._settled) + self._probing
        exact = self.ground.exact and not self._slow
        if ledger > self._total or (exact and ledger != self._total):
            self.fail(f"tasks and probes come to {ledger} tokens, all calls to {self._total}")


class EachTaskEndsOnce(_Check):
    """Every task that arrived has exactly one outcome and one grade; nothing else has."""

    name = "each-task-ends-once"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._arrived: dict[TaskId, TaskArrived] = {}
        self._ends: dict[TaskId, list[EventId]] = {}
        self._grades: dict[TaskId, list[EventId]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case TaskArrived():
                self._arrived[event.task] = event
            case TaskSettled():
                self._ends.setdefault(event.task, []).append(event.id)
            case TaskGraded():
                self._grades.setdefault(event.task, []).append(event.id)
            case _:
                pass

    def finish(self) -> None:
        for task, arrival in self._arrived.items():
            for what, found in (("outcomes", self._ends), ("grades", self._grades)):
                ids = found.get(task, [])
                if len(ids) != 1:
                    self.fail(f"the task has {len(ids)} {what}", arrival.id, *ids, task=task)
        for task in [t for t in self._ends if t not in self._arrived]:
            self.fail("a task ended that never arrived", *self._ends[task], task=task)


class ParseFailuresAreNoScores(_Check):
    """Every score in a first look or a committee stands in a reply of that reviewer that parses to just that score."""

    name = "parse-failures-are-no-scores"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._said: dict[tuple[TaskId, AgentId, AgentId, bool], list[tuple[float, EventId]]] = {}
        """(task, subject, reviewer, probing) -> scores that could be read in its replies."""
        self._looked: dict[tuple[TaskId, AgentId, AgentId], float] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case ModelCalled() if event.purpose in ("review", "deliberate"):
                key = (event.task, event.subject, event.node, event.probing)
                for text in event.replies:
                    read = prompts.read_review(self.ground.texts[text])
                    if isinstance(read, Score):
                        self._said.setdefault(key, []).append((read.value, event.id))
            case FirstLook() if event.scores and event.reviewer >= 0:
                for score in event.scores:
                    self._must_be_said(event, event.producer, event.reviewer, score)
                self._looked[event.task, event.producer, event.reviewer] = sum(event.scores) / len(event.scores)
            case FirstLook() if any(event.scores):
                self.fail("a first look without a reviewer has a score above 0", event.id, task=event.task)
            case CommitteeMet():
                for scores in (event.scores, event.deliberated):
                    for member, score in zip(event.members, scores, strict=bool(scores)):
                        if score is not None and score != self._looked.get((event.task, event.producer, member)):
                            self._must_be_said(event, event.producer, member, score)
            case _:
                pass

    def _must_be_said(self, event: Event, producer: AgentId, reviewer: AgentId, score: float) -> None:
        said = self._said.get((event.task, producer, reviewer, False), [])
        if not any(abs(score - value) < _CLOSE for value, _ in said):
            self.fail(
                f"agent {reviewer} is said to have scored {score:g}, its readable replies say "
                f"{[v for v, _ in said] or 'nothing'}", *[i for _, i in said[-1:]], event.id, task=event.task,
            )


class NobodyFails(_Check):
    """No exception escapes an agent's code."""

    name = "nobody-fails"

    def __call__(self, event: Event) -> None:
        if type(event) is AgentFailed:
            self.fail(event.error, event.id, task=event.task)


SAFETY: tuple[Callable[[Ground], Check], ...] = (
    NoWorkForExcluded, NobodyReviewsItself, ScoresBelongToProducers, ExclusionsLeaveProducers, TokensAddUp,
    EachTaskEndsOnce, ParseFailuresAreNoScores, NobodyFails,
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
