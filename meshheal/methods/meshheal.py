"""The MeshHeal protocol (arXiv 2609.29015): first look, committee, takeover; the first look's score is the evidence."""

from __future__ import annotations

from msgspec import Struct

from meshheal import answers, reply
from meshheal.agent import Agent, Work
from meshheal.errors import NetworkError
from meshheal.events import CommitteeMet, FirstLook, Outcome, TookOver
from meshheal.methods.parts import produced
from meshheal.network import Produced, Reviewed, ReviewIt, Settled, TakeOver
from meshheal.review import plurality
from meshheal.types import AgentId, Answer, Review, ReviewRecord, Score, Unscored

_REVIEWERS_TRIED = 3
"""Reviewers asked in turn for a first look before an output counts as unscored."""


async def settle(agent: Agent, work: Work) -> Settled:
    """Bring one task from its coordinator to a settled answer."""
    answer = await produced(agent, work)
    if answer is None:
        return Settled("unanswered", usage=work.usage, calls=work.calls, cause=work.cause)
    look, ended = await ladder(agent, work, answer)
    await share(agent, work, answer, look, ended)
    agent.network.spawn(agent.prober.background())
    return Settled(ended.outcome, answer.producer, ended.author, ended.value, work.usage, work.calls, work.cause)


async def ladder(agent: Agent, work: Work, answer: Answer) -> tuple[Look, Ended]:
    """The fast timescale: (first look, how it ended)."""
    look = await first_look(agent, work, answer)
    ended = Ended("accepted", answer.producer, answer.value)
    if look.decision != "accept":
        ended = await committee(agent, work, answer, look)
    return look, ended


class Look(Struct):
    """A first look: the reviewer (None: nobody could score), its mean score and reason, and the decision."""

    reviewer: AgentId | None
    scores: list[float]
    reason: str
    decision: str
    bench: list[AgentId]
    """Eligible reviewers that have not been asked yet."""
    score: float | None = None
    """The mean of the scores."""

    def __post_init__(self) -> None:
        if self.scores:
            self.score = sum(self.scores) / len(self.scores)


class Ended(Struct):
    """How the ladder ended, whose answer is used, and the votes on the way."""

    outcome: Outcome
    author: AgentId | None
    value: str | None
    verdict: float | None = None
    votes: tuple[tuple[AgentId, float], ...] = ()
    answers: tuple[tuple[AgentId, str | None], ...] = ()


async def first_look(agent: Agent, work: Work, answer: Answer) -> Look:
    """One reviewer's score; more of its scores where it is low or near the cut; another reviewer where it has none."""
    task, producer = work.task, answer.producer
    bench = agent.routing.reviewers_for(work.item, task.ability, producer, agent.network.beat(), _FIRST_LOOK)
    state = agent.beliefs.state(producer, task.ability)
    if answer.fault:
        # An output that cannot be read needs no reader: it is the producer's failure, scored 0.
        _note_look(agent, work, Look(None, [0.0], answer.fault, "committee", bench), producer, (), "low")
        return Look(None, [0.0], answer.fault, "committee", bench)
    unscored: list[str] = []
    for reviewer in bench[:_REVIEWERS_TRIED]:
        bench = [a for a in bench if a != reviewer]
        reviews = await _ask_review(agent, work, answer, reviewer, agent.ladder.samples_first())
        scores = [r.value for r in reviews if isinstance(r, Score)]
        more = agent.ladder.samples_more(scores)
        if more:
            reviews += await _ask_review(agent, work, answer, reviewer, more, n=1)
            scores = [r.value for r in reviews if isinstance(r, Score)]
        unscored += [r.reason for r in reviews if isinstance(r, Unscored)]
        if scores:
            found = agent.ladder.look(scores, state)
            reason = next(r.reason for r in reviews if isinstance(r, Score))
            look = Look(reviewer, scores, reason, found.decision, bench)
            _note_look(agent, work, look, producer, tuple(unscored), found.why)
            return look
    look = Look(None, [], "", "committee" if bench else "accept", bench)
    _note_look(agent, work, Look(None, [], "", "unscored", bench), producer, tuple(unscored), "unscored")
    return look


_FIRST_LOOK = 1
"""Salt of the reviewer draw."""


def _note_look(agent: Agent, work: Work, look: Look, producer: AgentId, unscored: tuple[str, ...], why: str) -> None:
    journal = agent.journal
    work.cause = journal.write(
        FirstLook(
            node=agent.id,
            incarnation=journal.incarnation,
            seq=journal.next(),
            t=journal.now(),
            task=work.task.id,
            step=work.calls,
            causes=(work.cause,),
            producer=producer,
            reviewer=-1 if look.reviewer is None else look.reviewer,
            scores=tuple(look.scores),
            unscored=unscored,
            decision=look.decision,  # type: ignore[arg-type]
            why=why,  # type: ignore[arg-type]
        )
    )


async def _ask_review(
    agent: Agent,
    work: Work,
    answer: Answer,
    reviewer: AgentId,
    samples: int,
    n: int = 0,
    opinions: tuple[Review, ...] = (),
) -> list[Review]:
    ask = ReviewIt(work.task, answer, samples, n, opinions, work.calls, work.cause)
    try:
        reviewed: Reviewed = await agent.ask(reviewer, ask)
    except NetworkError:
        return [Unscored("timeout")]
    work.spend(reviewed.usage)
    return list(reviewed.reviews)


async def committee(agent: Agent, work: Work, answer: Answer, look: Look) -> Ended:
    """Independent votes, a second round where they disagree, then the verdict; a takeover where it rejects."""
    used = Ended("committee", answer.producer, answer.value)
    members = members_of(agent, look)
    if agent.over_budget(work):
        return Ended("budget_exhausted", answer.producer, answer.value)
    if answer.fault:
        return await takeover(agent, work, answer, members, [f"The answer was {answer.fault}."], used)
    asked = [m for m in members if m != look.reviewer]
    replies = await agent.network.gather([_ask_review(agent, work, answer, m, 1) for m in asked])
    opinions: dict[AgentId, Review] = {m: r[0] for m, r in zip(asked, replies, strict=True)}
    if look.reviewer is not None and look.score is not None:
        opinions[look.reviewer] = Score(look.score, look.reason)
    first = {m: o.value for m, o in opinions.items() if isinstance(o, Score)}
    votes, split = first, agent.ladder.split(list(first.values()))
    if split and not agent.over_budget(work):
        votes = await _deliberate(agent, work, answer, opinions)
    verdict = agent.ladder.verdict(votes, agent.model_of)
    work.cause = agent.journal.add(
        CommitteeMet,
        work.task.id,
        (work.cause,),
        work.calls,
        producer=answer.producer,
        members=tuple(opinions),
        scores=tuple(first.get(m) for m in opinions),
        deliberated=tuple(votes.get(m) for m in opinions) if votes is not first else (),
        verdict=verdict,
        split=split,
    )
    used.verdict, used.votes = verdict, tuple(first.items())
    if verdict is not None and not agent.ladder.rejects(verdict):
        return used
    if agent.over_budget(work):
        used.outcome = "budget_exhausted"
        return used
    cut = agent.settings.review.accept_at
    reasons = [o.reason for o in opinions.values() if isinstance(o, Score) and o.value < cut and o.reason]
    return await takeover(agent, work, answer, members, reasons, used)


def members_of(agent: Agent, look: Look) -> list[AgentId]:
    """The first-look reviewer and others, as many different models among them as there are."""
    members = [] if look.reviewer is None else [look.reviewer]
    bench = list(look.bench)
    while bench and len(members) < agent.settings.review.committee:
        have = {agent.model_of(m) for m in members}
        nxt = next((a for a in bench if agent.model_of(a) not in have), bench[0])
        bench.remove(nxt)
        members.append(nxt)
    return members


async def _deliberate(
    agent: Agent, work: Work, answer: Answer, opinions: dict[AgentId, Review]
) -> dict[AgentId, float]:
    """The members' scores after each has seen the others'; a member that then has none keeps its first."""
    members = list(opinions)
    replies = await agent.network.gather(
        [
            _ask_review(agent, work, answer, m, 1, opinions=tuple(o for a, o in opinions.items() if a != m))
            for m in members
        ]
    )
    votes: dict[AgentId, float] = {}
    for member, reviews in zip(members, replies, strict=True):
        first, second = opinions[member], reviews[0]
        if isinstance(second, Score):
            votes[member] = second.value
        elif isinstance(first, Score):
            votes[member] = first.value
    return votes


async def takeover(
    agent: Agent, work: Work, answer: Answer, members: list[AgentId], criticisms: list[str], used: Ended
) -> Ended:
    """The members answer the task themselves; the plurality of theirs and the producer's answer is used."""
    if not agent.settings.review.takeover or not members:
        return used
    ask = TakeOver(work.task, answer, tuple(criticisms), work.calls, work.cause)
    replies = await agent.network.gather([_ask_takeover(agent, m, ask) for m in members])
    candidates: list[tuple[AgentId, str | None]] = []
    for member, done in zip(members, replies, strict=True):
        if done is not None:
            work.spend(done.usage)
            if not done.failure:
                read = answers.to_answer(work.task, member, reply.visible(done.text), done.finish)
                candidates.append((member, read.value))
    candidates.append((answer.producer, answer.value))
    form = work.task.form
    chosen = plurality(candidates, lambda a, b: answers.same(form, a, b), agent.beliefs.evidence)
    if chosen is None:
        return used
    value = dict(candidates)[chosen]
    work.cause = agent.journal.add(
        TookOver,
        work.task.id,
        (work.cause,),
        work.calls,
        producer=answer.producer,
        members=tuple(a for a, _ in candidates),
        values=tuple(v for _, v in candidates),
        chosen=chosen,
        replaced=value != answer.value,
    )
    return Ended("takeover", chosen, value, used.verdict, used.votes, tuple(candidates))


async def _ask_takeover(agent: Agent, member: AgentId, ask: TakeOver) -> Produced | None:
    try:
        return await agent.ask(member, ask)  # type: ignore[no-any-return]
    except NetworkError:
        return None


async def share(
    agent: Agent, work: Work, answer: Answer, look: Look, ended: Ended, credited: AgentId | None = None
) -> None:
    """The score belongs to the original producer, whoever's answer is used; agreed answers become references.

    `credited`: another agent to give the score to, as an ablation does.
    """
    task = work.task
    if look.score is not None:
        record = ReviewRecord(
            id=agent.record_id(),
            task=task.id,
            producer=answer.producer if credited is None else credited,
            ability=task.ability,
            kind=task.kind,
            channel="first_look",
            score=look.score,
            reviewers=() if look.reviewer is None else (look.reviewer,),
            coordinator=agent.id,
            time=agent.network.now(),
            committee=ended.verdict,
            votes=ended.votes,
        )
        work.cause = await agent.share(record, work.cause)
    agreed, answered = _agreement(agent, work, answer, look, ended)
    rejected = look.reviewer is not None and look.score is not None and look.score < agent.settings.review.accept_at
    disputed = (agent.model_of(look.reviewer),) if rejected and look.reviewer is not None else ()
    agent.prober.remember(task, answer.producer, answer.value, answered, disputed)
    if ended.value is not None:
        agent.prober.bank_if_agreed(task, ended.value, agreed, answered, work.cause)


def _agreement(
    agent: Agent, work: Work, answer: Answer, look: Look, ended: Ended
) -> tuple[list[AgentId], list[AgentId]]:
    """(who stands behind the answer that is used, who has seen the task)."""
    accept = agent.settings.review.accept_at
    seen = [answer.producer, *(a for a, _ in ended.votes), *(a for a, _ in ended.answers)]
    if look.reviewer is not None:
        seen.append(look.reviewer)
    if ended.answers:
        form, value = work.task.form, ended.value
        agreed = [a for a, v in ended.answers if v is not None and value is not None and answers.same(form, value, v)]
    else:
        agreed = [answer.producer, *(a for a, v in ended.votes if v >= accept)]
        if look.reviewer is not None and look.score is not None and look.score >= accept:
            agreed.append(look.reviewer)
    return sorted(set(agreed)), sorted(set(seen))
