"""Oracles: methods that are told the truth, to bound what the others can reach. Marked, and never compared as equals.

Source: none; bounds. `oracle-fast` knows whether an answer is right, and its slow timescale works on the real review scores;
`oracle-slow` knows who is degraded, and its fast timescale is the real ladder; `oracle-router` knows who is degraded
and reviews nothing.
Parameters: MeshHeal's.
Deviations: they see the answer sheet or the schedule of swaps.
"""

from __future__ import annotations

from collections.abc import Collection

from meshheal.agent import Agent, Oracle, Work
from meshheal.errors import InternalError
from meshheal.methods.meshheal import Ended, Look, first_look, ladder, members_of, share, takeover
from meshheal.methods.parts import nobody, produced, settled
from meshheal.network import Settled
from meshheal.types import AgentId, Answer


def _truth(agent: Agent) -> Oracle:
    if agent.oracle is None:
        raise InternalError("an oracle method was run without an oracle")
    return agent.oracle


def _degraded(agent: Agent, ability: str) -> Collection[AgentId]:
    """Producers that are degraded now; none where all of them are."""
    holders = agent.routing.holders(ability)
    bad = [a for a in holders if _truth(agent).degraded(a)]
    return bad if len(bad) < len(holders) else ()


async def router(agent: Agent, work: Work) -> Settled:
    """Asks no degraded producer, and uses the answer as it is."""
    answer = await produced(agent, work, _degraded(agent, work.task.ability))
    return nobody(work) if answer is None else settled(work, "direct", answer, answer)


async def slow(agent: Agent, work: Work) -> Settled:
    """The real ladder, in which no degraded agent has a part."""
    sync(agent)
    answer = await produced(agent, work, _degraded(agent, work.task.ability))
    if answer is None:
        return nobody(work)
    _, ended = await ladder(agent, work, answer)
    return Settled(ended.outcome, answer.producer, ended.author, ended.value, work.usage, work.calls, work.cause)


def sync(agent: Agent) -> None:
    """Believe of each neighbour what is true now. Not an event of detection: nothing was detected."""
    for of, opinion in agent.beliefs.opinions.items():
        bad = bool(opinion.abilities) and all(of in _degraded(agent, ability) for ability in opinion.abilities)
        opinion.state = "excluded" if bad else "healthy"


async def fast(agent: Agent, work: Work) -> Settled:
    """The truth decides what becomes of an answer; the slow timescale reads the real first look."""
    truth, task = _truth(agent), work.task
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    look = await first_look(agent, work, answer)
    ended = Ended("accepted", answer.producer, answer.value)
    if answer.value is None or not truth.correct(task, answer.value):
        ended = await _best_of(agent, work, answer, look)
    await share(agent, work, answer, look, ended)
    agent.network.spawn(agent.prober.background())
    return Settled(ended.outcome, answer.producer, ended.author, ended.value, work.usage, work.calls, work.cause)


async def _best_of(agent: Agent, work: Work, answer: Answer, look: Look) -> Ended:
    """The members' answers; a right one where there is one."""
    used = Ended("committee", answer.producer, answer.value)
    ended = await takeover(agent, work, answer, members_of(agent, look), [look.reason], used)
    for author, value in ended.answers:
        if value is not None and _truth(agent).correct(work.task, value):
            ended.author, ended.value = author, value
            break
    return ended
