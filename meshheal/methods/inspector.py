"""Inspector: another agent looks at the answer, says whether it is safe to use, and rewrites it where it is not.

Source: Huang et al., "On the Resilience of Multi-Agent Systems with Malicious Agents", arXiv 2408.00989, and its released code.
Parameters: `methods.inspector.unsafe_below` (.5).
Deviations: verdict and rewriting are two calls with MeshHeal's review and takeover prompts (one call with a JSON verdict in
the source), so that both cost what they cost elsewhere. The Challenger, a self-check added to every prompt, is left out:
its released form raises an error (a prompt's argument is missing).
"""

from __future__ import annotations

from meshheal import answers, reply
from meshheal.agent import Agent, Work
from meshheal.errors import NetworkError
from meshheal.methods.parts import nobody, produced, review, settled
from meshheal.network import Produced, Settled, TakeOver


async def settle(agent: Agent, work: Work) -> Settled:
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    inspector, score = await review(agent, work, answer)
    if score is None or score >= agent.settings.methods.inspector.unsafe_below:
        return settled(work, "accepted", answer, answer)
    if inspector is None:
        bench = agent.routing.reviewers_for(work.item, work.task.ability, answer.producer, agent.network.beat(), 1)
        if not bench:
            return settled(work, "accepted", answer, answer)
        inspector = bench[0]
    ask = TakeOver(work.task, answer, (), work.calls, work.cause)
    try:
        done: Produced = await agent.ask(inspector, ask)
    except NetworkError:
        return settled(work, "accepted", answer, answer)
    work.spend(done.usage)
    if done.failure:
        return settled(work, "accepted", answer, answer)
    work.cause = done.call
    rewritten = answers.to_answer(work.task, inspector, reply.visible(done.text), done.finish)
    return settled(work, "takeover", answer, rewritten if rewritten.value is not None else answer)
