"""The one boundary that every model call of an agent passes: binding, limits, replay, latency, the record in the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from meshheal.errors import ModelError
from meshheal.events import EventId, ModelCalled
from meshheal.journal import Journal
from meshheal.model import CallKey, CallNotes, Completion, Model, Purpose, Request, Sampling, Scoring, prompt_id_of
from meshheal.network import Network
from meshheal.types import Ability, AgentId, Message, TaskId, Usage

Recall = Callable[[Request, str], Completion | None]
"""Looks a completion up in the record of an earlier run; None: not there, call the model."""


class Binding(Struct):
    """Which model an agent runs on: per ability it holds, and a weaker one for work outside its abilities.

    `swapped` overrides the models of its own abilities for some purposes (all of them, where a backend was replaced).
    """

    own: Mapping[Ability, Model]
    other: Model
    swapped: Mapping[Purpose, Model] | None = None
    needs: Mapping[TaskId, Ability] = {}
    """Abilities that tasks really need, where they are mislabelled: they run on the models for those."""

    def model(self, ability: Ability, purpose: Purpose) -> Model:
        bound = self.own.get(ability)
        if bound is None:
            return self.other
        if self.swapped is not None:
            return self.swapped.get(purpose, bound)
        return bound


class Called(Struct, frozen=True, gc=False):
    """Outcome of one call: the texts (none on failure), tokens, and the event that records it."""

    texts: tuple[str, ...]
    finish: str
    usage: Usage
    event: EventId
    failure: str = ""


class Caller:
    """Calls models on behalf of one agent."""

    __slots__ = ("_agent", "_journal", "_max_output", "_network", "_one", "_recall", "_timeout", "binding")

    def __init__(
        self,
        agent: AgentId,
        binding: Binding,
        network: Network,
        journal: Journal,
        timeout: float,
        max_output: int,
        recall: Recall | None = None,
    ) -> None:
        self._agent = agent
        self.binding = binding
        self._network = network
        self._journal = journal
        self._timeout = timeout
        self._max_output = max_output
        self._one = Sampling(max_tokens=max_output)
        self._recall = recall

    async def call(
        self,
        purpose: Purpose,
        ability: Ability,
        item: TaskId,
        subject: AgentId,
        messages: tuple[Message, ...],
        *,
        n: int = 0,
        samples: int = 1,
        step: int = 0,
        inputs: tuple[EventId, ...] = (),
        probing: bool = False,
        score: Scoring = "",
        max_output: int | None = None,
    ) -> Called:
        """Ask the bound model. A failure is returned and recorded, never raised: it is something the agent suffers."""
        ability = self.binding.needs.get(item, ability)
        model = self.binding.model(ability, purpose)
        cap = self._max_output if max_output is None else min(max_output, self._max_output)
        plain = samples == 1 and max_output is None
        sampling = self._one if plain else Sampling(max_tokens=cap, n=samples)
        request = Request(messages, sampling, CallKey(item, self._agent, purpose, subject, n), score)
        failure = ""
        try:
            done = None if self._recall is None else self._recall(request, model.name)
            if done is None:
                done = await model.complete(request)
        except ModelError as error:
            failure = error.boundary or type(error).__name__
            notes = CallNotes(detail=error.detail) if error.detail else None
            done = Completion((), error.usage or Usage(), finish="error", notes=notes)
        if model.nature != "live":
            await self._network.elapse(min(done.latency, self._timeout))
            if done.latency > self._timeout:
                failure = "timeout"
        journal = self._journal
        texts = () if failure else done.texts
        prompt = tuple([(m.role, journal.text(m.content)) for m in messages])
        record = ModelCalled(
            node=journal.node,
            incarnation=journal.incarnation,
            seq=journal.next(),
            t=journal.now(),
            task=item,
            step=step,
            causes=inputs,
            model=model.name,
            purpose=purpose,
            subject=subject,
            n=n,
            prompt=prompt,
            prompt_hash=prompt_id_of(prompt),
            replies=tuple([journal.text(t) for t in texts]),
            usage=done.usage,
            latency=done.latency,
            finish=done.finish,
            failure=failure,
            inputs=inputs,
            probing=probing,
            reasoning=tuple([journal.text(t) for t in done.reasoning]) if done.reasoning else (),
            notes=done.notes,
        )
        return Called(texts, done.finish, done.usage, journal.write(record), failure)
