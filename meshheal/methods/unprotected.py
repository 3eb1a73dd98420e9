"""No protection: the producer's answer is used as it is."""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods.parts import produced
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    answer = await produced(agent, work)
    if answer is None:
        return Settled("unanswered", usage=work.usage, calls=work.calls, cause=work.cause)
    return Settled("direct", answer.producer, answer.producer, answer.value, work.usage, work.calls, work.cause)
