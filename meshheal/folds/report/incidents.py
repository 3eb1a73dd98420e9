"""Incidents: an agent that became bad, an agent excluded without being bad, alarms, crashes; each from onset to its end.

When an agent was found and when it was back is what `folds.summary` says; here stands who saw what first.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from meshheal.events import (
    AgentFailed,
    CorrelatedDegradation,
    Crashed,
    Event,
    ExclusionWithheld,
    Probed,
    Restarted,
    ReviewersUninformative,
    StateChanged,
    SuspicionMoved,
    Swapped,
)
from meshheal.folds.summary import Detection, Reintegration
from meshheal.types import AgentId

Sort = Literal["degraded", "false_exclusion", "correlated", "uninformative", "withheld", "crash", "failure"]
_FIRST_EVIDENCE = 2.0
"""Evidence at which `SuspicionMoved` is first written; below it there is none to speak of."""


class Mark(Struct, frozen=True, omit_defaults=True, gc=False):
    """A moment: during arrival `x`, at `t` seconds, seen by agent `by`, because of the task `task`."""

    x: int
    t: float
    by: AgentId | None = None
    task: str = ""
    evidence: float | None = None


class Incident(Struct, omit_defaults=True):
    """What happened to one agent (or to a group) from `onset` on. Marks are None where it did not happen.

    `excluders` are the observers that excluded the agent, in order. `delay` and `delay_back` are in stream tasks, as
    `folds.summary` defines them; `censored`: not found before the agent recovered.
    """

    sort: Sort
    onset: Mark
    agent: AgentId | None = None
    model: str = ""
    text: str = ""
    observers: int = 0
    first_evidence: Mark | None = None
    suspected: Mark | None = None
    excluded: Mark | None = None
    excluders: list[AgentId] = field(default_factory=list)
    all_excluded: Mark | None = None
    delay: int | None = None
    already_excluded: bool = False
    recovered: Mark | None = None
    returned: Mark | None = None
    back: Mark | None = None
    delay_back: int | None = None
    healthy_after: int | None = None
    """Stream tasks from the recovery until all held it healthy."""
    probes: int = 0
    probes_passed: int = 0
    withheld: int = 0
    group: list[AgentId] = field(default_factory=list)
    count: int = 1


class Incidents:
    """Fold over a run's events. `accept_at` is the score from which on a probe counts as passed."""

    def __init__(self, observers: list[int], accept_at: float) -> None:
        self._observers = observers
        self._accept_at = accept_at
        self.all: list[Incident] = []
        self._open: dict[AgentId, Incident] = {}
        self._alarms: dict[tuple[str, tuple[AgentId, ...]], Incident] = {}
        self._excluders: dict[AgentId, set[AgentId]] = {}
        self._unwell: dict[AgentId, set[AgentId]] = {}

    def take(self, event: Event, x: int) -> None:
        """One event, during arrival `x`."""
        match event:
            case StateChanged():
                self._believed(event, Mark(x, event.t, event.node, event.task, event.evidence))
            case SuspicionMoved():
                self._suspected(event, Mark(x, event.t, event.node, event.task, event.evidence))
            case Probed():
                self._probed(event)
            case Swapped():
                self._swapped(event, Mark(x, event.t))
            case ExclusionWithheld():
                self._withheld(event, Mark(x, event.t, event.node, event.task, event.evidence))
            case CorrelatedDegradation():
                text = f"scores {event.observed:.2f} on references from before, where it scored {event.expected:.2f}"
                self._alarm("correlated", event.group, text, Mark(x, event.t, event.node, event.task, event.evidence))
            case ReviewersUninformative():
                text = f"mean score {event.agreed_mean:.2f} of answers that agree, {event.disputed_mean:.2f} of others"
                self._alarm("uninformative", (), text, Mark(x, event.t, event.node, event.task))
            case AgentFailed():
                self._add(Incident("failure", Mark(x, event.t, event.node, event.task), event.node, text=event.error))
            case Crashed():
                self._add(Incident("crash", Mark(x, event.t), event.agent))
            case Restarted():
                self._restarted(event, Mark(x, event.t))
            case _:
                pass

    def joined(self, detections: list[Detection], ways_back: list[Reintegration]) -> list[Incident]:
        """All incidents by onset, the degraded ones with their delays from the summary of the same events."""
        degraded: dict[tuple[AgentId, int], Incident] = {}
        seen: dict[AgentId, int] = {}
        for incident in self.all:
            if incident.sort == "degraded" and incident.agent is not None:
                number = seen.get(incident.agent, 0)
                seen[incident.agent] = number + 1
                degraded[incident.agent, number] = incident
        for found in detections:
            _found(degraded[found.agent, found.episode], found)
        for way in ways_back:
            _way_back(degraded[way.agent, way.episode], way)
        return sorted(self.all, key=lambda i: (i.onset.x, i.onset.t))

    def _add(self, incident: Incident) -> Incident:
        if incident.agent is not None:
            incident.observers = self._observers[incident.agent]
        self.all.append(incident)
        return incident

    def _swapped(self, event: Swapped, at: Mark) -> None:
        at = Mark(event.index, event.t)
        if event.degraded:
            begun = Incident("degraded", at, event.agent, model=event.to)
            # Its exclusion from before goes on: the summary says `already_excluded`.
            begun.excluders = sorted(self._excluders.get(event.agent, ()))
            self._open[event.agent] = self._add(begun)
        elif (current := self._open.get(event.agent)) and current.sort == "degraded":
            current.recovered = at
            self._close_if_well(event.agent, at)

    def _suspected(self, event: SuspicionMoved, at: Mark) -> None:
        current = self._open.get(event.agent)
        if (
            current
            and current.sort == "degraded"
            and current.first_evidence is None
            and event.evidence >= _FIRST_EVIDENCE
        ):
            current.first_evidence = at

    def _believed(self, event: StateChanged, at: Mark) -> None:
        agent, observer = event.agent, event.node
        excluders = self._excluders.setdefault(agent, set())
        unwell = self._unwell.setdefault(agent, set())
        (excluders.add if event.to == "excluded" else excluders.discard)(observer)
        (unwell.discard if event.to == "healthy" else unwell.add)(observer)
        current = self._open.get(agent)
        if event.to == "excluded":
            if current is None:
                current = self._open[agent] = self._add(Incident("false_exclusion", at, agent))
            if current.excluded is None:
                current.excluded = at
            if observer not in current.excluders:
                current.excluders.append(observer)
        if current is None:
            return
        if event.to == "suspect" and current.suspected is None:
            current.suspected = at
        if event.before == "excluded" and event.to != "excluded" and current.returned is None:
            current.returned = at
        self._close_if_well(agent, at)

    def _close_if_well(self, agent: AgentId, at: Mark) -> None:
        current = self._open[agent]
        over = current.recovered is not None if current.sort == "degraded" else not self._excluders.get(agent)
        if over and current.sort == "false_exclusion" and current.back is None:
            current.back = at
        if over and not self._unwell.get(agent):
            del self._open[agent]

    def _probed(self, event: Probed) -> None:
        current = self._open.get(event.agent)
        if current is not None:
            current.probes += 1
            current.probes_passed += event.score is not None and event.score >= self._accept_at

    def _withheld(self, event: ExclusionWithheld, at: Mark) -> None:
        current = self._open.get(event.agent)
        if current is not None:
            current.withheld += 1
            return
        guard = {"min_eligible": "too few others are able", "max_excluded_fraction": "too many are excluded already"}
        text = f"exclusion from {event.ability} withheld: {guard[event.guard]}"
        self._alarm("withheld", (event.agent,), text, at)

    def _alarm(self, sort: Sort, group: tuple[AgentId, ...], text: str, at: Mark) -> None:
        """One incident a group, however many raise the alarm and however often."""
        known = self._alarms.get((sort, group))
        if known is None:
            known = Incident(sort, at, group[0] if sort == "withheld" else None, text=text, group=list(group))
            self._alarms[sort, group] = self._add(known)
        else:
            known.count += 1

    def _restarted(self, event: Restarted, at: Mark) -> None:
        for incident in reversed(self.all):
            if incident.sort == "crash" and incident.agent == event.agent:
                incident.recovered = incident.back = at
                return


def _found(incident: Incident, found: Detection) -> None:
    incident.delay = found.delay_tasks
    incident.already_excluded = found.reason == "already_excluded"
    if found.delay_tasks is not None and found.delay_seconds is not None:
        onset = incident.onset
        incident.all_excluded = Mark(onset.x + found.delay_tasks - 1, onset.t + found.delay_seconds)


def _way_back(incident: Incident, way: Reintegration) -> None:
    incident.delay_back = way.delay_tasks
    if way.delay_tasks is not None and way.delay_seconds is not None and incident.recovered is not None:
        since = incident.recovered
        incident.back = Mark(since.x + way.delay_tasks - 1, since.t + way.delay_seconds)
    incident.healthy_after = way.delay_healthy
