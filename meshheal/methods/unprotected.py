"""No protection: the producer's answer is used as it is.

Source: none; the floor of every comparison.
Deviations: none.
"""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.methods.parts import nobody, produced, settled
from meshheal.network import Settled


async def settle(agent: Agent, work: Work) -> Settled:
    answer = await produced(agent, work)
    return nobody(work) if answer is None else settled(work, "direct", answer, answer)
