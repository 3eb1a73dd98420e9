"""Steps that methods share."""

from __future__ import annotations

from meshheal.agent import Agent, Work
from meshheal.events import Answered, ProducerAsked
from meshheal.types import AgentId, Answer


async def produced(agent: Agent, work: Work) -> Answer | None:
    """An answer from the ranked producers, the next one where one stays silent; None when all attempts did."""
    task, journal, tried = work.task, agent.journal, list[AgentId]()
    for _ in range(agent.settings.routing.attempts):
        producer = agent.routing.producer_for(work.item, task.ability, agent.network.beat(), tried)
        if producer is None:
            return None
        tried.append(producer)
        opinion = agent.beliefs.opinions.get(producer)
        cause = journal.write(
            ProducerAsked(
                node=agent.id,
                incarnation=journal.incarnation,
                seq=journal.next(),
                t=journal.now(),
                task=task.id,
                step=work.calls,
                causes=(work.cause,),
                producer=producer,
                ability=task.ability,
                state=agent.beliefs.state(producer, task.ability),
                mandated=opinion is not None and opinion.withheld,
            )
        )
        answer = await agent.ask_producer(work, producer, cause)
        if answer is not None:
            work.cause = journal.write(
                Answered(
                    node=agent.id,
                    incarnation=journal.incarnation,
                    seq=journal.next(),
                    t=journal.now(),
                    task=task.id,
                    step=work.calls,
                    causes=(work.cause,),
                    producer=producer,
                    value=answer.value,
                    fault=answer.fault,
                    text=journal.text(answer.text),
                )
            )
            return answer
    return None
