"""Self-consistency: several samples of one producer, the plurality of their answers.

Source: Wang et al., "Self-Consistency Improves Chain of Thought Reasoning", arXiv 2203.11171 (5 to 40 samples at T = .7).
Parameters: `methods.self_consistency.samples` (5).
Deviations: the samples are asked for in one request, whose prompt is billed once. Ties are broken at random.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods.parts import elect, nobody, read, settled, team, written
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    samples = agent.settings.methods.self_consistency.samples
    for producer in team(agent, work, agent.settings.routing.attempts):
        done = await written(agent, work, producer, "produce", work.task.messages, samples=samples)
        if done is not None:
            got = read(work, producer, done)
            return settled(work, "direct", got[0], elect(work, got))
    return nobody(work)
