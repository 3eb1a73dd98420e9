"""Multi-agent debate: agents answer, read the others' full answers, answer again; the plurality of the last round.

Source: Du et al., "Improving Factuality and Reasoning through Multiagent Debate", arXiv 2305.14325, and its released code.
Parameters: `methods.debate.agents` (3), `methods.debate.rounds` (2), the source's own.
Deviations: an answer that cannot be read has no vote, and a task without one counts as wrong; the released evaluator for
GSM8K counts it as right. Ties are broken at random.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import elect, independent, nobody, revised, settled, team
from meshheal.network import Settled
from meshheal.types import Answer


async def settle(agent: Agent, work: Work) -> Settled:
    s = agent.settings.methods.debate
    answers = await independent(agent, work, team(agent, work, s.agents))
    if not answers:
        return nobody(work)
    first = answers[0]
    for n in range(1, s.rounds):
        answers = await another_round(agent, work, answers, n)
    return settled(work, "direct", first, elect(work, answers))


async def another_round(agent: Agent, work: Work, answers: list[Answer], n: int) -> list[Answer]:
    """Everybody's answer after reading the others'; who does not reply keeps its earlier one."""
    calls = []
    for own in answers:
        others = [a.text for a in answers if a is not own]
        calls.append(revised(agent, work, own.producer, prompts.debate(work.task, own.text, others), n))
    got = await agent.network.gather(calls)
    return [new if new is not None else old for new, old in zip(got, answers, strict=True)]
