"""The fold of one arm's events into what a page draws of it: tasks, scores, beliefs, probes, incidents, tokens."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from math import log2
from typing import Any

from meshheal.events import (
    Event,
    EvidenceShared,
    ModelCalled,
    Probed,
    ProducerAsked,
    Restarted,
    StateChanged,
    SuspicionMoved,
    Swapped,
    TaskArrived,
    TaskGraded,
    TaskSettled,
)
from meshheal.folds.report.columns import Arm, Evidence, Probes, Scores, States, Tasks, Window, Words, thin
from meshheal.folds.report.incidents import Incidents
from meshheal.folds.summary import SeedResult, Summary, watchers
from meshheal.types import AgentId

RANK = {"healthy": 0, "suspect": 1, "probation": 2, "excluded": 3}
MOST_TASKS, MOST_SCORES, MOST_EVIDENCE, MOST_PROBES = 40_000, 150_000, 150_000, 100_000
"""Rows that a page gets of each table. What it draws is no finer, and a browser should not have to hold more."""


class ArmFold:
    """Fold over the events of one arm, in order. `arm()` and `result()` may be asked for at any time."""

    def __init__(
        self,
        neighbours: list[list[AgentId]],
        abilities: list[list[str]],
        seed: int,
        phase: tuple[int, int] | None,
        accept_at: float,
    ) -> None:
        """`phase` is the declared degraded phase in arrivals, half open; `accept_at` that of the review settings."""
        around = watchers(neighbours, abilities)
        self.summary = Summary(around, abilities, seed, phase)
        self.incidents = Incidents([len(w) for w in around], accept_at)
        self.graded = bytearray()
        """For each arrival `1` right, `0` wrong or without an answer, `.` not graded yet."""
        self.tokens_by_model: dict[str, int] = {}
        self.first: Event | None = None
        self._words = Words()
        self._x = -1
        self._t = 0.0
        self._rows: dict[str, int] = {}
        self._by_producer: dict[str, AgentId] = {}
        self._tasks, self._scores, self._probes = Tasks(), Scores(), Probes()
        self._evidence, self._states = Evidence(), States()
        self._windows: list[Window] = []
        self._unwell: dict[AgentId, set[tuple[AgentId, int]]] = {}
        self._do: dict[type[Event], Callable[[Any], None]] = {
            TaskArrived: self._arrived,
            TaskSettled: self._settled,
            TaskGraded: self._graded,
            ModelCalled: self._called,
            ProducerAsked: self._asked,
            EvidenceShared: self._shared,
            SuspicionMoved: self._moved,
            StateChanged: self._changed,
            Probed: self._probed,
            Swapped: self._swapped,
            Restarted: self._restarted,
        }

    def __call__(self, event: Event) -> None:
        do = self._do.get(type(event))
        if do is not None:
            do(event)
        self.summary(event)
        self.incidents.take(event, max(0, self._x))
        if event.t > self._t:
            self._t = event.t

    def result(self) -> SeedResult:
        """The figures so far, as results.json has them in the end. The fold can go on."""
        return deepcopy(self.summary).finish()

    def arm(self) -> Arm:
        """The tables so far. The fold can go on."""
        result = self.result()
        incidents = self.incidents.joined(result.detection, result.reintegration)
        keep = self._kept_tasks({mark.task for i in incidents for mark in (i.suspected, i.excluded) if mark})
        tables = (
            ("scores", self._scores, thin(self._scores, MOST_SCORES)),
            ("movements of evidence", self._evidence, thin(self._evidence, MOST_EVIDENCE)),
            ("probes", self._probes, thin(self._probes, MOST_PROBES)),
        )
        thinned = [
            f"{len(thinned.x):,} of {len(whole.x):,} {what}" for what, whole, thinned in tables if thinned is not whole
        ]
        tasks = self._tasks
        if len(keep) < len(tasks.x):
            thinned.insert(0, f"{len(keep):,} of {len(tasks.x):,} tasks")
        arm = Arm(
            words=self._words.all,
            arrivals=self._x + 1,
            seconds=self._t,
            tasks=tasks,
            scores=tables[0][2],
            evidence=tables[1][2],
            states=self._states,
            probes=tables[2][2],
            windows=self._windows,
            incidents=incidents,
            thinned=thinned,
        )
        return _only_tasks(arm, keep) if len(keep) < len(tasks.x) else arm

    def _kept_tasks(self, wanted: set[str]) -> list[int]:
        """Rows of tasks to list: all, or the wanted ones, those that went wrong, and of the rest every k-th."""
        tasks = self._tasks
        n = len(tasks.x)
        if n <= MOST_TASKS:
            return list(range(n))
        special = {self._rows[task] for task in wanted if task in self._rows}
        wrong = [row for row in range(n) if tasks.correct[row] != 1]
        special.update(wrong[:: -(-len(wrong) // (MOST_TASKS // 2)) or 1])
        step = -(-n // max(1, MOST_TASKS - len(special)))
        return sorted(special | set(range(0, n, step)))

    # --- one event each ------------------------------------------------------------------------------------------

    def _arrived(self, event: TaskArrived) -> None:
        self._x = event.index
        while len(self.graded) <= event.index:
            self.graded.append(ord("."))
        tasks = self._tasks
        self._rows[event.task] = len(tasks.x)
        tasks.x.append(event.index)
        tasks.id.append(event.task)
        tasks.t.append(round(event.t, 2))
        tasks.ability.append(self._words(event.ability))
        tasks.kind.append(self._words(event.task_kind))
        tasks.outcome.append(self._words(""))
        tasks.correct.append(-1)
        for column in (tasks.producer, tasks.author):
            column.append(-1)
        for column in (tasks.calls, tasks.tokens):
            column.append(0)

    def _asked(self, event: ProducerAsked) -> None:
        self._put(event.task, "producer", event.producer)

    def _settled(self, event: TaskSettled) -> None:
        self._put(event.task, "outcome", self._words(event.outcome))
        self._put(event.task, "calls", event.calls)
        self._put(event.task, "tokens", event.usage.total)
        if event.producer is not None:
            self._put(event.task, "producer", event.producer)
        if event.author is not None:
            self._put(event.task, "author", event.author)

    def _graded(self, event: TaskGraded) -> None:
        if event.correct is not None:
            self._put(event.task, "correct", int(event.correct))
        row = self._rows.get(event.task)
        if row is not None:
            self.graded[self._tasks.x[row]] = ord("1" if event.correct else "0")

    def _put(self, task: str, column: str, value: int) -> None:
        row = self._rows.get(task)
        if row is not None:
            getattr(self._tasks, column)[row] = value

    def _called(self, event: ModelCalled) -> None:
        self.tokens_by_model[event.model] = self.tokens_by_model.get(event.model, 0) + event.usage.total

    def _shared(self, event: EvidenceShared) -> None:
        record, scores = event.record, self._scores
        scores.x.append(self._x)
        scores.agent.append(record.producer)
        scores.score.append(round(100 * record.score))
        scores.probe.append(int(record.channel == "probe"))
        scores.task.append(self._rows.get(event.task, -1))

    def _moved(self, event: SuspicionMoved) -> None:
        self._holds(event.node, event.agent, event.evidence)

    def _holds(self, by: AgentId, agent: AgentId, level: float) -> None:
        evidence = self._evidence
        evidence.x.append(max(0, self._x))
        evidence.by.append(by)
        evidence.agent.append(agent)
        evidence.level.append(round(10 * log2(max(1.0, level))))

    def _changed(self, event: StateChanged) -> None:
        ability = self._words(event.ability) if event.ability else -1
        self._holds(event.node, event.agent, event.evidence)  # also where it starts afresh, which moves nothing
        held = self._unwell.setdefault(event.node, set())
        (held.discard if event.to == "healthy" else held.add)((event.agent, ability))
        task = self._rows.get(event.task, -1)
        self._believe(event.t, event.node, event.agent, RANK[event.to], ability, event.evidence, event.reason, task)

    def _believe(
        self, t: float, by: AgentId, agent: AgentId, to: int, ability: int, evidence: float, reason: str, task: int
    ) -> None:
        states = self._states
        states.x.append(max(0, self._x))
        states.t.append(round(t, 2))
        states.by.append(by)
        states.agent.append(agent)
        states.to.append(to)
        states.ability.append(ability)
        states.evidence.append(float(f"{evidence:.3g}"))
        states.reason.append(self._words(reason))
        states.task.append(task)

    def _restarted(self, event: Restarted) -> None:
        """It goes on from its checkpoint, and says again what it believed then: until it does it holds all healthy."""
        for agent, ability in sorted(self._unwell.pop(event.agent, ())):
            self._believe(event.t, event.agent, agent, RANK["healthy"], ability, 1.0, "restarted", -1)

    def _probed(self, event: Probed) -> None:
        probes = self._probes
        probes.x.append(self._x)
        probes.t.append(round(event.t, 2))
        probes.by.append(event.node)
        probes.agent.append(event.agent)
        probes.score.append(-1 if event.score is None else round(100 * event.score))
        probes.why.append(self._words(event.motive))
        probes.task.append(self._rows.get(event.task, -1))

    def _swapped(self, event: Swapped) -> None:
        for window in reversed(self._windows):
            if window.agent == event.agent and window.end is None:
                window.end = event.index
                break
        else:
            self._windows.append(Window(event.agent, event.to, event.index, None, event.degraded))
            return
        if event.degraded:
            self._windows.append(Window(event.agent, event.to, event.index, None, True))


def _only_tasks(arm: Arm, keep: list[int]) -> Arm:
    """The arm with these rows of its tasks, and references to them put right."""
    place = {row: i for i, row in enumerate(keep)}
    tasks = Tasks(*[[getattr(arm.tasks, name)[row] for row in keep] for name in Tasks.__struct_fields__])

    def renumbered(table: Any) -> Any:
        columns = {name: getattr(table, name) for name in table.__struct_fields__}
        return type(table)(**{**columns, "task": [place.get(row, -1) for row in table.task]})

    return Arm(
        **{
            **{name: getattr(arm, name) for name in Arm.__struct_fields__},
            "tasks": tasks,
            "scores": renumbered(arm.scores),
            "states": renumbered(arm.states),
            "probes": renumbered(arm.probes),
        }
    )
