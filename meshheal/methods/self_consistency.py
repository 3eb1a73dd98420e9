"""Self-consistency: several samples of one producer, the plurality of their answers.

Source: Wang et al., "Self-Consistency Improves Chain of Thought Reasoning", arXiv 2203.11171 (5 to 40 samples at T = .7).
Parameters: `methods.self_consistency.samples` (5).
Deviations: the samples are asked for in one request, whose prompt is billed once. Ties are broken at random.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods.parts import elect, nobody, note_answer, note_asked, read, settled, team, written
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    samples = agent.settings.methods.self_consistency.samples
    for producer in team(agent, work, agent.settings.routing.attempts):
        work.cause = note_asked(agent, work, producer)
        done = await written(agent, work, producer, "produce", work.task.messages, samples=samples)
        if done is not None:
            got = read(work, producer, done)
            note_answer(agent, work, got[0])
            return settled(work, "direct", got[0], elect(work, got))
    return nobody(work)
