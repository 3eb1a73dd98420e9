"""The way back: the reference bank, who probes whom and when, and the alarm for a group that falls together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any

from msgspec import Struct

from meshheal.config import Recovery
from meshheal.detector import EDetector
from meshheal.reference import Tally
from meshheal.rng import Stream, mix
from meshheal.types import ANY, Ability, AgentId, ReviewRecord, Task


class Reference(Struct):
    """A settled task whose answer is trusted: two model families (or, where there are not three, two agents) agreed.

    `answered` are the agents that have seen the task; those that had when it became a reference `helped` to settle it, and
    are never probed with it.
    """

    task: Task
    value: str
    families: tuple[str, ...]
    answered: tuple[AgentId, ...]
    beat: int
    tranche: bool = False
    helped: tuple[AgentId, ...] = ()


class Candidate(Struct):
    """A task one coordinated that may yet become a reference: when two agents, of two families, answer it alike.

    `values` are the answers given so far, `answered` all that have seen the task, `disputed` the families of reviewers
    that rejected the producer's answer and so would not agree with it.
    """

    task: Task
    values: tuple[tuple[AgentId, str], ...]
    answered: tuple[AgentId, ...]
    disputed: tuple[str, ...] = ()


class Bank:
    """References one agent gathered as a coordinator, bounded in number and age. The first ones are frozen as a tranche.

    `mixed` tells whether an ability is held by two other families than a given one. Then references by these alone are
    asked; else that cannot be had, and the agreement of any two agents must do.
    """

    def __init__(self, settings: Recovery, mixed: Callable[[Ability, str], bool]) -> None:
        self._settings = settings
        self._mixed = mixed
        self._references: list[Reference] = []
        self._tranche = 0

    def __len__(self) -> int:
        return len(self._references)

    def add(self, reference: Reference) -> None:
        reference.helped = reference.answered
        if self._tranche < self._settings.tranche:
            reference.tranche = True
            self._tranche += 1
        self._references.append(reference)
        if len(self._references) > self._settings.bank_size + self._tranche:
            oldest = next(i for i, r in enumerate(self._references) if not r.tranche)
            del self._references[oldest]

    def pick(
        self, agent: AgentId, family: str, abilities: Iterable[Ability], beat: int, draws: Stream, tranche: bool = False
    ) -> Reference | None:
        """A reference the agent may be probed with, drawn at random; one by other families where there is one.

        `tranche` asks for a frozen one (which may be asked again once all of them have been).
        """
        references, oldest, allowed = self._references, beat - self._settings.bank_age, set(abilities)
        n = len(references)
        if not n:
            return None
        start, second, again = draws.index(n), None, None
        for i in range(n):
            r = references[start - n + i]
            if r.task.ability not in allowed and r.task.ability != ANY:
                continue
            if not r.tranche if tranche else r.beat < oldest:
                continue
            own = family in r.families
            if (own or len(r.families) < 2) and self._mixed(r.task.ability, family):
                continue
            if agent in r.answered:
                if tranche and again is None and agent not in r.helped:
                    again = r
            elif not own:
                return r
            elif second is None:
                second = r
        return second or again

    def state(self) -> Any:
        return [
            [r.task, r.value, list(r.families), list(r.answered), r.beat, r.tranche, list(r.helped)]
            for r in self._references
        ]

    def restore(self, state: Any) -> None:
        self._references = [
            Reference(task, value, tuple(families), tuple(answered), beat, tranche, tuple(helped))
            for task, value, families, answered, beat, tranche, helped in state
        ]
        self._tranche = sum(r.tranche for r in self._references)


def on_duty(agent: AgentId, epoch: int, candidates: Sequence[AgentId]) -> AgentId:
    """The one neighbour that probes `agent` in this epoch: rendezvous hash over `candidates`, whatever they believe."""
    draw = mix(agent + 1, epoch)
    return max(candidates, key=lambda c: (mix(draw, c), c))


class Schedule:
    """When an excluded agent is probed next, in beats. All its neighbours keep the same one, from the same records."""

    __slots__ = ("_interval", "_settings", "due", "hopeful")

    def __init__(self, settings: Recovery, beat: int) -> None:
        self._settings = settings
        self._interval = settings.probe_every
        self.due = beat + max(1, ceil(self._interval))
        self.hopeful = False
        """The last probe passed: worth making a reference for the next."""

    def probed(self, passed: bool, beat: int) -> None:
        """A failure backs off; a pass is followed up at once, since it may be the first sign of recovery."""
        s = self._settings
        self.hopeful = passed
        if passed:
            self._interval = s.probe_every
            self.due = beat + 1
        else:
            self._interval = min(self._interval * s.backoff, s.backoff_max)
            self.due = beat + max(1, ceil(self._interval))

    def state(self) -> Any:
        return [self._interval, self.due, self.hopeful]

    def restore(self, state: Any) -> None:
        self._interval, self.due, self.hopeful = state


class GroupAlarm(Struct, frozen=True):
    """A group does worse on its frozen references than it did when they were new."""

    group: tuple[AgentId, ...]
    expected: float
    observed: float
    evidence: float


class _Fall(Struct):
    """What stands against one agent on its own: the test of its scores, and their sum since it began to rise."""

    test: EDetector
    since: Tally


class GroupWatch:
    """Reads tranche probes of all neighbours together: peers that fall together hide from one another, not from the past.

    The few that did worst until then, as many as are a minority, are left out of the test: a suspect is probed more than
    others, and what one or two do must not speak for the group. Whom the test hears is settled before the score is seen, so that its
    bound on false alarms holds.
    """

    def __init__(self, settings: Recovery) -> None:
        self._settings = settings
        self._learnt = Tally()
        self._test = EDetector(_GROUP_BETS, settings.correlated_drop)
        self._falls: dict[AgentId, _Fall] = {}
        self._heard: set[AgentId] = set()
        self.raised = False

    def observe(self, record: ReviewRecord) -> GroupAlarm | None:
        """Take a tranche probe; an alarm once, until the group is well again."""
        s = self._settings
        self._heard.add(record.producer)
        if self._learnt.n < s.tranche:
            self._learnt.add(record.score, float("inf"))
            return None
        expected = self._learnt.total / self._learnt.n
        left_out = record.producer in self._worst()
        self._count(record, expected)
        if left_out:
            return None
        evidence = self._test.update(record.score, expected)
        if evidence <= 1.0:
            self.raised = False
            return None
        if self.raised or evidence < s.correlated_at:
            return None
        low = sorted(a for a, f in self._falls.items() if f.since.total / f.since.n < expected - s.correlated_drop / 2)
        if len(low) < 2 or 2 * len(low) < len(self._heard):
            return None
        self.raised = True
        n = sum(self._falls[a].since.n for a in low)
        observed = sum(self._falls[a].since.total for a in low) / n
        return GroupAlarm(tuple(low), expected, observed, evidence)

    def _worst(self) -> list[AgentId]:
        """Those with most evidence against them: fewer than half of the group."""
        order = sorted(self._falls, key=lambda a: (-self._falls[a].test.evidence, a))
        return order[: (len(self._heard) - 1) // 2]

    def _count(self, record: ReviewRecord, expected: float) -> None:
        """An agent that does as it should has no entry: nothing stands against it."""
        fall = self._falls.get(record.producer)
        if fall is None:
            fall = _Fall(EDetector(_GROUP_BETS, self._settings.correlated_drop), Tally())
        if fall.test.update(record.score, expected) <= 1.0:
            self._falls.pop(record.producer, None)
            return
        fall.since.add(record.score, float("inf"))
        self._falls[record.producer] = fall

    def state(self) -> Any:
        return {
            "learnt": [self._learnt.n, self._learnt.total],
            "test": self._test.state(),
            "raised": self.raised,
            "heard": sorted(self._heard),
            "falls": [[a, f.test.state(), f.since.n, f.since.total] for a, f in self._falls.items()],
        }

    def restore(self, state: Any) -> None:
        self._learnt = Tally(*state["learnt"])
        self._test.restore(state["test"])
        self.raised = state["raised"]
        self._heard = set(state["heard"])
        self._falls = {}
        for agent, inner, n, total in state["falls"]:
            self._falls[agent] = _Fall(EDetector(_GROUP_BETS, self._settings.correlated_drop), Tally(n, total))
            self._falls[agent].test.restore(inner)


_GROUP_BETS = (0.5, 1.0, 2.0)
