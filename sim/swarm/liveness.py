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
from sim.swarm.oracle import Oracle, Scores
from sim.swarm.worlds import Phases

SUSPECTED_BY, EXCLUDED_BY = 3.0, 8.0
"""A test that has to learn its references and mixes its bets needs more log evidence than the oracle, who knows both:
in the mean 1.3 times (the design's aim), on single paths with thin references up to 6.6 times (in 400 worlds). Where
the oracle has these multiples of what it needs, an observer that has not so much as suspected the agent, or not
excluded it, is to blame."""

Fate = Literal["excluded", "withheld", "oracle silent", "in doubt", "outnumbered", "missed"]
"""What became of a degraded agent at one observer. `outnumbered`: most of the observer's other neighbours were degraded
too, so that it has nobody to compare with. `in doubt`: the oracle is not so sure that another test must be."""


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


def nominal(settings: config.Detector, streams: int) -> float:
    """ARL0 of an observer's test by its settings: calibrated levels are proportional to it, `arl0` at the default."""
    if settings.threshold == "guaranteed":
        return settings.arl0 * streams
    default: float = config.Detector.model_fields["exclude_at"].default
    return settings.arl0 * settings.exclude_at / default


def liveness(
    ground: Ground,
    events: Iterable[Event],
    phases: Phases,
    settings: config.Detector,
    weak: frozenset[AgentId] = frozenset(),
) -> Judged:
    """Judge all pairs of observer and agent degraded when the network had healed, and every recovered agent."""
    story = Story(ground, weak, settings.min_peers)
    detection: tuple[Counter[str], list[Violation]] | None = None
    for event in events:
        if detection is None and type(event) is TaskArrived and event.index >= phases.quiet:
            detection = _found(story, phases, settings)
        story(event)
    fates, found = detection or _found(story, phases, settings)
    recovered, missing = _returned(story)
    return Judged(dict(fates), recovered, found + missing)


def _found(story: Story, phases: Phases, settings: config.Detector) -> tuple[Counter[str], list[Violation]]:
    fates: Counter[str] = Counter()
    found: list[Violation] = []
    oracles: dict[int, Oracle] = {}
    lasting = [
        e
        for e in story.episodes
        if e.at <= phases.heal and (e.back is None or e.back >= phases.quiet) and not e.partial
    ]
    ill = {e.agent for e in lasting} | story.weak
    for episode in lasting:
        for observer in story.watchers(episode.agent):
            fate, why = _fate(story, episode, observer, ill, phases, settings, oracles)
            fates[fate] += 1
            if fate == "missed":
                what = f"agent {observer} did not exclude agent {episode.agent}, degraded since arrival {episode.at}"
                what += f": {why}"
                found.append(Violation("degraded-are-excluded", what, (episode.started,)))
    return fates, found


def _fate(
    story: Story,
    episode: Episode,
    observer: AgentId,
    ill: set[AgentId] | frozenset[AgentId],
    phases: Phases,
    settings: config.Detector,
    oracles: dict[int, Oracle],
) -> tuple[Fate, str]:
    agent, pair = episode.agent, story.pair(observer, episode.agent)
    excluded = story.views.excludes_all(observer, agent, story.ground.abilities[agent])
    if excluded or any(i >= phases.heal for i in pair.left):
        return "excluded", ""
    begin = max([episode.at, *(i for i in pair.turns if i >= episode.at)])
    if any(i >= episode.at for i in pair.withheld):
        return "withheld", ""
    peers = [n for n in story.ground.neighbours[observer] if n != agent]
    sound = sum(n not in ill for n in peers)
    if sound < max(2, settings.min_peers) or sound <= len(peers) - sound:
        return "outnumbered", ""
    streams = len(story.ground.neighbours[observer])
    if streams not in oracles:
        oracles[streams] = Oracle(story.scores, settings.drop, nominal(settings, streams))
    records = story.read(observer, agent, begin, phases.quiet)
    strongest = oracles[streams].strongest(records)
    if strongest < 1:
        return "oracle silent", ""
    suspected = any(i >= episode.at for i in pair.suspected)
    if strongest < (EXCLUDED_BY if suspected else SUSPECTED_BY):
        return "in doubt", ""
    return "missed", (
        f"{'suspected' if suspected else 'not even suspected'}, though an oracle at equal ARL0 has {strongest:.2g} "
        f"times the log evidence it needs, from {len(records)} records"
    )


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
