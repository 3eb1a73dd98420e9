"""Self-Refine: the producer criticises its own answer and answers again, until it finds no fault.

Source: Madaan et al., "Self-Refine: Iterative Refinement with Self-Feedback", arXiv 2303.17651 (at most 4 iterations).
Parameters: `methods.self_refine.rounds` (4), `methods.self_refine.stop_at` (.6).
Deviations: the feedback ends with a score, and refinement stops at `stop_at` instead of at a phrase. Feedback that cannot
be read stops too, as nothing was found.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import nobody, produced, revised, settled, written
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    s, task = agent.settings.methods.self_refine, work.task
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    for n in range(1, s.rounds + 1):
        asked = prompts.feedback(task, answer.text)
        done = await written(agent, work, answer.producer, "judge", asked, n=n)
        found = None if done is None else prompts.read_scores(done.texts[0], 1)
        if found is None or found.scores[0] >= s.stop_at:
            break
        again = prompts.refine(task, answer.text, found.feedback)
        answer = await revised(agent, work, answer.producer, again, n) or answer
    return settled(work, "direct", answer, answer)
