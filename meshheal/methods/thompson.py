"""Discounted Thompson sampling: tasks go to producers in proportion to the chance that they are the best, learnt from reviews.

Source: Raj and Kalyani, "Taming Non-stationary Bandits", arXiv 1707.09727 (discounted Thompson sampling): Beta counts per arm, all
multiplied by a discount at each score, so that what is old or unused fades to the prior.
Parameters: `methods.thompson.discount` (.99), `methods.thompson.gate` (1.5).
Deviations: an arm is an agent, whatever the ability asked of it. A score between 0 and 1 counts as that part of a success.
Every answer is reviewed once and the score shared with the producer's neighbours, who all learn. An agent whose mean is
more than `gate` of its standard deviations below the best one's counts as excluded and is not drawn, where the source would
still draw it now and then; it comes back as its counts fade. An ability always keeps `detector.min_eligible` producers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log, sqrt
from typing import Any

from meshheal.agent import Agent, Work
from meshheal.beliefs import Beliefs, Change, Finding
from meshheal.config import Settings
from meshheal.methods.parts import asked, nobody, review, settled, share_score
from meshheal.network import Settled
from meshheal.opinion import Neighbour
from meshheal.rng import Stream
from meshheal.types import Ability, AgentId, ReviewRecord


class Posterior(Beliefs):
    """An observer's discounted counts of success and failure."""

    def __init__(
        self, me: AgentId, mine: Iterable[Ability], neighbours: Mapping[AgentId, Neighbour], settings: Settings
    ) -> None:
        super().__init__(me, mine, neighbours, settings)
        self._bandit = settings.methods.thompson
        self._counts: dict[AgentId, list[float]] = {}

    def counts(self, agent: AgentId) -> tuple[float, float]:
        """(alpha, beta) of the Beta distribution of an agent's scores; a flat prior is part of both."""
        good, bad = self._counts.get(agent, (0.0, 0.0))
        return 1.0 + good, 1.0 + bad

    def observe(self, record: ReviewRecord) -> list[Finding]:
        for held in self._counts.values():
            held[0] *= self._bandit.discount
            held[1] *= self._bandit.discount
        held = self._counts.setdefault(record.producer, [0.0, 0.0])
        held[0] += record.score
        held[1] += 1.0 - record.score
        best = max(a / (a + b) for a, b in map(self.counts, self._counts))
        return [change for agent in self._counts if (change := self._moved(agent, best)) is not None]

    def _moved(self, agent: AgentId, best: float) -> Change | None:
        """Out where its mean lies too many of its own standard deviations below the best one's; else in."""
        opinion = self.opinions[agent]
        a, b = self.counts(agent)
        behind = (best - a / (a + b)) / sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
        hopeless = behind > self._bandit.gate
        if hopeless and opinion.state == "healthy":
            if any(self._guard(agent, x) is not None for x in opinion.abilities):
                return None
            opinion.state = "excluded"
            return Change(agent, "", "healthy", "excluded", behind, "hardly ever drawn")
        if not hopeless and opinion.state == "excluded":
            opinion.state = "healthy"
            return Change(agent, "", "excluded", "healthy", 1.0, "drawn again")
        return None

    def checkpoint(self) -> Any:
        return {**super().checkpoint(), "counts": [[a, *held] for a, held in self._counts.items()]}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._counts = {a: [good, bad] for a, good, bad in state["counts"]}


async def settle(agent: Agent, work: Work) -> Settled:
    beliefs, task = agent.beliefs, work.task
    assert isinstance(beliefs, Posterior)
    drawn: dict[AgentId, float] = {}
    for a in agent.routing.producers(task.ability, agent.network.beat()):
        draws = Stream("thompson", agent.seed, task.id, agent.id, a)
        drawn[a] = _beta(*beliefs.counts(a), draws)
    for producer in sorted(drawn, key=lambda a: -drawn[a])[: agent.settings.routing.attempts]:
        answer = await asked(agent, work, producer)
        if answer is not None:
            reviewer, score = await review(agent, work, answer)
            await share_score(agent, work, answer, reviewer, score)
            return settled(work, "accepted", answer, answer)
    return nobody(work)


def _beta(a: float, b: float, draws: Stream) -> float:
    x = _gamma(a, draws)
    return x / (x + _gamma(b, draws))


def _gamma(shape: float, draws: Stream) -> float:
    """A gamma draw for a shape of at least 1 (Marsaglia and Tsang, ACM TOMS 2000)."""
    d = shape - 1 / 3
    c = 1 / sqrt(9 * d)
    while True:
        z = draws.normal()
        v = (1 + c * z) ** 3
        if v > 0 and log(max(draws.uniform(), 1e-300)) < z * z / 2 + d - d * v + d * log(v):
            return d * v
