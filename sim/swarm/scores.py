"""Whose scores they are, who gave them, and whether they were given at all."""

from __future__ import annotations

from collections.abc import Iterable

from meshheal import prompts
from meshheal.events import (
    Answered,
    CommitteeMet,
    Event,
    EvidenceShared,
    FirstLook,
    ModelCalled,
    Probed,
    TookOver,
)
from meshheal.types import AgentId, Score, TaskId
from sim.swarm.checks import LogCheck
from sim.swarm.ground import Ground

_CLOSE = 1e-9


class NobodyReviewsItself(LogCheck):
    """No agent scores its own output, alone, in a committee, or of a probe."""

    name = "nobody-reviews-itself"

    def __call__(self, event: Event) -> None:
        match event:
            case ModelCalled() if event.purpose in ("review", "deliberate") and event.node == event.subject:
                self.fail(f"agent {event.node} was asked to review its own output", event)
            case FirstLook() if event.reviewer == event.producer:
                self.fail(f"the first look at agent {event.producer} was its own", event)
            case CommitteeMet() if event.producer in event.members:
                self.fail(f"agent {event.producer} sat in the committee on its own output", event)
            case EvidenceShared() if event.record.producer in event.record.reviewers:
                self.fail(f"a record says that agent {event.record.producer} reviewed itself", event)
            case _:
                pass


class ScoresBelongToProducers(LogCheck):
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
            self.fail(f"agent {agent} is credited with an output it did not write", event)

    def _must_have_answered(self, event: Event, agent: AgentId) -> None:
        answers = self._answers.get((event.node, event.task), [])
        if agent not in [a.producer for a in answers]:
            self.fail(f"agent {agent} is judged for an output of others", *answers[-1:], event)

    def _shared(self, event: EvidenceShared) -> None:
        record, key = event.record, (event.node, event.task)
        if record.coordinator != event.node:
            self.fail(f"agent {event.node} shares a record in the name of {record.coordinator}", event)
        if record.channel == "first_look":
            looks = self._looks.get(key, [])
            source: list[Event] = list(looks[-1:])
            fits = any(f.producer == record.producer and f.scores and _mean(f.scores, record.score) for f in looks)
        else:
            probes = self._probes.get(key, [])
            source = list(probes[-1:])
            fits = any(
                p.agent == record.producer and p.score is not None and _mean((p.score,), record.score) for p in probes
            )
        if not fits:
            what = f"the record gives {record.score:.3g} to agent {record.producer}, which nobody gave it"
            self.fail(what, *source, event)


def _mean(scores: Iterable[float], value: float) -> bool:
    scores = list(scores)
    return abs(sum(scores) / len(scores) - value) < _CLOSE


class ParseFailuresAreNoScores(LogCheck):
    """Every score in a first look or a committee stands in a reply of that reviewer that parses to just that score."""

    name = "parse-failures-are-no-scores"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._said: dict[tuple[TaskId, AgentId, AgentId, bool], list[tuple[float, Event]]] = {}
        """(task, subject, reviewer, probing) -> scores that could be read in its replies."""
        self._looked: dict[tuple[TaskId, AgentId, AgentId], float] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case ModelCalled() if event.purpose in ("review", "deliberate"):
                key = (event.task, event.subject, event.node, event.probing)
                for text in event.replies:
                    read = prompts.read_review(self.ground.texts[text])
                    if isinstance(read, Score):
                        self._said.setdefault(key, []).append((read.value, event))
            case FirstLook() if event.scores and event.reviewer >= 0:
                for score in event.scores:
                    self._must_be_said(event, event.producer, event.reviewer, score)
                self._looked[event.task, event.producer, event.reviewer] = sum(event.scores) / len(event.scores)
            case FirstLook() if any(event.scores):
                self.fail("a first look without a reviewer has a score above 0", event)
            case CommitteeMet():
                votes = [*zip(event.members, event.scores, strict=True)]
                votes += zip(event.members, event.deliberated, strict=bool(event.deliberated))
                for member, vote in votes:
                    if vote is not None and vote != self._looked.get((event.task, event.producer, member)):
                        self._must_be_said(event, event.producer, member, vote)
            case _:
                pass

    def _must_be_said(self, event: Event, producer: AgentId, reviewer: AgentId, score: float) -> None:
        said = self._said.get((event.task, producer, reviewer, False), [])
        if not any(abs(score - value) < _CLOSE for value, _ in said):
            self.fail(
                f"agent {reviewer} is said to have scored {score:g}, its readable replies say "
                f"{[v for v, _ in said] or 'nothing'}",
                *[i for _, i in said[-1:]],
                event,
            )
