"""Symphony as its paper says: planners, chains of subtasks handed out over a beacon, a vote weighted by matching scores.

Source: "Symphony: A Decentralized Multi-Agent Framework", arXiv 2508.20019. M planners each decompose the task into K
subtasks; for each subtask a beacon asks all agents for their matching score (cosine of capability and requirement) and the
best executes it, seeing all results before; each chain's answer has the mean score of its executors as weight.
Parameters: `methods.symphony.planners` M (3; the paper's ablation has 1), `steps` K (4), `max_output`, `beacon`
(`score`, or `random` as in the paper's ablation).
Deviations: planners hold the task's ability. Requirement is the task's ability and capability the agent's set of abilities,
so that all holders of as many abilities match alike; among these the executor is drawn. On simulated models decomposition
neither helps nor harms: each step is answered with its executor's ability and may follow the results it sees.
"""

from __future__ import annotations

from math import sqrt

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import elect, nobody, revised, settled, team, written
from meshheal.network import Settled
from meshheal.rng import mix
from meshheal.types import ANY, Ability, AgentId, Answer


async def settle(agent: Agent, work: Work) -> Settled:
    s = agent.settings.methods.symphony
    planners = team(agent, work, s.planners)
    chains = await agent.network.gather([chain(agent, work, p, i) for i, p in enumerate(planners)])
    done = [c for c in chains if c is not None]
    if not done:
        return nobody(work)
    used = elect(work, [answer for answer, _ in done], [weight for _, weight in done])
    return settled(work, "direct", done[0][0], used)


async def chain(agent: Agent, work: Work, planner: AgentId, i: int) -> tuple[Answer, float] | None:
    """(answer, mean matching score of its executors) of one planner's chain; None where nobody carried out its last step."""
    s, task = agent.settings.methods.symphony, work.task
    asked = prompts.plan(task, s.steps)
    plan = await written(agent, work, planner, "plan", asked, n=i, max_output=s.max_output)
    todo = prompts.read_plan("" if plan is None else plan.texts[0], s.steps)
    before: list[str] = []
    scores: list[float] = []
    answer: Answer | None = None
    for k, step in enumerate(todo):
        executor = by_beacon(agent, work, i * s.steps + k + 1)
        if executor is None:
            return None
        scores.append(matching(agent, executor, task.ability))
        words = prompts.step(task, step, before, k + 1, s.steps)
        answer = await revised(agent, work, executor, words, _CALL + i * s.steps + k, s.max_output)
        if answer is not None:
            before.append(answer.text)
    return None if answer is None else (answer, sum(scores) / len(scores))


def by_beacon(agent: Agent, work: Work, draw: int) -> AgentId | None:
    """Who carries out a subtask: the best match, among equals by a draw."""
    routing, beat = agent.routing, agent.network.beat()
    if agent.settings.methods.symphony.beacon == "random":
        everyone = sorted((agent.id, *agent.neighbours))
        return everyone[mix(mix(work.item, draw), agent.seed) % len(everyone)]
    item = mix(work.item, draw)
    ability = work.task.ability
    eligible = routing.producers(ability, beat)
    best = max((matching(agent, a, ability) for a in eligible), default=0.0)
    weaker = [a for a in eligible if matching(agent, a, ability) < best]
    return routing.producer_for(item, ability, beat, weaker)


def matching(agent: Agent, of: AgentId, ability: Ability) -> float:
    """Cosine of an agent's set of abilities with the one that is required."""
    held = agent.me.abilities if of == agent.id else agent.neighbours[of].abilities
    if ability == ANY:
        return 1.0
    return 1.0 / sqrt(len(held)) if ability in held else 0.0


_CALL = 1
"""Steps are numbered from here among an agent's calls about a task."""
