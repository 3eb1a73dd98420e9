"""Outlier ejection: agents whose mean score lies far below that of all are ejected for a while, as Envoy does with hosts.

Source: Envoy's outlier detection (success rate): at each sweep, hosts below mean - 1.9 standard deviations are ejected; the n-th
ejection lasts n times the base time; at most 10 % of hosts at once, but one always may be; a request that failed is retried.
Parameters: `methods.envoy.interval`, `volume`, `hosts`, `factor` (1.9), `ejection`, `most` (.1), `retries` (1).
Deviations: the success rate is the mean score of one review an answer, shared with the producer's neighbours as in MeshHeal.
Envoy's interval of 10 s, 100 requests and 30 s of ejection are scaled to scores that an observer takes in. The rates
of a sweep include the outlier itself, as in Envoy: two bad ones of six hide one another. An ability always keeps
`detector.min_eligible` producers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean, pstdev
from typing import Any

from meshheal.agent import Agent, Work
from meshheal.beliefs import Beliefs, Change, Finding
from meshheal.config import Settings
from meshheal.methods.parts import nobody, produced, review, settled, share_score
from meshheal.network import Settled
from meshheal.opinion import Neighbour
from meshheal.types import Ability, AgentId, Answer, ReviewRecord


class Ejections(Beliefs):
    """An observer that counts scores per interval and sweeps. Its clock is the number of records it took in."""

    def __init__(
        self, me: AgentId, mine: Iterable[Ability], neighbours: Mapping[AgentId, Neighbour], settings: Settings
    ) -> None:
        super().__init__(me, mine, neighbours, settings)
        self._envoy = settings.methods.envoy
        self._clock = 0
        self._scores: dict[AgentId, list[float]] = {}
        self._times: dict[AgentId, int] = {}
        self._until: dict[AgentId, int] = {}

    def observe(self, record: ReviewRecord) -> list[Finding]:
        self._clock += 1
        found: list[Finding] = [self._back(a) for a, until in list(self._until.items()) if self._clock >= until]
        if self.opinions[record.producer].state != "excluded":
            self._scores.setdefault(record.producer, []).append(record.score)
        if self._clock % self._envoy.interval == 0:
            found += self._sweep()
        return found

    def _sweep(self) -> list[Finding]:
        s = self._envoy
        rates = {a: fmean(scores) for a, scores in self._scores.items() if len(scores) >= s.volume}
        self._scores.clear()
        if len(rates) < s.hosts:
            return []
        cut = fmean(rates.values()) - s.factor * pstdev(rates.values())
        found: list[Finding] = []
        for agent, rate in sorted(rates.items(), key=lambda item: (item[1], item[0])):
            if rate >= cut:
                break
            most = max(1, int(s.most * len(self.opinions)))
            if len(self._until) < most and all(self._guard(agent, a) is None for a in self.opinions[agent].abilities):
                found.append(self._eject(agent, cut - rate))
        return found

    def _eject(self, agent: AgentId, below: float) -> Change:
        self._times[agent] = self._times.get(agent, 0) + 1
        self._until[agent] = self._clock + self._envoy.ejection * self._times[agent]
        before, self.opinions[agent].state = self.opinions[agent].state, "excluded"
        return Change(agent, "", before, "excluded", 1.0 + below, "ejected")

    def _back(self, agent: AgentId) -> Change:
        del self._until[agent]
        self.opinions[agent].state = "healthy"
        return Change(agent, "", "excluded", "healthy", 1.0, "ejection over")

    def checkpoint(self) -> Any:
        own = [self._clock, *[[list(p) for p in held.items()] for held in (self._scores, self._times, self._until)]]
        return {**super().checkpoint(), "envoy": own}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._clock = state["envoy"][0]
        self._scores, self._times, self._until = (dict(map(tuple, held)) for held in state["envoy"][1:])


async def settle(agent: Agent, work: Work) -> Settled:
    first: Answer | None = None
    best: tuple[float, Answer] | None = None
    tried: list[AgentId] = []
    for _ in range(1 + agent.settings.methods.envoy.retries):
        answer = await produced(agent, work, tried)
        if answer is None:
            break
        tried.append(answer.producer)
        first = first or answer
        reviewer, score = await review(agent, work, answer)
        await share_score(agent, work, answer, reviewer, score)
        level = agent.settings.review.accept_at if score is None else score
        if best is None or level > best[0]:
            best = (level, answer)
        if level >= agent.settings.review.accept_at:
            break
    if first is None or best is None:
        return nobody(work)
    return settled(work, "accepted", first, best[1])
