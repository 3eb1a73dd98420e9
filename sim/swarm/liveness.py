"""What must happen once faults are over: the degraded are found, the recovered come back; judged pair by pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from meshheal import config
from meshheal.events import (
    Event,
    EventId,
    EvidenceShared,
    EvidenceUndelivered,
    ExclusionWithheld,
    StateChanged,
    Swapped,
    TaskArrived,
)
from meshheal.reference import Stratum, stratum_of
from meshheal.types import AgentId, ReviewRecord
from sim.swarm.ground import Ground, Views, Violation
from sim.swarm.notes import Notes
from sim.swarm.oracle import Oracle, Scores
from sim.swarm.worlds import Phases

INFORMED = 1.8
"""Multiples of the log evidence it needs that an oracle with the observer's own references may have before the observer
must have excluded. The oracle bets all on the right stake; the observer's test spreads over three bets and two scopes,
so that the one that carries it must reach six times the level A that convicts: log(6 A) is 1.35 to 1.5 times what the
oracle needs at equal ARL0, and the nearest of the three bets grows at about .8 of the best one's rate. In 200 worlds
the observers that excluded did so at 1.04 in the median, .99 of them by 1.6, all by 1.79; no other got beyond 1.59.
The margins were set by these worlds and held in 200 others."""
KNOWING = 7.0
"""The same for an oracle that knows the level of healthy agents too, which an observer has to learn. A level with few
scores is drawn to 1/2, so that it convicts nobody; in these short worlds that is the level of probes, expected at .8
where healthy agents reach 1 while a burst spends the calls that would learn it better. In the same 200 worlds: 1.3 in
the median, .99 by 4.9, all by 6.3, and the more the lower the probes' level stood. With this oracle a reference that
says nothing is caught, with the other one a test that does not act on what it is told."""

Fate = Literal["excluded", "withheld", "oracle silent", "in doubt", "outnumbered", "missed"]
"""What became of a degraded agent at one observer. `outnumbered`: most of the observer's other neighbours were degraded
too, so that it has nobody to compare with. `oracle silent`: of the oracle that knows everything. `in doubt`: no oracle is so
sure that a test which learns must be."""


class Episode(Struct):
    """One degraded stretch of an agent: arrivals `at` <= i < `back`."""

    agent: AgentId
    at: int
    back: int | None
    started: EventId
    partial: bool
    """Only some roles are degraded."""


class _Pair(Struct):
    """What one observer had to go by about one agent, and what it concluded."""

    records: list[tuple[int, ReviewRecord]] = field(default_factory=list)
    """With the arrival at which each was shared. Without those that no test of the observer could use: of what it
    excludes the agent from, and of a kind that it has of too few healthy peers to compare with.
    """
    left: list[int] = field(default_factory=list)
    """Arrivals at which the agent left `excluded`."""
    turns: list[int] = field(default_factory=list)
    """Arrivals at which anything of it was excluded or taken back: the tests start anew."""
    suspected: list[int] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)


class Story:
    """The run as liveness needs it, folded from the log."""

    def __init__(self, ground: Ground, weak: frozenset[AgentId], min_peers: int = 2) -> None:
        self.ground = ground
        self.min_peers = min_peers
        self.weak = weak
        self.episodes: list[Episode] = []
        self.scores = Scores()
        self.pairs: dict[tuple[AgentId, AgentId], _Pair] = {}
        self.views = Views()
        self.index = -1
        self._open: dict[AgentId, Episode] = {}
        self._undelivered: set[tuple[str, AgentId]] = set()
        self._compared: dict[tuple[AgentId, Stratum], set[AgentId]] = {}
        """(observer, way of scoring) -> healthy agents that it has such scores of."""

    def pair(self, observer: AgentId, agent: AgentId) -> _Pair:
        return self.pairs.setdefault((observer, agent), _Pair())

    def __call__(self, event: Event) -> None:
        if type(event) is StateChanged:
            before = self._excluded(event.node, event.agent)
            self.views(event)
            after = self._excluded(event.node, event.agent)
            pair = self.pair(event.node, event.agent)
            if before and not after:
                pair.left.append(self.index)
            if event.to == "suspect":
                pair.suspected.append(self.index)
            if "excluded" in (event.before, event.to):
                pair.turns.append(self.index)
            return
        self.views(event)
        match event:
            case TaskArrived():
                self.index = event.index
            case Swapped():
                self._swapped(event)
            case EvidenceShared():
                self._shared(event)
            case EvidenceUndelivered():
                self._undelivered.add((event.record, event.to))
            case ExclusionWithheld():
                self.pair(event.node, event.agent).withheld.append(self.index)
            case _:
                pass

    def _excluded(self, observer: AgentId, agent: AgentId) -> bool:
        return self.views.excludes_all(observer, agent, self.ground.abilities[agent])

    def _swapped(self, event: Swapped) -> None:
        now = self._open.pop(event.agent, None)
        if now is not None:
            now.back = event.index
        if event.degraded:
            episode = Episode(event.agent, event.index, None, event.id, bool(event.roles))
            self._open[event.agent] = episode
            self.episodes.append(episode)

    def _shared(self, event: EvidenceShared) -> None:
        record = event.record
        episode, stratum = self._open.get(record.producer), stratum_of(record)
        for observer in event.to:
            peers = self._compared.setdefault((observer, stratum), set())
            comparable = len(peers - {record.producer}) >= self.min_peers
            if comparable and not self.views.excludes(observer, record.producer, record.ability):
                self.pair(observer, record.producer).records.append((self.index, record))
            if episode is None and record.producer not in self.weak:
                peers.add(record.producer)
            else:
                peers.discard(record.producer)
        if episode is None and record.producer not in self.weak:
            self.scores.add(record, degraded=False)
        elif episode is not None and not episode.partial:
            self.scores.add(record, degraded=True)

    def read(self, observer: AgentId, agent: AgentId, begin: int, end: int) -> list[ReviewRecord]:
        """The observer's records of the agent from a stretch of the run."""
        return [
            r
            for i, r in self.pair(observer, agent).records
            if begin <= i < end and (r.id, observer) not in self._undelivered
        ]

    def watchers(self, agent: AgentId) -> list[AgentId]:
        """Neighbours that share an ability with the agent."""
        held = set(self.ground.abilities[agent])
        return [n for n in self.ground.neighbours[agent] if held & set(self.ground.abilities[n])]


class Judged(Struct):
    """How the degraded agents fared, by fate; how many recovered ones there were; and what must not be."""

    fates: dict[str, int]
    recovered: int
    found: list[Violation]


RUN_LENGTH, RUN_LENGTH_SR = 8.0, 1.8
"""Measured ARL0 of an observer's test in multiples of the evidence that convicts, for scores at the edge of its null
hypothesis (mean b - drop, b known): the test averages over three bets and two scopes and has to be carried by one; in
the Shiryaev-Roberts form the others add up to more."""


def measured_arl0(settings: config.Detector, streams: int) -> float:
    """ARL0 of an observer's test of one of its `streams`, so that the oracle is given the same.

    Its bound, the evidence that convicts, is several times lower: an oracle at that bound would be the more eager one.
    A Bernoulli CUSUM has another null hypothesis and none at this edge; it is judged as the default is.
    """
    if settings.threshold == "guaranteed":
        return RUN_LENGTH_SR * settings.arl0 * streams
    return (RUN_LENGTH_SR if settings.kind == "e-sr" else RUN_LENGTH) * settings.exclude_at * streams


def liveness(
    ground: Ground,
    events: Iterable[Event],
    phases: Phases,
    settings: config.Detector,
    notes: Notes,
    weak: frozenset[AgentId] = frozenset(),
) -> Judged:
    """Judge all pairs of observer and agent degraded when the network had healed, and every recovered agent.

    A pair whose observer has not excluded the agent when the quiet begins is a violation where one of two oracle
    CUSUMs on that observer's records, at equal ARL0, is sure `INFORMED` or `KNOWING` times over; unless the exclusion was
    withheld, or the observer is outnumbered.
    """
    story = Story(ground, weak, settings.min_peers)
    detection: tuple[Counter[str], list[Violation]] | None = None
    for event in events:
        if detection is None and type(event) is TaskArrived and event.index >= phases.quiet:
            detection = _found(story, phases, settings, notes)
        story(event)
    fates, found = detection or _found(story, phases, settings, notes)
    recovered, missing = _returned(story)
    return Judged(dict(fates), recovered, found + missing)


def _found(
    story: Story, phases: Phases, settings: config.Detector, notes: Notes
) -> tuple[Counter[str], list[Violation]]:
    fates: Counter[str] = Counter()
    found: list[Violation] = []
    lasting = [
        e
        for e in story.episodes
        if e.at <= phases.heal and (e.back is None or e.back >= phases.quiet) and not e.partial
    ]
    bench = _Bench(story, phases, settings, notes, frozenset({e.agent for e in lasting} | story.weak))
    for episode in lasting:
        for observer in story.watchers(episode.agent):
            fate, why = bench.fate(episode, observer)
            fates[fate] += 1
            if fate == "missed":
                what = f"agent {observer} did not exclude agent {episode.agent}, degraded since arrival {episode.at}"
                what += f": {why}"
                found.append(Violation("degraded-are-excluded", what, (episode.started,)))
    return fates, found


class _Bench:
    """Judges pairs, with one oracle for all observers of as many agents."""

    def __init__(
        self, story: Story, phases: Phases, settings: config.Detector, notes: Notes, ill: frozenset[AgentId]
    ) -> None:
        self._story = story
        self._phases = phases
        self._settings = settings
        self._notes = notes
        self._ill = ill
        self._oracles: dict[int, Oracle] = {}

    def fate(self, episode: Episode, observer: AgentId) -> tuple[Fate, str]:
        """What became of the agent at the observer, and, where it was missed, why that is a fault."""
        story, agent = self._story, episode.agent
        pair = story.pair(observer, agent)
        excluded = story.views.excludes_all(observer, agent, story.ground.abilities[agent])
        if excluded or any(i >= self._phases.heal for i in pair.left):
            return "excluded", ""
        if any(i >= episode.at for i in pair.withheld):
            return "withheld", ""
        if self._outnumbered(observer, agent):
            return "outnumbered", ""
        begin = max([episode.at, *(i for i in pair.turns if i >= episode.at)])
        records = story.read(observer, agent, begin, self._phases.quiet)
        oracle = self._oracle(observer)
        knowing, informed = oracle.strongest(records), oracle.informed(records, self._notes.get(observer, {}))
        if informed >= INFORMED or knowing >= KNOWING:
            suspected = any(i >= episode.at for i in pair.suspected)
            return "missed", (
                f"{'suspected' if suspected else 'not even suspected'}, though of the log evidence they need oracles at "
                f"equal ARL0 have {informed:.2g} times (with the observer's references; {INFORMED:g} is too much) and "
                f"{knowing:.2g} times (knowing the healthy; {KNOWING:g}), from {len(records)} records"
            )
        return ("oracle silent" if knowing < 1 else "in doubt"), ""

    def _outnumbered(self, observer: AgentId, agent: AgentId) -> bool:
        peers = [n for n in self._story.ground.neighbours[observer] if n != agent]
        sound = sum(n not in self._ill for n in peers)
        return sound < max(2, self._settings.min_peers) or sound <= len(peers) - sound

    def _oracle(self, observer: AgentId) -> Oracle:
        streams = len(self._story.ground.neighbours[observer])
        if streams not in self._oracles:
            arl0 = measured_arl0(self._settings, streams)
            self._oracles[streams] = Oracle(self._story.scores, self._settings.drop, arl0)
        return self._oracles[streams]


def _returned(story: Story) -> tuple[int, list[Violation]]:
    found: list[Violation] = []
    last = {e.agent: e for e in story.episodes}
    recovered = [e for e in last.values() if e.back is not None]
    for episode in recovered:
        for observer in story.watchers(episode.agent):
            abilities = story.ground.abilities[episode.agent]
            pair = story.pair(observer, episode.agent)
            held = any(story.views.excludes(observer, episode.agent, a) for a in abilities)
            if held and not any(i >= (episode.back or 0) for i in pair.left):
                what = f"agent {observer} still excludes agent {episode.agent}, well since arrival {episode.back}"
                found.append(Violation("recovered-are-back", what, (episode.started,)))
    return len(recovered), found
