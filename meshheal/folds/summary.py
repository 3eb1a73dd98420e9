"""What a run came to: accuracy, cost, detection and reintegration, folded from its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct, field

from meshheal.events import (
    AgentFailed,
    AnyEvent,
    CommitteeMet,
    CorrelatedDegradation,
    Crashed,
    Event,
    EvidenceShared,
    ExclusionWithheld,
    FirstLook,
    ModelCalled,
    ProducerAsked,
    Restarted,
    ReviewerSidelined,
    ReviewersUninformative,
    StateChanged,
    Swapped,
    TaskArrived,
    TaskGraded,
    TaskSettled,
)
from meshheal.model import CallNotes
from meshheal.types import AgentId, Usage

Reason = Literal["censored", "already_excluded", "not_excluded"]


class Detection(Struct):
    """One degraded episode. Delays are null with a reason where they did not happen before the swap was undone."""

    agent: AgentId
    episode: int
    onset_task: int
    delay_tasks: int | None = None
    delay_first_observer: int | None = None
    delay_median_observer: float | None = None
    delay_outputs: int | None = None
    delay_seconds: float | None = None
    window_tasks: int | None = None
    """Length of the episode in tasks: where a censored delay is cut off for the restricted mean."""
    reason: Reason | None = None
    among_healthy: bool | None = None
    """Whether each neighbour of the agent has a healthy majority among its own neighbours while all who are ever
    degraded are; null where nobody said."""


class Reintegration(Struct):
    """The way back after one episode: until no neighbour excludes the agent, and until all hold it healthy."""

    agent: AgentId
    episode: int
    recovered_task: int
    delay_tasks: int | None = None
    delay_healthy: int | None = None
    delay_seconds: float | None = None
    reason: Reason | None = None


class SeedResult(Struct):
    """One run of one method under one seed."""

    seed: int
    accuracy_healthy: float | None = None
    accuracy_degraded: float | None = None
    accuracy_twin: float | None = None
    tokens_per_task: float = 0.0
    tokens_by_purpose: dict[str, float] = field(default_factory=dict)
    calls_per_task: float = 0.0
    probe_calls_per_task: float = 0.0
    detection: list[Detection] = field(default_factory=list)
    reintegration: list[Reintegration] = field(default_factory=list)
    false_exclusions: int = 0
    observations_healthy: int = 0
    premature_reintegrations: int = 0
    ordinary_tasks_while_excluded: int = 0
    no_answer: int = 0
    unscored: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    event_hash: str = ""
    tasks: int = 0
    failures: int = 0
    """Exceptions that escaped an agent's code: the run is not valid if there are any."""
    false_exclusions_twin: int = 0
    observations_twin: int = 0
    prefix_cache_hit_rate: dict[str, float | None] | None = None
    """By purpose, the share of prompt tokens that servers had in their prefix cache; null where none told."""
    calls_estimated: int = 0
    """Calls whose tokens the server did not count (credibly): estimates stand in."""
    requests_per_task: float | None = None
    """Requests and notices between agents; their replies are not counted apart."""
    evidence_per_task: float | None = None
    """Messages that carry review records."""
    two_hops_per_task: float | None = None
    """Of both, those to an agent that is no neighbour of the sender."""
    alarms: dict[str, int] = field(default_factory=dict)
    """Events in which the network says that something is wrong with more than one agent, by kind."""
    alarm_delay: int | None = None
    """Tasks from the first onset to the first `correlated_degradation`; null where none came."""

    def count_traffic(self, traffic: Mapping[str, int]) -> None:
        """Take in what crossed the links, as a log's footer has it."""
        n = max(1, self.tasks)
        self.requests_per_task = traffic["requests"] / n
        self.evidence_per_task = traffic["evidence"] / n
        self.two_hops_per_task = traffic["two_hops"] / n


class _Episode(Struct):
    agent: AgentId
    onset: int
    onset_t: float
    detection: Detection
    outputs: int = 0
    first_by: dict[AgentId, int] = field(default_factory=dict)
    complete: bool = False
    """All live neighbours exclude the agent now."""
    recovered: int | None = None
    recovered_t: float = 0.0
    reintegration: Reintegration | None = None


class Summary:
    """Fold over a run's events. `watchers` are, per agent, the neighbours that share an ability with it."""

    def __init__(
        self,
        watchers: Sequence[Sequence[AgentId]],
        abilities: Sequence[Sequence[str]],
        seed: int,
        phase: tuple[int, int] | None = None,
    ) -> None:
        self._watchers = watchers
        self._abilities = abilities
        self._phase = phase
        self.result = SeedResult(seed)
        self._index = -1
        self._correct: dict[int, bool] = {}
        self._indices: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._calls = self._probe_calls = 0
        self._cache: dict[str, Usage] = {}
        """Of calls to servers: prompt tokens where the cache's part was told, and that part."""
        self._excluded: dict[tuple[AgentId, AgentId], set[str]] = {}
        self._states: dict[tuple[AgentId, AgentId], str] = {}
        self._degraded: dict[AgentId, _Episode] = {}
        self._returning: dict[AgentId, _Episode] = {}
        self._episodes: list[_Episode] = []
        self._false: set[AgentId] = set()
        self._down: set[AgentId] = set()

    def __call__(self, event: Event | AnyEvent) -> None:
        r = self.result
        match event:
            case ModelCalled():
                purpose = "probe" if event.probing else event.purpose
                self._tokens[purpose] = self._tokens.get(purpose, 0) + event.usage.total
                self._calls += 1
                self._probe_calls += event.probing
                if event.notes is not None:
                    self._served(event, event.notes)
            case EvidenceShared():
                self._observed(event)
            case TaskArrived():
                self._index = event.index
                self._indices[event.task] = event.index
                r.tasks += 1
            case TaskGraded():
                self._correct[self._indices[event.task]] = bool(event.correct)
            case TaskSettled():
                r.outcomes[event.outcome] = r.outcomes.get(event.outcome, 0) + 1
                r.no_answer += event.value is None
            case FirstLook():
                r.unscored += len(event.unscored)
            case CommitteeMet():
                r.unscored += sum(s is None for s in event.scores)
            case ProducerAsked():
                if event.state == "excluded" or self._excludes(event.node, event.producer, event.ability):
                    r.ordinary_tasks_while_excluded += 1
            case StateChanged():
                self._changed(event)
            case Swapped():
                self._swapped(event)
            case AgentFailed():
                r.failures += 1
            case CorrelatedDegradation():
                self._alarm("correlated_degradation")
                if r.alarm_delay is None and self._episodes:
                    r.alarm_delay = self._index - self._episodes[0].onset + 1
            case ReviewersUninformative():
                self._alarm("reviewers_uninformative")
            case ReviewerSidelined():
                if not event.active:
                    self._alarm("reviewer_sidelined")
            case ExclusionWithheld():
                self._alarm("exclusion_withheld")
            case Crashed():
                self._down.add(event.agent)
            case Restarted():
                self._down.discard(event.agent)
                # It goes on from its checkpoint, and says what it believed then.
                for pair in [p for p in self._excluded if p[0] == event.agent]:
                    del self._excluded[pair]
                    self._states.pop(pair, None)
            case _:
                pass

    def _served(self, call: ModelCalled, notes: CallNotes) -> None:
        """What a server's own count adds."""
        self.result.calls_estimated += notes.estimated
        known = self._cache.setdefault(call.purpose, Usage())
        if notes.cache_told:
            self._cache[call.purpose] = known + Usage(call.usage.prompt, 0, call.usage.cached)

    def _alarm(self, kind: str) -> None:
        self.result.alarms[kind] = self.result.alarms.get(kind, 0) + 1

    # --- beliefs against truth -----------------------------------------------------------------------------------

    def _excludes(self, observer: AgentId, agent: AgentId, ability: str | None = None) -> bool:
        """Whether an observer excludes an agent: as a whole, from one ability, or from all of its abilities."""
        held = self._excluded.get((observer, agent))
        if not held:
            return False
        if "" in held:
            return True
        return ability in held if ability is not None else held.issuperset(self._abilities[agent])

    def _live(self, agent: AgentId) -> list[AgentId]:
        return [w for w in self._watchers[agent] if w not in self._down]

    def _observed(self, event: EvidenceShared) -> None:
        agent = event.record.producer
        episode = self._degraded.get(agent)
        if episode is None:
            self.result.observations_healthy += agent not in self._returning
        elif episode.detection.delay_tasks is None:
            episode.outputs += 1

    def _changed(self, event: StateChanged) -> None:
        observer, agent = event.node, event.agent
        held = self._excluded.setdefault((observer, agent), set())
        if event.ability:
            (held.add if event.to == "excluded" else held.discard)(event.ability)
        else:
            self._states[observer, agent] = event.to
            if event.to == "excluded":
                held.add("")
            elif event.before == "excluded":
                held.clear()
        episode = self._degraded.get(agent)
        if episode is not None:
            self._while_degraded(episode, observer, event)
        elif event.to == "excluded" and agent not in self._returning and agent not in self._false:
            self._false.add(agent)
            self.result.false_exclusions += 1
        elif agent in self._false and not any(self._excluded.get((w, agent)) for w in self._watchers[agent]):
            self._false.discard(agent)
        if agent in self._returning:
            self._check_return(self._returning[agent], event.t)

    def _while_degraded(self, episode: _Episode, observer: AgentId, event: StateChanged) -> None:
        agent, live = episode.agent, self._live(episode.agent)
        tasks = self._index - episode.onset + 1
        if self._excludes(observer, agent):
            episode.first_by.setdefault(observer, tasks)
        complete = bool(live) and all(self._excludes(w, agent) for w in live)
        if complete and episode.detection.delay_tasks is None and episode.detection.reason is None:
            d = episode.detection
            d.delay_tasks, d.delay_outputs = tasks, episode.outputs
            d.delay_seconds = event.t - episode.onset_t
            d.delay_first_observer = min(episode.first_by.values(), default=None)
            d.delay_median_observer = median(episode.first_by.values()) if episode.first_by else None
        if episode.complete and not complete:
            self.result.premature_reintegrations += 1
        episode.complete = complete

    def _swapped(self, event: Swapped) -> None:
        agent = event.agent
        if event.degraded:
            self._returning.pop(agent, None)
            number = sum(e.agent == agent for e in self._episodes)
            episode = _Episode(agent, event.index, event.t, Detection(agent, number, event.index))
            live = self._live(agent)
            if live and all(self._excludes(w, agent) for w in live):
                episode.detection.reason = "already_excluded"
                episode.complete = True
            self._false.discard(agent)
            self._degraded[agent] = episode
            self._episodes.append(episode)
        elif agent in self._degraded:
            self._recovered(self._degraded.pop(agent), event.index, event.t)

    def _recovered(self, episode: _Episode, index: int, t: float) -> None:
        agent, d = episode.agent, episode.detection
        d.window_tasks = index - episode.onset
        if d.delay_tasks is None and d.reason is None:
            d.reason = "censored"
        episode.recovered, episode.recovered_t = index, t
        back = Reintegration(agent, d.episode, index)
        episode.reintegration = back
        if not any(self._excluded.get((w, agent)) for w in self._watchers[agent]):
            back.reason = "not_excluded"
        else:
            back.reason = "censored"
            self._returning[agent] = episode

    def _check_return(self, episode: _Episode, t: float) -> None:
        back, agent = episode.reintegration, episode.agent
        if back is None or episode.recovered is None:
            return
        tasks = self._index - episode.recovered + 1
        live = self._live(agent)
        if back.delay_tasks is None and not any(self._excluded.get((w, agent)) for w in live):
            back.delay_tasks, back.delay_seconds, back.reason = tasks, t - episode.recovered_t, None
        if back.delay_tasks is not None and all(self._states.get((w, agent), "healthy") == "healthy" for w in live):
            back.delay_healthy = tasks
            del self._returning[agent]

    # --- questions while it goes on ------------------------------------------------------------------------------

    def excludes(self, observer: AgentId, agent: AgentId, ability: str | None = None) -> bool:
        """Whether an observer excludes an agent now: as a whole, from one ability, or from all of its abilities."""
        return self._excludes(observer, agent, ability)

    def excluding_pairs(self) -> list[tuple[AgentId, AgentId]]:
        """(observer, agent) where the one excludes the other now, wholly or in part."""
        return [pair for pair, held in list(self._excluded.items()) if held]

    def states(self) -> dict[tuple[AgentId, AgentId], str]:
        """What observers believe of agents as a whole; pairs about which nothing was said yet are healthy."""
        return self._states.copy()

    def live_watchers(self, agent: AgentId) -> list[AgentId]:
        """The neighbours sharing an ability with an agent that are up."""
        return self._live(agent)

    def degraded_now(self) -> list[AgentId]:
        """Agents on a degraded model: the harness' truth."""
        return list(self._degraded)

    def is_degraded(self, agent: AgentId) -> bool:
        return agent in self._degraded

    def down_now(self) -> list[AgentId]:
        """Agents that crashed and have not restarted."""
        return list(self._down)

    def detections(self) -> list[Detection]:
        """The degraded episodes so far. One under way has neither a delay nor a reason."""
        return [e.detection for e in self._episodes]

    def reintegrations(self) -> list[Reintegration]:
        """The ways back so far; one under way counts as censored until it has come to its end."""
        return [e.reintegration for e in list(self._episodes) if e.reintegration is not None]

    # --- the end -------------------------------------------------------------------------------------------------

    def degraded_phase(self) -> tuple[int, int] | None:
        """Arrivals from the first onset to the last recovery (or the end), half open; None without degradation."""
        if self._phase is not None:
            return self._phase
        if not self._episodes:
            return None
        ends = [self._index + 1 if e.recovered is None else e.recovered for e in self._episodes]
        return min(e.onset for e in self._episodes), max(ends)

    def finish(self, event_hash: str = "") -> SeedResult:
        """Close open episodes and compute the rates. Every arrived task counts; without an answer it is wrong."""
        r, phase = self.result, self.degraded_phase()
        for episode in self._degraded.values():
            episode.detection.window_tasks = self._index + 1 - episode.onset
            if episode.detection.delay_tasks is None and episode.detection.reason is None:
                episode.detection.reason = "censored"
        inside = range(0) if phase is None else range(*phase)
        r.accuracy_degraded = self._accuracy(i for i in self._indices.values() if i in inside)
        r.accuracy_healthy = self._accuracy(i for i in self._indices.values() if i not in inside)
        n = max(1, r.tasks)
        r.tokens_by_purpose = {p: v / n for p, v in sorted(self._tokens.items())}
        r.tokens_per_task = sum(self._tokens.values()) / n
        r.calls_per_task, r.probe_calls_per_task = self._calls / n, self._probe_calls / n
        r.detection = [e.detection for e in self._episodes]
        r.reintegration = [e.reintegration for e in self._episodes if e.reintegration is not None]
        if self._cache:
            r.prefix_cache_hit_rate = {
                p: u.cached / u.prompt if u.prompt else None for p, u in sorted(self._cache.items())
            }
        r.event_hash = event_hash
        return r

    def _accuracy(self, indices: Iterable[int]) -> float | None:
        right = [self._correct.get(i, False) for i in indices]
        return sum(right) / len(right) if right else None


def watchers(neighbours: Sequence[Sequence[AgentId]], abilities: Sequence[Sequence[str]]) -> list[list[AgentId]]:
    """Per agent, the neighbours that share an ability with it."""
    held: list[frozenset[str]] = [frozenset(a) for a in abilities]
    return [[n for n in around if held[n] & held[a]] for a, around in enumerate(neighbours)]
