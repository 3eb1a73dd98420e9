"""Mixture-of-agents: proposers answer, an aggregator writes one answer out of theirs.

Source: Wang et al., "Mixture-of-Agents Enhances Large Language Model Capabilities", arXiv 2406.04692, and the script of its
released code with four proposers and an aggregator.
Parameters: `methods.moa.proposers` (4), `methods.moa.layers` (1).
Deviations: the aggregator is the agent that comes first for the task, not one chosen as the strongest; a failed aggregator
leaves the first proposal.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import independent, nobody, revised, settled, team
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    s = agent.settings.methods.moa
    proposals = await independent(agent, work, team(agent, work, s.proposers))
    if not proposals:
        return nobody(work)
    first = proposals[0]
    for n in range(1, s.layers):
        seen = prompts.aggregate(work.task, [p.text for p in proposals])
        got = await agent.network.gather([revised(agent, work, p.producer, seen, n) for p in proposals])
        proposals = [new or old for new, old in zip(got, proposals, strict=True)]
    seen = prompts.aggregate(work.task, [p.text for p in proposals])
    used = await revised(agent, work, first.producer, seen, s.layers)
    return settled(work, "direct", first, used or first)
