"""What an agent does for its peers with its models: answers, scores, takes over, is consulted."""

from __future__ import annotations

from meshheal import likelihood, prompts
from meshheal.calls import Called, Caller
from meshheal.config import Reviewing
from meshheal.network import Consult, Consulted, Produce, Produced, Reviewed, ReviewIt, TakeOver
from meshheal.types import AgentId, Score, Unscored


class Service:
    """One agent's models behind the requests of the protocol."""

    __slots__ = ("_caller", "_me", "_settings")

    def __init__(self, me: AgentId, settings: Reviewing, caller: Caller) -> None:
        self._me = me
        self._settings = settings
        self._caller = caller

    async def produce(self, ask: Produce) -> Produced:
        """Answer a task with the model bound to its ability."""
        task = ask.task
        done = await self._caller.call(
            ask.purpose,
            task.ability,
            task.id,
            self._me,
            prompts.produce(task),
            n=ask.n,
            step=ask.step,
            inputs=() if ask.cause is None else (ask.cause,),
            probing=ask.purpose == "probe",
        )
        return Produced(done.texts[0] if done.texts else "", done.finish, done.usage, done.event, done.failure)

    async def review(self, ask: ReviewIt) -> Reviewed:
        """Score an answer; with opinions, having seen them."""
        task, answer = ask.task, ask.answer
        if self._settings.by == "likelihood":
            return await self._weigh(ask)
        opinions = [o for o in ask.opinions if isinstance(o, Score)]
        messages = (
            prompts.deliberate(task, answer.text, opinions) if ask.opinions else prompts.review(task, answer.text)
        )
        done = await self._caller.call(
            "deliberate" if ask.opinions else "review",
            task.ability,
            task.id,
            answer.producer,
            messages,
            n=ask.n,
            samples=ask.samples,
            step=ask.step,
            inputs=() if ask.cause is None else (ask.cause,),
            probing=ask.probing,
        )
        if done.failure:
            return _unreviewed(done)
        return Reviewed(tuple([prompts.read_review(t) for t in done.texts]), done.usage, done.event)

    async def _weigh(self, ask: ReviewIt) -> Reviewed:
        """Score an answer by how likely this agent's model finds it: against the other options, or as a rating."""
        task, answer = ask.task, ask.answer
        cloze = likelihood.cloze(task)
        done = await self._caller.call(
            "review",
            task.ability,
            task.id,
            answer.producer,
            prompts.rate(task, answer.text) if cloze is None else likelihood.endings(cloze),
            n=ask.n,
            step=ask.step,
            inputs=() if ask.cause is None else (ask.cause,),
            probing=ask.probing,
            score="rating" if cloze is None else "endings",
        )
        if done.failure:
            return _unreviewed(done)
        if cloze is None:
            review = likelihood.read_rating(done.texts[0])
        else:
            scale = self._settings.likelihood_scale
            review = likelihood.review(task, answer.value, done.texts[0], scale)
        return Reviewed((review,), done.usage, done.event)

    async def take_over(self, ask: TakeOver) -> Produced:
        """Answer a task anew, seeing a rejected answer and what was said against it."""
        task = ask.task
        done = await self._caller.call(
            "takeover",
            task.ability,
            task.id,
            self._me,
            prompts.takeover(task, ask.answer.text, ask.criticisms),
            step=ask.step,
            inputs=() if ask.cause is None else (ask.cause,),
        )
        return Produced(done.texts[0] if done.texts else "", done.finish, done.usage, done.event, done.failure)

    async def consult(self, ask: Consult) -> Consulted:
        """Put a method's own prompt to the model bound to the task's ability."""
        task = ask.task
        done = await self._caller.call(
            ask.purpose,
            task.ability,
            task.id,
            self._me,
            ask.messages,
            n=ask.n,
            samples=ask.samples,
            step=ask.step,
            inputs=() if ask.cause is None else (ask.cause,),
            max_output=ask.max_output,
        )
        return Consulted(done.texts, done.finish, done.usage, done.event, done.failure)


def _unreviewed(done: Called) -> Reviewed:
    """A review that the reviewer's model never wrote."""
    reason = "timeout" if done.failure == "timeout" else "call_failed"
    return Reviewed((Unscored(reason),), done.usage, done.event)
