"""Plurality vote: several producers answer independently; the answer that most give is used.

Source: none; what MeshHeal's tokens buy without review.
Parameters: `methods.vote.answers` (2.7): the mean number of answers a task, a fraction drawn per task, set so that a task
costs about what it costs under MeshHeal.
Deviations: none. Ties are broken at random.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods.parts import elect, independent, nobody, settled, team
from meshheal.network import Settled
from meshheal.rng import mix


async def settle(agent: Agent, work: Work) -> Settled:
    wanted = agent.settings.methods.vote.answers
    size = int(wanted) + (mix(work.item, _SIZE) * 2.0**-64 < wanted % 1)
    answers = await independent(agent, work, team(agent, work, size))
    return settled(work, "direct", answers[0], elect(work, answers)) if answers else nobody(work)


_SIZE = 11
"""Salt of the draw of the number of answers."""
