"""Agent: holds its beliefs, coordinates tasks by the method it was given, forwards the others, has its peers served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from meshheal import answers, reply
from meshheal.beliefs import Beliefs, Change, Moved, Shadowed, Withheld
from meshheal.calls import Caller
from meshheal.config import Settings
from meshheal.errors import InternalError, NetworkError
from meshheal.events import (
    CorrelatedDegradation,
    EventId,
    EvidenceShared,
    EvidenceUndelivered,
    ExclusionWithheld,
    ProducerSilent,
    ReviewerSidelined,
    ShadowAlarm,
    StateChanged,
    SuspicionMoved,
    TaskForwarded,
    TaskSettled,
)
from meshheal.evidence import Outbox, Seen
from meshheal.journal import Journal
from meshheal.network import (
    Advert,
    Consult,
    Forward,
    Network,
    Notice,
    Produce,
    ReviewIt,
    Settled,
    TakeDuty,
    TakeOver,
    Tell,
)
from meshheal.opinion import Neighbour
from meshheal.prober import Prober
from meshheal.recovery import GroupWatch
from meshheal.review import Ladder
from meshheal.reviewers import ReviewerWatch
from meshheal.rng import number
from meshheal.routing import FAR, Routing
from meshheal.service import Service
from meshheal.types import Ability, AgentId, Answer, ReviewRecord, Task, Usage


class Method(Protocol):
    """How a coordinator brings a task to a settled answer."""

    async def __call__(self, agent: Agent, work: Work) -> Settled: ...


class Memory(Protocol):
    """What a method keeps at an agent between tasks, of plain values."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


M = TypeVar("M", bound=Memory)


class Oracle(Protocol):
    """The truth, which the world gives to methods that are marked as oracles, and to no others."""

    def correct(self, task: Task, value: str) -> bool:
        """Whether a value is the task's right answer."""
        ...

    def degraded(self, agent: AgentId) -> bool:
        """Whether the agent runs on a worse model now."""
        ...


class Work(Struct):
    """One task at its coordinator: what it has cost so far, and the event that a next one would follow from."""

    task: Task
    item: int
    """Hash of the task's id, for rankings."""
    started: float
    cause: EventId
    usage: Usage = Usage()
    calls: int = 0

    def spend(self, usage: Usage, calls: int = 1) -> None:
        self.usage = self.usage + usage
        self.calls += calls


class Agent:
    """One member of the network. Owns no task, queue or generator while idle."""

    def __init__(
        self,
        me: Neighbour,
        neighbours: Mapping[AgentId, Neighbour],
        settings: Settings,
        method: Method,
        network: Network,
        journal: Journal,
        caller: Caller,
        beliefs: Beliefs,
        seed: int,
    ) -> None:
        self.id = me.id
        self.me = me
        self.neighbours = neighbours
        self.settings = settings
        self.seed = seed
        self.network = network
        self.journal = journal
        self.caller = caller
        self.service = Service(me.id, settings.review, caller)
        self.ladder = Ladder(settings.review)
        self.beliefs = beliefs
        self.watch = ReviewerWatch(len(neighbours), settings.review.reject_at)
        self.routing = Routing(me, neighbours, self.beliefs, self.watch, settings.routing, seed)
        self.group = GroupWatch(settings.recovery)
        self.prober = Prober(self, seed)
        self.oracle: Oracle | None = None
        """Given by the world to oracle methods alone."""
        self._method = method
        self._timeout = settings.limits.call_timeout
        self._memory: Memory | None = None
        self._recalled: Any = None
        self._seen = Seen(settings.evidence.remember)
        self._outbox = Outbox(settings.evidence, network, self._gave_up)
        self._settled: dict[str, Settled | None] = {}
        self._records = 0
        self._advert = 0
        self._advertised: dict[Ability, int] = {}

    # --- serving -------------------------------------------------------------------------------------------------

    def serve(self, sender: AgentId, message: Any) -> Coroutine[Any, Any, Any]:
        """Answer one request of a peer: await it."""
        match message:
            case Produce():
                return self.service.produce(message)
            case ReviewIt():
                return self.service.review(message)
            case TakeOver():
                return self.service.take_over(message)
            case Consult():
                return self.service.consult(message)
            case Forward():
                return self.coordinate(message.task, message.path, message.ttl, message.cause)
        return self._take(sender, message)

    async def _take(self, sender: AgentId, message: Any) -> bool:
        """Take in what a peer tells, or asks to be done."""
        match message:
            case Tell():
                for record in message.records:
                    self.receive(record, message.cause)
                return True
            case Notice():
                self.beliefs.told(sender, message.excluded)
                return True
            case TakeDuty():
                return await self.prober.probe(message.agent, message.motive)
            case Advert():
                if self.routing.heard(sender, message.number, message.hops):
                    await self.advertise()
                return True
        raise InternalError(f"agent {self.id} got a message it does not know: {type(message).__name__}")

    def memory(self, make: Callable[[], M]) -> M:
        """What the agent's method keeps here, made at the first use; after a restart, as the checkpoint has it."""
        if self._memory is None:
            self._memory = make()
            if self._recalled is not None:
                self._memory.restore(self._recalled)
        return self._memory  # type: ignore[return-value]

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def admit(self, task: Task, cause: EventId) -> Settled:
        """Take a task that enters the network here, and own its one terminal outcome."""
        settled = await self.coordinate(task, (), self.settings.routing.max_hops, cause)
        journal = self.journal
        journal.write(
            TaskSettled(
                node=self.id,
                incarnation=journal.incarnation,
                seq=journal.next(),
                t=journal.now(),
                task=task.id,
                step=settled.calls,
                causes=(settled.cause or cause,),
                outcome=settled.outcome,
                producer=settled.producer,
                author=settled.author,
                value=settled.value,
                usage=settled.usage,
                calls=settled.calls,
            )
        )
        return settled

    async def coordinate(self, task: Task, path: tuple[AgentId, ...], ttl: int, cause: EventId | None) -> Settled:
        """Settle the task here, or pass it on towards an agent that can. A task seen before gives the same result."""
        known = self._settled.get(task.id)
        if known is not None:
            return known
        if not self.routing.can_coordinate(task.ability, self.network.beat()):
            return await self._forward(task, path, ttl, cause)
        work = Work(task, number(task.id), self.network.now(), cause or (self.id, 0, 0))
        settled = await self._method(self, work)
        self._settled[task.id] = settled
        if len(self._settled) > _SETTLED_REMEMBERED:
            del self._settled[next(iter(self._settled))]
        return settled

    async def _forward(self, task: Task, path: tuple[AgentId, ...], ttl: int, cause: EventId | None) -> Settled:
        tried: tuple[AgentId, ...] = ()
        while ttl > 0:
            to = self.routing.next_hop(task.ability, (*path, self.id, *tried))
            if to is None:
                break
            event = self.journal.add(TaskForwarded, task.id, () if cause is None else (cause,), to=to, ttl=ttl - 1)
            try:
                result = await self.network.ask(
                    to, Forward(task, (*path, self.id), ttl - 1, event), self.settings.limits.max_seconds
                )
            except NetworkError:
                tried = (*tried, to)
                continue
            if result.outcome != "unroutable":
                return result  # type: ignore[no-any-return]
            tried = (*tried, to)
        return Settled("unroutable", cause=cause)

    async def ask_producer(self, work: Work, producer: AgentId, cause: EventId) -> Answer | None:
        """The producer's answer as read here; None where it stayed silent or its model could not be called."""
        ask = Produce(work.task, step=work.calls, cause=cause)
        load = self.routing.load
        load[producer] = load.get(producer, 0) + 1
        try:
            done = await self.ask(producer, ask)
        except NetworkError:
            done = None
        finally:
            load[producer] -= 1
        if done is not None:
            work.spend(done.usage)
        if done is None or done.failure:
            self.routing.down[producer] = self.network.beat() + _DOWN_FOR
            work.cause = self.journal.add(ProducerSilent, work.task.id, (cause,), work.calls, producer=producer)
            return None
        work.cause = done.call
        return answers.to_answer(work.task, producer, reply.visible(done.text), done.finish)

    def ask(self, to: AgentId, message: Any) -> Awaitable[Any]:
        """Ask a peer, or oneself: await the reply. Raises `NetworkError` when none came in time."""
        if to == self.id:
            return self.serve(to, message)
        return self.network.ask(to, message, self._timeout)

    def over_budget(self, work: Work) -> bool:
        """Whether the task has used up its tokens, calls or seconds."""
        limits = self.settings.limits
        return (
            work.usage.total >= limits.max_tokens
            or work.calls >= limits.max_calls
            or self.network.now() - work.started >= limits.max_seconds
        )

    def model_of(self, agent: AgentId) -> str:
        """The model family an agent of the closed neighbourhood declares."""
        return self.me.family if agent == self.id else self.neighbours[agent].family

    # --- evidence ------------------------------------------------------------------------------------------------

    def record_id(self) -> str:
        self._records += 1
        return f"{self.id}.{self.journal.incarnation}.{self._records}"

    async def share(self, record: ReviewRecord, cause: EventId) -> EventId:
        """Send a review record to every neighbour of its producer, oneself included; never through the producer."""
        of = self.me if record.producer == self.id else self.neighbours[record.producer]
        to = of.neighbours
        journal = self.journal
        event = journal.write(
            EvidenceShared(
                node=self.id,
                incarnation=journal.incarnation,
                seq=journal.next(),
                t=journal.now(),
                task=record.task,
                causes=(cause,),
                record=record,
                to=to,
            )
        )
        if record.producer != self.id:
            self.receive(record, event)
        others = tuple([a for a in to if a != self.id])
        if others:
            await self._outbox.share(record, others, event)
        return event

    def receive(self, record: ReviewRecord, cause: EventId | None) -> None:
        """Judge by a record, once, and write down what changed."""
        if record.producer == self.id or not self._seen.first_time(record):
            return
        causes = () if cause is None else (cause,)
        for finding in self.beliefs.observe(record):
            self._note(finding, record, causes)
        if record.votes or self.watch.resting:
            self._watch_reviewers(record, causes)
        if record.channel == "probe":
            if record.tranche:
                self._watch_group(record, causes)
            self.prober.saw(record, causes)

    def _watch_reviewers(self, record: ReviewRecord, causes: tuple[EventId, ...]) -> None:
        for sidelined in self.watch.observe(record, self.network.beat()):
            self.journal.add(
                ReviewerSidelined,
                record.task,
                causes,
                agent=sidelined.agent,
                active=sidelined.active,
                evidence=sidelined.evidence,
            )

    def _watch_group(self, record: ReviewRecord, causes: tuple[EventId, ...]) -> None:
        alarm = self.group.observe(record)
        if alarm is not None:
            self.journal.add(
                CorrelatedDegradation,
                record.task,
                causes,
                group=alarm.group,
                expected=alarm.expected,
                observed=alarm.observed,
                evidence=alarm.evidence,
            )

    def _note(
        self, finding: Change | Withheld | Moved | Shadowed, record: ReviewRecord, causes: tuple[EventId, ...]
    ) -> None:
        add, task = self.journal.add, record.task
        match finding:
            case Change(agent, ability, before, to, evidence, reason):
                add(
                    StateChanged,
                    task,
                    causes,
                    agent=agent,
                    ability=ability,
                    before=before,
                    to=to,
                    evidence=evidence,
                    record=record.id,
                    reason=reason,
                )
                self.prober.changed(agent, to)
                if to == "excluded" or before == "excluded":
                    self._reconsider_routes()
                    if not ability:
                        self.network.spawn(self._notify(agent, to == "excluded"))
            case Moved(agent, evidence):
                add(SuspicionMoved, task, causes, agent=agent, evidence=evidence, record=record.id)
            case Withheld(agent, ability, guard, evidence):
                add(ExclusionWithheld, task, causes, agent=agent, ability=ability, guard=guard, evidence=evidence)
            case Shadowed(agent, detector, evidence):
                add(ShadowAlarm, task, causes, agent=agent, detector=detector, evidence=evidence)

    async def _notify(self, agent: AgentId, excluded: bool) -> None:
        await self.network.tell((agent,), Notice(excluded), self.settings.evidence.ack_timeout)

    def _gave_up(self, record: ReviewRecord, agent: AgentId) -> None:
        self.journal.add(EvidenceUndelivered, record.task, record=record.id, to=agent)

    # --- routes --------------------------------------------------------------------------------------------------

    def start(self, abilities: Sequence[Ability]) -> None:
        """Learn which abilities there are, and tell the neighbours how far each is from here."""
        self._advertised = dict.fromkeys(abilities, FAR)
        self._reconsider_routes()

    def _reconsider_routes(self) -> None:
        if self.routing.advert(tuple(self._advertised), self.network.beat()) != self._advertised:
            self.network.spawn(self.advertise())

    async def advertise(self) -> None:
        """Send the distance table to the neighbours where it changed since the last time."""
        hops = self.routing.advert(tuple(self._advertised), self.network.beat())
        if hops == self._advertised:
            return
        self._advertised = hops
        self._advert += 1
        message = Advert(self._advert, tuple(hops.items()))
        await self.network.tell(tuple(self.neighbours), message, self.settings.evidence.ack_timeout)

    # --- checkpoint ----------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Plain values from which a restarted agent goes on."""
        return {
            "beliefs": self.beliefs.checkpoint(),
            "watch": self.watch.state(),
            "routing": self.routing.state(),
            "group": self.group.state(),
            "prober": self.prober.state(),
            "seen": self._seen.state(),
            "settled": [[t, s] for t, s in self._settled.items()],
            "records": self._records,
            "advert": self._advert,
            "advertised": list(self._advertised.items()),
            "memory": self._recalled if self._memory is None else self._memory.state(),
        }

    def restore(self, state: Any) -> None:
        self.beliefs.restore(state["beliefs"])
        self.watch.restore(state["watch"])
        self.routing.restore(state["routing"])
        self.group.restore(state["group"])
        self._seen.restore(state["seen"])
        self._settled = dict(state["settled"])
        self._records = state["records"]
        self._advert = state["advert"]
        self._advertised = dict(map(tuple, state["advertised"]))
        self._memory, self._recalled = None, state["memory"]
        self.prober.restore(state["prober"])
        self._recall_beliefs()

    def _recall_beliefs(self) -> None:
        """Write down what a restarted agent believes: it may be older than the last that its log says."""
        for agent, opinion in self.beliefs.opinions.items():
            said = [("", opinion.state)] if opinion.state != "healthy" else []
            said += [(ability, "excluded") for ability in sorted(opinion.excluded_abilities)]
            for ability, state in said:
                self.journal.add(
                    StateChanged,
                    agent=agent,
                    ability=ability,
                    before="healthy",
                    to=state,
                    evidence=opinion.evidence,
                    reason="restored",
                )


_SETTLED_REMEMBERED = 256
"""Results a coordinator keeps, so that a task handed over twice is settled once."""
_DOWN_FOR = 10
"""Beats for which an agent that did not answer is left alone."""
