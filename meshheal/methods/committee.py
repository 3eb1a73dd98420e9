"""Always a committee: every answer is judged by a full committee, with deliberation and takeover; nobody is ever excluded.

Source: MeshHeal's own fast timescale (arXiv 2609.29015) without a first look and without the slow timescale.
Parameters: those of `review`.
Deviations: none.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods.meshheal import Look, committee
from meshheal.methods.parts import nobody, produced
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    bench = agent.routing.reviewers_for(work.item, work.task.ability, answer.producer, agent.network.beat(), 1)
    ended = await committee(agent, work, answer, Look(None, [], "", "committee", bench))
    return Settled(ended.outcome, answer.producer, ended.author, ended.value, work.usage, work.calls, work.cause)
