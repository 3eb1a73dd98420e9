"""Symphony-Coord: several plans a task, executors chosen by a linear bandit that learns from how their chains were scored.

Source: arXiv 2602.00966 and GradientHQ/symphony-coord. The best `top` agents by .5 match + .35 prior success + .15 stability
are candidates; LinUCB (ridge 1, alpha 1) chooses by [1, match, load, latency, reputation, available]; the reward is success
minus .3 cost minus .05 latency, with .5 more for the plan whose answer won; reputation is an average with weight .05 on the new.
Parameters: `methods.symphony_coord.planners` (cot 3), `steps` (plan-k 3), `top` (topL 3), `alpha`, `cost`, `cost_unit`,
`slowness`.
Deviations: success is the score of one review of the chain's answer, as no truth is at hand; `symphony-coord-oracle` has the
source's own reward, the truth. Match is the cosine used for Symphony. Each coordinator learns for itself.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from msgspec import Struct

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import elect, nobody, review, revised, settled, team, written
from meshheal.methods.symphony import matching
from meshheal.network import Settled
from meshheal.types import AgentId, Answer

_BONUS = 0.5
_EMA = 0.05
_FEATURES = 6


class Standing:
    """What one coordinator holds of the others (reputation, its unrest, seconds a call), and the bandit's inverse and sums."""

    def __init__(self) -> None:
        self.reputation: dict[AgentId, float] = {}
        self.unrest: dict[AgentId, float] = {}
        self.seconds: dict[AgentId, float] = {}
        self.inverse = [[float(i == j) for j in range(_FEATURES)] for i in range(_FEATURES)]
        self.sums = [0.0] * _FEATURES

    def prior(self, agent: AgentId) -> float:
        """The part of the candidates' score that was learnt."""
        reputation = self.reputation.get(agent, _NEW)
        return 0.35 * reputation + 0.15 * (1.0 - self.unrest.get(agent, 0.0))

    def bound(self, x: list[float], alpha: float) -> float:
        """LinUCB's upper confidence bound for an agent with features `x` (Li et al., WWW 2010)."""
        ax = [sum(a * b for a, b in zip(row, x, strict=True)) for row in self.inverse]
        mean = sum(a * b for a, b in zip(ax, self.sums, strict=True))
        return mean + alpha * sqrt(max(0.0, sum(a * b for a, b in zip(ax, x, strict=True))))

    def learn(self, x: list[float], reward: float) -> None:
        """Sherman and Morrison's update of the inverse."""
        ax = [sum(a * b for a, b in zip(row, x, strict=True)) for row in self.inverse]
        scale = 1.0 + sum(a * b for a, b in zip(ax, x, strict=True))
        for i, row in enumerate(self.inverse):
            for j in range(_FEATURES):
                row[j] -= ax[i] * ax[j] / scale
        self.sums = [s + reward * v for s, v in zip(self.sums, x, strict=True)]

    def judge(self, agent: AgentId, success: float, seconds: float) -> None:
        old = self.reputation.get(agent, _NEW)
        self.reputation[agent] = (1 - _EMA) * old + _EMA * success
        self.unrest[agent] = (1 - _EMA) * self.unrest.get(agent, 0.0) + _EMA * abs(success - old)
        self.seconds[agent] = (1 - _EMA) * self.seconds.get(agent, seconds) + _EMA * seconds

    def state(self) -> Any:
        kept = [[list(pair) for pair in held.items()] for held in (self.reputation, self.unrest, self.seconds)]
        return [*kept, [list(row) for row in self.inverse], list(self.sums)]

    def restore(self, state: Any) -> None:
        self.reputation, self.unrest, self.seconds = (dict(map(tuple, held)) for held in state[:3])
        self.inverse, self.sums = [list(row) for row in state[3]], list(state[4])


_NEW = 0.5
"""Reputation of an agent that has not worked yet."""


class Chain(Struct):
    """One plan carried out: its answer, its executors as the bandit saw them, its tokens and seconds."""

    answer: Answer
    executors: list[tuple[AgentId, list[float]]]
    tokens: int
    seconds: float


async def settle(agent: Agent, work: Work) -> Settled:
    s = agent.settings.methods.symphony_coord
    standing = agent.memory(Standing)
    chains: list[Chain] = []
    for i, planner in enumerate(team(agent, work, s.planners)):
        done = await carried_out(agent, work, standing, planner, i)
        if done is not None:
            chains.append(done)
    if not chains:
        return nobody(work)
    used = elect(work, [c.answer for c in chains])
    for n, c in enumerate(chains):
        success = await succeeded(agent, work, c.answer, n)
        if success is None:
            continue
        reward = success - s.cost * c.tokens / s.cost_unit - s.slowness * c.seconds / 60
        reward += _BONUS * (used is not None and c.answer.value == used.value)
        for executor, x in c.executors:
            standing.learn(x, reward)
            standing.judge(executor, success, c.seconds / len(c.executors))
    return settled(work, "direct", chains[0].answer, used)


async def succeeded(agent: Agent, work: Work, answer: Answer, n: int) -> float | None:
    """How good a chain's answer is: the truth where it is at hand, else one review."""
    if agent.oracle is not None:
        return float(answer.value is not None and agent.oracle.correct(work.task, answer.value))
    _, score = await review(agent, work, answer, n)
    return score


async def carried_out(agent: Agent, work: Work, standing: Standing, planner: AgentId, i: int) -> Chain | None:
    s, task = agent.settings.methods.symphony_coord, work.task
    began, spent = agent.network.now(), work.usage.total
    plan = await written(agent, work, planner, "plan", prompts.plan(task, s.steps), n=i)
    todo = prompts.read_plan("" if plan is None else plan.texts[0], s.steps)
    before: list[str] = []
    executors: list[tuple[AgentId, list[float]]] = []
    answer: Answer | None = None
    for k, step in enumerate(todo):
        chosen = by_bandit(agent, work, standing, i * s.steps + k + 1)
        if chosen is None:
            return None
        executors.append(chosen)
        words = prompts.step(task, step, before, k + 1, s.steps)
        answer = await revised(agent, work, chosen[0], words, 1 + i * s.steps + k)
        if answer is not None:
            before.append(answer.text)
    if answer is None:
        return None
    return Chain(answer, executors, work.usage.total - spent, agent.network.now() - began)


def by_bandit(agent: Agent, work: Work, standing: Standing, draw: int) -> tuple[AgentId, list[float]] | None:
    """(executor, its features) of a subtask."""
    s, ability = agent.settings.methods.symphony_coord, work.task.ability
    # A ranking by draw first: among equals the sort keeps it.
    ranked = team(agent, work, len(agent.neighbours) + 1, salt=draw)
    ranked.sort(key=lambda a: -(0.5 * matching(agent, a, ability) + standing.prior(a)))
    best: tuple[AgentId, list[float]] | None = None
    bound = float("-inf")
    for a in ranked[: s.top]:
        load = float(agent.routing.load.get(a, 0))
        reputation, seconds = standing.reputation.get(a, _NEW), standing.seconds.get(a, 0.0)
        x = [1.0, matching(agent, a, ability), load, seconds / 60, reputation, 1.0]
        value = standing.bound(x, s.alpha)
        if value > bound + 1e-12:
            best, bound = (a, x), value
    return best
