"""CrS: answers are aggregated by the credibility of who gives them; a judge's reward of the result moves credibility.

Source: Ebrahimi et al., "An Adversary-Resistant Multi-Agent LLM System via Credibility Scoring", arXiv 2505.24239. Credibility is
multiplied by 1 + eta x contribution x reward; the update's exact form is recalled from the paper, not checked against code.
Parameters: `methods.crs.agents` (3), `methods.crs.eta` (.2), `methods.crs.floor` (.05).
Deviations: the result is the answer with the most credibility behind it. The reward is 2 x score - 1 of one review of it;
an agent's contribution is 1 over the number of agents behind the result if it is one of them, -1 over the number of the
others else. Each coordinator keeps credibilities of its own, scaled to a mean of 1.
"""

from __future__ import annotations

from typing import Any

from meshheal import answers as reading
from meshheal.agent import Agent, Work
from meshheal.methods.parts import elect, independent, nobody, review, settled, team
from meshheal.network import Settled
from meshheal.types import AgentId


class Credibility:
    """One coordinator's credibilities; 1 for an agent that has not answered yet."""

    def __init__(self) -> None:
        self.of: dict[AgentId, float] = {}

    def learn(self, contributions: dict[AgentId, float], reward: float, eta: float, floor: float) -> None:
        for agent, part in contributions.items():
            self.of[agent] = max(floor, self.of.get(agent, 1.0) * (1.0 + eta * part * reward))
        mean = sum(self.of.values()) / len(self.of)
        self.of = {a: max(floor, c / mean) for a, c in self.of.items()}

    def state(self) -> Any:
        return [list(pair) for pair in self.of.items()]

    def restore(self, state: Any) -> None:
        self.of = dict(map(tuple, state))


async def settle(agent: Agent, work: Work) -> Settled:
    s, credibility = agent.settings.methods.crs, agent.memory(Credibility)
    answers = await independent(agent, work, team(agent, work, s.agents))
    if not answers:
        return nobody(work)
    used = elect(work, answers, [credibility.of.get(a.producer, 1.0) for a in answers])
    if used is None or used.value is None:
        return settled(work, "direct", answers[0], None)
    form, value = work.task.form, used.value
    behind = {a.producer for a in answers if a.value is not None and reading.same(form, value, a.value)}
    others = len(answers) - len(behind)
    _, score = await review(agent, work, used)
    if score is not None:
        parts = {a.producer: 1 / len(behind) if a.producer in behind else -1 / others for a in answers}
        credibility.learn(parts, 2 * score - 1, s.eta, s.floor)
    return settled(work, "direct", answers[0], used)
