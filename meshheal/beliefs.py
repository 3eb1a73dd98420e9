"""What one observer believes of its neighbours: states, the evidence behind them, and the guards on exclusion.

Pure bookkeeping: records come in, changes of belief come out; no I/O, no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from meshheal.config import Settings
from meshheal.detector import Detector, EDetector
from meshheal.events import State
from meshheal.opinion import Neighbour, Opinion, begun, convicting_test
from meshheal.reference import Cell, Levels, stratum_of
from meshheal.types import ANY, Ability, AgentId, ReviewRecord


class Change(Struct, frozen=True):
    """A change of belief. `ability` is empty where it concerns the whole agent."""

    agent: AgentId
    ability: Ability
    before: State
    to: State
    evidence: float
    reason: str


class Withheld(Struct, frozen=True):
    """An exclusion that a guard kept back."""

    agent: AgentId
    ability: Ability
    guard: Literal["min_eligible", "max_excluded_fraction"]
    evidence: float


class Moved(Struct, frozen=True):
    """Evidence against an agent crossed a power of two."""

    agent: AgentId
    evidence: float


class Shadowed(Struct, frozen=True):
    """A detector in shadow crossed its threshold."""

    agent: AgentId
    detector: str
    evidence: float


Finding = Change | Withheld | Moved | Shadowed

_PENDING_LIMIT = 64
"""Residuals held while suspicion is open; more than that and the oldest are taken as they are."""


def _rests(detector: Detector, score: float, expected: float) -> bool:
    return type(detector) is EDetector and detector.rests(score, expected)


class Beliefs:
    """One observer's judgement of its neighbours.

    `me` is the observer's own id and `mine` its abilities: it counts itself among the eligible producers of its closed
    neighbourhood, but never judges itself.
    """

    def __init__(
        self, me: AgentId, mine: Iterable[Ability], neighbours: Mapping[AgentId, Neighbour], settings: Settings
    ) -> None:
        self._settings = settings
        self._min_peers = settings.detector.min_peers
        self._clear_at, self._suspect_at = settings.detector.clear_at, settings.detector.suspect_at
        self._me = me
        self._mine = frozenset(mine) | {ANY}
        self._neighbours = neighbours
        self.opinions = {n: Opinion(neighbour, settings) for n, neighbour in neighbours.items()}
        self._levels = Levels(settings.detector.pool_prior, settings.detector.window)
        self.exclude_at = self.exclude_at_of(len(neighbours))
        self._seen = 0
        self._excluded_by: set[AgentId] = set()

    def exclude_at_of(self, streams: int) -> float:
        """Evidence that convicts, for an observer of so many agents."""
        d = self._settings.detector
        return (d.arl0 if d.threshold == "guaranteed" else d.exclude_at) * max(1, streams)

    # --- questions -----------------------------------------------------------------------------------------------

    def state(self, agent: AgentId, ability: Ability | None = None) -> State:
        """What is believed of a neighbour, or of one ability of it; of itself, what most of its neighbours tell it."""
        opinion = self.opinions.get(agent)
        if opinion is None:
            return "excluded" if agent == self._me and self.shunned else "healthy"
        if ability is not None and ability in opinion.excluded_abilities:
            return "excluded"
        return opinion.state

    @property
    def shunned(self) -> bool:
        """Whether more than half of the neighbours exclude the observer itself."""
        return 2 * len(self._excluded_by) > len(self.opinions)

    def told(self, by: AgentId, excluded: bool) -> None:
        """A neighbour tells that it excludes the observer, or no longer does."""
        (self._excluded_by.add if excluded else self._excluded_by.discard)(by)

    def evidence(self, agent: AgentId) -> float:
        opinion = self.opinions.get(agent)
        return 1.0 if opinion is None else opinion.evidence

    def expected(self, record: ReviewRecord) -> float | None:
        """b of the design: level of the peers plus own offset, in [0, 1]; None without a reference."""
        stratum = stratum_of(record)
        level = self._level(record, self._levels.cell(record, stratum))
        return None if level is None else self.opinions[record.producer].expected(stratum, record.ability, level)

    def _level(self, record: ReviewRecord, cell: Cell) -> float | None:
        """Level of the peers on what the record is about."""
        level = self._levels.expected(record, self._min_peers, cell)
        if level is None:
            # With all peers set aside nobody would be tested, nobody cleared, and the observer blind for good.
            level = self._levels.before(record, self._min_peers)
        return level

    def most_in_doubt(self, among: Iterable[AgentId]) -> list[AgentId]:
        """The agents by evidence against them, in steps of a half; among equals the one longest unheard of first.

        Whom a probe asks may depend on the past in any way: the test holds whatever the asking.
        """
        opinions = self.opinions
        return sorted(among, key=lambda a: (-int(2 * opinions[a].evidence), opinions[a].last_seen, a))

    # --- evidence ------------------------------------------------------------------------------------------------

    def observe(self, record: ReviewRecord) -> list[Finding]:
        """Take one review record of a neighbour; return what changed."""
        opinion = self.opinions.get(record.producer)
        if opinion is None:
            return []
        self._seen += 1
        opinion.last_seen = self._seen
        if opinion.state == "excluded" or record.ability in opinion.excluded_abilities:
            return self._observe_excluded(opinion, record)
        stratum = stratum_of(record)
        cell = self._levels.cell(record, stratum)
        level = self._level(record, cell)
        if level is None:
            self._levels.learn(record, cell)
            return []
        expected = opinion.expected(stratum, record.ability, level)
        found: list[Finding] = []
        self._test(opinion, record, expected, found)
        residual = record.score - level
        if opinion.evidence >= self._clear_at:
            self._hold(opinion, record, residual, expected)
        else:
            if opinion.pending:
                self._release(opinion)
            opinion.offset.learn(stratum, residual, record.ability)
            self._levels.learn(record, cell)
        if opinion.state != "healthy" or opinion.withheld or opinion.evidence >= self._suspect_at:
            self._decide(opinion, record, found)
        return found

    def _test(self, opinion: Opinion, record: ReviewRecord, expected: float, found: list[Finding]) -> None:
        """Evidence: the mean of the agent-wide detector and of the mean of those per ability."""
        score = record.score
        by, wide = opinion.by_ability, opinion.wide
        detector = by.get(record.ability)
        if opinion.shadows:
            self._shadow(opinion, record, expected, found)
        if _rests(wide, score, expected) and (detector is None or _rests(detector, score, expected)):
            return  # as most scores of a healthy agent: nothing stands against it, and nothing would
        if detector is None:
            detector = by[record.ability] = convicting_test(self._settings.detector)
        if type(wide) is EDetector and type(detector) is EDetector:
            factors = wide.factors(score, expected)
            wide.take(factors)
            detector.take(factors)
        else:
            wide.update(score, expected)
            detector.update(score, expected)
        n = len(opinion.abilities)
        if len(by) > n:
            n = len(by)
        narrow = float(n - len(by))
        for d in by.values():
            narrow += d.evidence
        opinion.evidence = evidence = (wide.evidence + narrow / n) / 2
        power = int(evidence).bit_length() - 1
        if power != opinion.power:
            opinion.power = power
            found.append(Moved(record.producer, evidence))

    def _shadow(self, opinion: Opinion, record: ReviewRecord, expected: float, found: list[Finding]) -> None:
        for kind, shadow in opinion.shadows.items():
            if shadow.update(record.score, expected) >= self.exclude_at:
                found.append(Shadowed(record.producer, kind, shadow.evidence))
                shadow.reset()

    def _hold(self, opinion: Opinion, record: ReviewRecord, residual: float, expected: float) -> None:
        """Scores under suspicion wait: they count once it closes, and are dropped on conviction."""
        begun(opinion.sparing, record.ability, self._settings).update(record.score, expected)
        opinion.pending.append((record, residual))
        if len(opinion.pending) > _PENDING_LIMIT:
            self._count(opinion, *opinion.pending.pop(0))

    def _release(self, opinion: Opinion) -> None:
        """Suspicion has closed: what waited counts."""
        for held in opinion.pending:
            self._count(opinion, *held)
        opinion.pending.clear()
        opinion.sparing.clear()

    def _count(self, opinion: Opinion, record: ReviewRecord, residual: float) -> None:
        opinion.offset.learn(stratum_of(record), residual, record.ability)
        self._levels.learn(record)

    def _decide(self, opinion: Opinion, record: ReviewRecord, found: list[Finding]) -> None:
        agent, evidence = record.producer, opinion.evidence
        if opinion.state == "probation":
            opinion.probation_left -= 1
        if opinion.withheld and self._redeemed(opinion):
            opinion.acquit()
            self._move(opinion, agent, "healthy", "does well again", found)
            return
        if evidence >= self.exclude_at:
            self._convict(opinion, agent, found)
            return
        opinion.withheld = opinion.withheld and evidence >= self.exclude_at / 2
        if opinion.state == "healthy" and evidence >= self._suspect_at:
            self._move(opinion, agent, "suspect", "evidence", found)
        elif opinion.state == "suspect" and evidence <= self._clear_at:
            self._move(opinion, agent, "healthy", "evidence gone", found)
        elif opinion.state == "probation" and opinion.probation_left <= 0:
            self._move(opinion, agent, "healthy", "probation passed", found)

    # --- conviction ----------------------------------------------------------------------------------------------

    def _convict(self, opinion: Opinion, agent: AgentId, found: list[Finding]) -> None:
        implicated = self._implicated(opinion)
        allowed: list[Ability] = []
        for ability in implicated:
            guard = self._guard(agent, ability)
            if guard is None:
                allowed.append(ability)
            elif not opinion.withheld:
                found.append(Withheld(agent, ability, guard, opinion.evidence))
        if len(allowed) == len(opinion.abilities) - len(opinion.excluded_abilities):
            opinion.excluded_abilities.clear()
            opinion.pending.clear()
            evidence = opinion.evidence
            self._move(opinion, agent, "excluded", "convicted", found)
            opinion.fresh()
            opinion.evidence = evidence
            return
        for ability in allowed:
            found.append(Change(agent, ability, opinion.state, "excluded", opinion.evidence, "convicted"))
            opinion.excluded_abilities.add(ability)
            opinion.by_ability.pop(ability, None)
        if allowed and len(allowed) == len(implicated):
            # The fault is accounted for: what was held against the agent as a whole came from these abilities.
            opinion.pending = [p for p in opinion.pending if p[0].ability not in opinion.excluded_abilities]
            opinion.wide.reset()
            opinion.sparing.clear()
            opinion.evidence = 1.0
            opinion.power = 0
            opinion.withheld = False
            if opinion.state == "suspect":
                self._move(opinion, agent, "healthy", "fault confined to an ability", found)
        elif len(allowed) < len(implicated):
            opinion.withheld = True
            if opinion.state == "healthy":
                self._move(opinion, agent, "suspect", "exclusion withheld", found)

    def _implicated(self, opinion: Opinion) -> list[Ability]:
        """The whole agent, but for abilities for which as much speaks as would bring an excluded one back."""
        at = self._settings.recovery.return_at
        live = [a for a in opinion.abilities if a not in opinion.excluded_abilities]
        against = [a for a in live if a not in opinion.sparing or opinion.sparing[a].evidence < at]
        return against or live

    def _redeemed(self, opinion: Opinion) -> bool:
        """Whether an agent that was kept in despite the evidence does as well as would bring an excluded one back.

        Evidence that nothing acts on grows without end; waiting for it to fade would keep the agent suspect for ever.
        """
        at = self._settings.recovery.return_at
        live = [a for a in opinion.abilities if a not in opinion.excluded_abilities]
        return all(a in opinion.sparing and opinion.sparing[a].evidence >= at for a in live)

    def _guard(self, agent: AgentId, ability: Ability) -> Literal["min_eligible", "max_excluded_fraction"] | None:
        """Why excluding the agent from `ability` must wait, if it must."""
        d = self._settings.detector
        holders = [n for n, v in self._neighbours.items() if ability in v.abilities or ability == ANY]
        excluded = sum(1 for n in holders if n == agent or self.state(n, ability) == "excluded")
        total = len(holders) + (ability in self._mine and not self.shunned)
        if total - excluded < d.min_eligible:
            return "min_eligible"
        if excluded > d.max_excluded_fraction * total:
            return "max_excluded_fraction"
        return None

    # --- return --------------------------------------------------------------------------------------------------

    def _observe_excluded(self, opinion: Opinion, record: ReviewRecord) -> list[Finding]:
        """Only probes speak for what is excluded: ordinary work was judged before the exclusion was known."""
        if record.channel != "probe":
            return []
        expected = self.expected(record)
        if expected is None and record.family == "other":
            # Nobody near was probed so. An agent agrees with its like at least as often: that returns it no sooner.
            expected = self.expected(replace(record, family="own"))
        if expected is None:
            expected = 1.0  # nobody to compare with at all: the most that can be asked returns no sooner either
        at = self._settings.recovery.return_at
        found: list[Finding] = []
        by_ability = begun(opinion.returning, record.ability, self._settings).update(record.score, expected)
        if opinion.state != "excluded":
            if by_ability >= at:
                self._ability_back(opinion, record.producer, record.ability, found)
        elif begun(opinion.returning, "", self._settings).update(record.score, expected) >= at:
            opinion.fresh()
            opinion.probation_left = self._settings.recovery.probation
            self._move(opinion, record.producer, "probation" if opinion.probation_left else "healthy", "probes", found)
        elif by_ability >= at * len(opinion.abilities):
            # One ability is well while the agent as a whole is not: it alone comes back.
            opinion.fresh()
            opinion.probation_left = self._settings.recovery.probation
            self._move(opinion, record.producer, "probation" if opinion.probation_left else "healthy", "probes", found)
            for ability in opinion.abilities:
                if ability != record.ability:
                    opinion.excluded_abilities.add(ability)
                    found.append(
                        Change(record.producer, ability, opinion.state, "excluded", opinion.evidence, "still failing")
                    )
        return found

    def _ability_back(self, opinion: Opinion, agent: AgentId, ability: Ability, found: list[Finding]) -> None:
        # What stands against the agent in other abilities must not close this one again at once.
        opinion.sparing[ability] = opinion.returning.pop(ability)
        opinion.excluded_abilities.discard(ability)
        found.append(Change(agent, ability, "excluded", "healthy", opinion.evidence, "probes"))

    def _move(self, opinion: Opinion, agent: AgentId, to: State, reason: str, found: list[Finding]) -> None:
        found.append(Change(agent, "", opinion.state, to, opinion.evidence, reason))
        opinion.state = to
        self._levels.set_aside(agent, to in ("suspect", "excluded"))

    # --- checkpoint ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> Any:
        """Plain values from which `restore` continues as if nothing had happened."""
        return {
            "seen": self._seen,
            "excluded_by": sorted(self._excluded_by),
            "levels": self._levels.state(),
            "opinions": [[a, o.state_of()] for a, o in self.opinions.items()],
        }

    def restore(self, state: Any) -> None:
        self._seen = state["seen"]
        self._excluded_by = set(state["excluded_by"])
        self._levels.restore(state["levels"])
        for agent, inner in state["opinions"]:
            self.opinions[agent].restore(inner, self._settings)
