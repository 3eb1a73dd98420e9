"""Steps that methods share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from meshheal import answers, reply
from meshheal.agent import Agent, Work
from meshheal.errors import NetworkError
from meshheal.events import Answered, EventId, Outcome, ProducerAsked, State, StateChanged
from meshheal.model import Purpose
from meshheal.network import Consult, Consulted, Reviewed, ReviewIt, Settled
from meshheal.rng import mix
from meshheal.types import AgentId, Answer, Message, ReviewRecord, Score


async def produced(agent: Agent, work: Work, but: Collection[AgentId] = ()) -> Answer | None:
    """An answer from the ranked producers without those in `but`, the next one where one stays silent; None when all
    attempts did."""
    task, tried = work.task, list(but)
    for _ in range(agent.settings.routing.attempts):
        producer = agent.routing.producer_for(work.item, task.ability, agent.network.beat(), tried)
        if producer is None:
            return None
        tried.append(producer)
        answer = await asked(agent, work, producer)
        if answer is not None:
            return answer
    return None


async def asked(agent: Agent, work: Work, producer: AgentId) -> Answer | None:
    """One producer's answer; None where it stayed silent."""
    answer = await agent.ask_producer(work, producer, note_asked(agent, work, producer))
    if answer is not None:
        note_answer(agent, work, answer)
    return answer


def note_asked(agent: Agent, work: Work, producer: AgentId) -> EventId:
    """Write down that a producer is given the task."""
    task, journal, opinion = work.task, agent.journal, agent.beliefs.opinions.get(producer)
    return journal.write(
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


def note_answer(agent: Agent, work: Work, answer: Answer) -> None:
    """Write down a producer's output as it was read."""
    journal = agent.journal
    work.cause = journal.write(
        Answered(
            node=agent.id,
            incarnation=journal.incarnation,
            seq=journal.next(),
            t=journal.now(),
            task=work.task.id,
            step=work.calls,
            causes=(work.cause,),
            producer=answer.producer,
            value=answer.value,
            fault=answer.fault,
            text=journal.text(answer.text),
        )
    )


def team(agent: Agent, work: Work, size: int, salt: int = 0) -> list[AgentId]:
    """The first `size` producers of the task's ranking: without `salt`, the one that other methods ask comes first."""
    found: list[AgentId] = []
    item = mix(work.item, salt) if salt else work.item
    while len(found) < size:
        nxt = agent.routing.producer_for(item, work.task.ability, agent.network.beat(), found)
        if nxt is None:
            break
        found.append(nxt)
    return found


async def independent(agent: Agent, work: Work, agents: Sequence[AgentId]) -> list[Answer]:
    """The answers of several producers that do not see one another; without those that stayed silent."""
    got = await agent.network.gather([asked(agent, work, a) for a in agents])
    return [answer for answer in got if answer is not None]


async def written(
    agent: Agent,
    work: Work,
    to: AgentId,
    purpose: Purpose,
    messages: tuple[Message, ...],
    *,
    n: int = 0,
    samples: int = 1,
    max_output: int | None = None,
) -> Consulted | None:
    """What an agent's model writes to a prompt of the method's own; None where it stayed silent or failed."""
    ask = Consult(work.task, purpose, messages, n, samples, max_output, work.calls, work.cause)
    try:
        done: Consulted = await agent.ask(to, ask)
    except NetworkError:
        return None
    work.spend(done.usage)
    if done.failure:
        return None
    work.cause = done.call
    return done


def read(work: Work, by: AgentId, done: Consulted | None) -> list[Answer]:
    """The texts of a reply as answers; none where there was no reply."""
    if done is None:
        return []
    return [answers.to_answer(work.task, by, reply.visible(text), done.finish) for text in done.texts]


async def revised(
    agent: Agent, work: Work, by: AgentId, messages: tuple[Message, ...], n: int, max_output: int | None = None
) -> Answer | None:
    """An agent's answer after what the prompt shows it."""
    got = read(work, by, await written(agent, work, by, "revise", messages, n=n, max_output=max_output))
    return got[0] if got else None


def elect(work: Work, candidates: Sequence[Answer], weights: Sequence[float] = ()) -> Answer | None:
    """The answer with the most weight behind it (1 each by default); ties are broken at random per task.

    An answer without a value has no vote. None: nobody has one.
    """
    groups: list[list[tuple[Answer, float]]] = []
    for i, answer in enumerate(candidates):
        if answer.value is None:
            continue
        weighed = (answer, weights[i] if weights else 1.0)
        for group in groups:
            if answers.same(work.task.form, group[0][0].value or "", answer.value):
                group.append(weighed)
                break
        else:
            groups.append([weighed])
    if not groups:
        return None
    best = max(groups, key=lambda g: (round(sum(w for _, w in g), 9), mix(work.item, g[0][0].producer)))
    return best[0][0]


async def review(agent: Agent, work: Work, answer: Answer, n: int = 0) -> tuple[AgentId | None, float | None]:
    """(reviewer, its score) of an answer by the reviewer that MeshHeal would ask first; the next where it gives none.

    An answer that cannot be read needs no reader: it is scored 0.
    """
    if answer.fault:
        return None, 0.0
    task = work.task
    bench = agent.routing.reviewers_for(work.item, task.ability, answer.producer, agent.network.beat(), 1)
    for reviewer in bench[:3]:
        ask = ReviewIt(task, answer, n=n, step=work.calls, cause=work.cause)
        try:
            done: Reviewed = await agent.ask(reviewer, ask)
        except NetworkError:
            continue
        work.spend(done.usage)
        work.cause = done.call
        scores = [r.value for r in done.reviews if isinstance(r, Score)]
        if scores:
            return reviewer, scores[0]
    return None, None


async def share_score(agent: Agent, work: Work, answer: Answer, reviewer: AgentId | None, score: float | None) -> None:
    """Tell the neighbours of an answer's producer how it was scored."""
    if score is None:
        return
    task = work.task
    record = ReviewRecord(
        id=agent.record_id(),
        task=task.id,
        producer=answer.producer,
        ability=task.ability,
        kind=task.kind,
        channel="first_look",
        score=score,
        reviewers=() if reviewer is None else (reviewer,),
        coordinator=agent.id,
        time=agent.network.now(),
    )
    work.cause = await agent.share(record, work.cause)


def believe(agent: Agent, of: AgentId, to: State, evidence: float, reason: str, task: str = "") -> None:
    """Change what this observer holds of a neighbour, and write it down."""
    opinion = agent.beliefs.opinions[of]
    if opinion.state == to:
        return
    agent.journal.add(
        StateChanged, task, agent=of, before=opinion.state, to=to, evidence=max(1.0, evidence), reason=reason
    )
    opinion.state = to
    agent.network.spawn(agent.advertise())


def spared(agent: Agent, of: AgentId) -> bool:
    """Whether excluding a neighbour would leave one of its abilities without two other producers around."""
    held, beat = agent.neighbours[of].abilities, agent.network.beat()
    return any(sum(a != of for a in agent.routing.producers(ability, beat)) < 2 for ability in held)


def nobody(work: Work) -> Settled:
    """No producer replied."""
    return Settled("unanswered", usage=work.usage, calls=work.calls, cause=work.cause)


def settled(work: Work, outcome: Outcome, asked_first: Answer, used: Answer | None) -> Settled:
    """The task ends with an answer that is used (None: with nothing readable)."""
    author = asked_first if used is None else used
    value = None if used is None else used.value
    return Settled(outcome, asked_first.producer, author.producer, value, work.usage, work.calls, work.cause)
