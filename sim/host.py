"""A host in real time: many agents on one asyncio loop, reaching one another directly and other hosts by parcels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from heapq import heappop, heappush
from math import ceil
from typing import Any, TypeVar

from msgspec import Struct, structs

from meshheal.agent import Agent
from meshheal.errors import NetworkError
from meshheal.events import EventId, Log, MessageLost
from meshheal.network import Forward, Settled, Tell, unreached
from meshheal.types import AgentId, Task
from sim.bounded import bounded
from sim.exchange import Exchange, Post
from sim.faults import BackendSwap
from sim.harness import HARNESS_ERRORS, note_failure
from sim.traffic import Traffic
from sim.wire import Batch, HostId, Missing, Parcel, Refused
from sim.world import World

T = TypeVar("T")
Work = Coroutine[Any, Any, T]
Note = Callable[..., object]
"""Writes an event of the harness: called with its kind, the task's id, and its fields."""


class Due(Struct, frozen=True, order=True):
    """A wake-up of an agent whose beat has come. Sorted as the local runtime takes them."""

    beat: int
    agent: AgentId
    incarnation: int
    number: int


class Rebind(Struct, frozen=True):
    """From now on an agent's calls go to the models that `swap` says; to its own where that is None."""

    agent: AgentId
    swap: BackendSwap | None


class HostNetwork:
    """One agent's view of the real-time runtimes (`meshheal.network.Network`)."""

    __slots__ = ("_host", "_me", "now")

    def __init__(self, me: AgentId, host: Host) -> None:
        self._me = me
        self._host = host
        self.now: Callable[[], float] = host.now

    def beat(self) -> int:
        return self._host.beat

    async def ask(self, to: AgentId, message: Any, timeout: float) -> Any:
        host = self._host
        host.count(self._me, (to,), message)
        if host.where[to] != host.id:
            return await host.exchange.ask(self._me, host.where[to], (to,), message, timeout)
        return await host.ask_here(self._me, to, message, timeout)

    async def tell(self, to: Sequence[AgentId], message: Any, timeout: float) -> list[AgentId]:
        if isinstance(message, Tell):
            self._host.count(self._me, to, message)
            return await self._host.tell(self._me, to, message, timeout)
        return await unreached(self, to, message, timeout)

    async def gather(self, calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        if len(calls) == 1:
            return [await calls[0]]
        tasks = [self._host.start(self._me, call) for call in calls]
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for one in ended:
            if isinstance(one, BaseException):
                raise one
        return ended  # type: ignore[return-value]

    def spawn(self, work: Coroutine[Any, Any, None], patient: bool = False) -> None:
        self._host.background(self._me, work, patient)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def elapse(self, seconds: float) -> None:
        del seconds
        await asyncio.sleep(0)

    def wake(self, beats: float, action: Callable[[], Awaitable[None]]) -> None:
        self._host.wake(self._me, max(1, ceil(beats)), action)


class Host:
    """Agents of a world on this process' event loop. A driver tells it the beats, swaps and tasks.

    What hosts say to one another is `exchange`'s. An exception in an agent is an event and ends no other agent's work; what the
    harness suffers (no log, no record) is raised by `broken`.
    """

    def __init__(
        self,
        world: World,
        mine: Iterable[AgentId],
        log: Log,
        now: Callable[[], float],
        note: Note,
        *,
        id: HostId = 0,
        where: Sequence[HostId] | None = None,
        post: Post | None = None,
        incarnation: int = 0,
    ) -> None:
        """`where` gives the host of every agent (None: all are here), `post` reaches the others.

        `incarnation` rises when the host's process is started anew.
        """
        self.world = structs.replace(world, model=bounded(world.model, world.settings.limits.call_timeout))
        self.id = id
        self.incarnation = incarnation
        self.where = [id] * world.size if where is None else list(where)
        self.now = now
        self.beat = 0
        self.traffic = Traffic()
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log = log
        self._note = note
        self._adjacent = [frozenset(n) for n in world.neighbours]
        self._public = [self.world.neighbour(a) for a in range(world.size)]
        self._down: set[AgentId] = set()
        self._incarnations: dict[AgentId, int] = dict.fromkeys(mine, incarnation)
        self._rebound: dict[AgentId, BackendSwap | None] = {}
        self._tasks: dict[AgentId, set[asyncio.Task[Any]]] = {a: set() for a in self._incarnations}
        self._reactions: dict[asyncio.Task[Any], set[asyncio.Task[Any]]] = {}
        self._forwards: dict[tuple[AgentId, str], asyncio.Task[Any]] = {}
        self._wakes: list[tuple[Due, Callable[[], Awaitable[None]]]] = []
        self._called: dict[Due, Callable[[], Awaitable[None]]] = {}
        self._wake_count = 0
        self._busy = 0
        self._loose = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._touched: set[AgentId] = set(self._incarnations)
        self.exchange = Exchange(id, incarnation, now, post, self.start, self._answer)
        self.agents: dict[AgentId, Agent] = {a: self._build(a) for a in self._incarnations}

    def _build(self, agent: AgentId) -> Agent:
        network = HostNetwork(agent, self)
        return self.world.build(agent, self._public, network, self._log, self._incarnations[agent])

    # --- what the driver tells -----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Have every agent learn which abilities there are."""
        names = self.world.ability_names()
        for agent in self.agents.values():
            agent.start(names)

    async def advance(self, beat: int, rebind: Sequence[Rebind] = (), at_once: bool = True) -> list[Due]:
        """Take over the beat and the swaps; then run the wake-ups that are due, or return them where not `at_once`."""
        for change in rebind:
            self._rebound[change.agent] = change.swap
            self.agents[change.agent].caller.binding = self.world.binding(change.agent, change.swap)
        self.beat = beat
        while self._wakes and self._wakes[0][0].beat <= beat:
            due, action = heappop(self._wakes)
            if not self._current(due):
                continue
            if at_once:
                self.background(due.agent, _run(action), patient=False)
            else:
                self._called[due] = action
        return sorted(self._called)

    async def rouse(self, due: Due) -> None:
        """Run a wake-up that `advance` returned, to its end."""
        action = self._called.pop(due, None)
        if action is not None and self._current(due):
            await asyncio.wait([self.start(due.agent, self._guarded(due.agent, _run(action)))])

    def _current(self, due: Due) -> bool:
        return due.agent not in self._down and due.incarnation == self._incarnations[due.agent]

    async def admit(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None:
        """Let a task enter at an agent; None where the agent was lost or failed before it wrote the task's outcome."""
        if entry in self._down:
            return None
        work = self.start(entry, self._admitted(entry, task, cause))
        await asyncio.wait([work])
        return None if work.cancelled() else work.result()

    async def _admitted(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None:
        try:
            return await self.agents[entry].admit(task, cause)
        except Exception as error:
            self.failed(entry, task, error)
            return None

    async def drain(self) -> bool:
        """Wait until no background work is under way, but patient work.

        True where since the last time evidence was acknowledged here before all that it gave rise to was done.
        """
        await self._idle.wait()
        loose, self._loose = self._loose, False
        return loose

    async def checkpoint(self) -> dict[AgentId, Any]:
        """The states of the agents that are up and did something since the last checkpoint."""
        touched, self._touched = self._touched, set()
        return {a: self.agents[a].state() for a in sorted(touched) if a not in self._down}

    async def restore(self, states: dict[AgentId, Any]) -> None:
        """Have agents go on from their states; those without one begin anew."""
        names = self.world.ability_names()
        for agent, built in self.agents.items():
            if agent in states:
                built.restore(states[agent])
            else:
                built.start(names)

    async def crash(self, agent: AgentId) -> None:
        """The agent's work ends where it stands, and it hears nothing any more."""
        self._down.add(agent)
        for task in list(self._tasks[agent]):
            task.cancel()

    async def restart(self, agent: AgentId, state: Any) -> None:
        """Build a crashed agent anew; it goes on from `state`, where there is one."""
        self._down.discard(agent)
        self._incarnations[agent] += 1
        built = self.agents[agent] = self._build(agent)
        built.caller.binding = self.world.binding(agent, self._rebound.get(agent))
        if state is None:
            built.start(self.world.ability_names())
        else:
            built.restore(state)

    async def peer_lost(self, host: HostId) -> None:
        """Another host died: what was asked of it will not be answered."""
        self.exchange.lost(host)

    async def deliver(self, batch: Batch) -> None:
        """Take in what another host sent."""
        self.exchange.deliver(batch)

    async def close(self) -> None:
        """End all work, and the models' connections."""
        self.exchange.close()
        tasks = [t for owned in self._tasks.values() for t in owned]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSING)
        if self.broken.done() and not self.broken.cancelled():
            self.broken.exception()
        for name in self.world.model_names():
            aclose = getattr(self.world.model(name), "aclose", None)
            if aclose is not None:
                await aclose()

    # --- services for the agents' networks -----------------------------------------------------------------------

    def count(self, sender: AgentId, to: Sequence[AgentId], message: Any) -> None:
        self.traffic.count(self._adjacent[sender], to, evidence=type(message) is Tell)

    def start(self, owner: AgentId, work: Work[T]) -> asyncio.Task[T]:
        """Start work that dies with its agent."""
        task = asyncio.get_running_loop().create_task(work)
        self._touched.add(owner)
        self._tasks[owner].add(task)
        task.add_done_callback(lambda done: self._ended(owner, done))
        return task

    def _ended(self, owner: AgentId, done: asyncio.Task[Any]) -> None:
        self._tasks[owner].discard(done)
        self._touched.add(owner)
        if not done.cancelled():
            done.exception()  # whoever waits for the work reads it; where nobody does, `broken` has it

    def background(self, owner: AgentId, work: Work[None], patient: bool) -> None:
        """Start work nobody waits for, but for `drain`, where it is not patient."""
        task = self.start(owner, self._guarded(owner, work))
        if patient:
            return
        self._busy += 1
        self._idle.clear()
        task.add_done_callback(self._background_done)
        cause = asyncio.current_task()
        if cause is not None:
            reactions = self._reactions.setdefault(cause, set())
            reactions.add(task)
            task.add_done_callback(lambda done: self._reacted(cause, done))

    def _background_done(self, _: object) -> None:
        self._busy -= 1
        if self._busy == 0:
            self._idle.set()

    def _reacted(self, cause: asyncio.Task[Any], done: asyncio.Task[Any]) -> None:
        reactions = self._reactions.get(cause)
        if reactions is not None:
            reactions.discard(done)
            if not reactions:
                del self._reactions[cause]

    async def _reactions_done(self) -> None:
        """Wait a moment for the notices that evidence just taken in gave rise to.

        So whoever shares the next evidence shares it after them, as on the local runtime, while all hosts are well.
        """
        current = asyncio.current_task()
        reactions = self._reactions.get(current) if current is not None else None
        if reactions:
            _, left = await asyncio.wait(set(reactions), timeout=_REACTION)
            self._loose = self._loose or bool(left)

    async def _guarded(self, owner: AgentId, work: Work[None]) -> None:
        try:
            await work
        except NetworkError:
            pass
        except Exception as error:
            self.failed(owner, None, error)

    def failed(self, agent: AgentId, message: Any, error: Exception) -> None:
        """Write that an exception escaped an agent's own code; what the harness suffers ends the run instead."""
        if isinstance(error, HARNESS_ERRORS):
            if not self.broken.done():
                self.broken.set_exception(error)
            raise error
        note_failure(self._note, agent, message, error)

    def wake(self, agent: AgentId, beats: int, action: Callable[[], Awaitable[None]]) -> None:
        self._wake_count += 1
        due = Due(self.beat + beats, agent, self._incarnations[agent], self._wake_count)
        heappush(self._wakes, (due, action))

    # --- within the host -----------------------------------------------------------------------------------------

    async def ask_here(self, sender: AgentId, to: AgentId, message: Any, timeout: float) -> Any:
        """Have an agent of this host serve a request. It goes on where the asker stops waiting."""
        work = self._serve(sender, to, message)
        await asyncio.wait([work], timeout=timeout)
        if not work.done():
            raise NetworkError(f"agent {to} did not reply within {timeout} s")
        return self._reply(work, to)

    @staticmethod
    def _reply(work: asyncio.Task[Any], to: AgentId) -> Any:
        if work.cancelled():
            raise NetworkError(f"agent {to} went down")
        reply = work.result()
        if isinstance(reply, Refused):
            raise NetworkError(reply.reason)
        return reply

    def _serve(self, sender: AgentId, to: AgentId, message: Any) -> asyncio.Task[Any]:
        """The work on a request; a task that is being coordinated here already is not coordinated a second time."""
        if not isinstance(message, Forward):
            return self.start(to, self._serving(sender, to, message))
        key = (to, message.task.id)
        work = self._forwards.get(key)
        if work is None:
            work = self._forwards[key] = self.start(to, self._serving(sender, to, message))
            work.add_done_callback(lambda _: self._forwards.pop(key, None))
        return work

    async def _serving(self, sender: AgentId, to: AgentId, message: Any) -> Any:
        if to in self._down:
            self._lost(to, message)
            return Refused(f"agent {to} is down")
        try:
            return await self.agents[to].serve(sender, message)
        except NetworkError as error:
            return Refused(str(error))
        except Exception as error:
            self.failed(to, message, error)
            return Refused(f"agent {to} failed: {error}")

    def _lost(self, to: AgentId, message: Any) -> None:
        self._note(MessageLost, "", to=to, what=type(message).__name__, why="down")

    def _take_in(self, to: Sequence[AgentId], message: Tell) -> list[AgentId]:
        """Give evidence to agents of this host; those that could not take it."""
        missing = []
        self._touched.update(to)
        for agent in to:
            if agent in self._down:
                self._lost(agent, message)
                missing.append(agent)
                continue
            try:
                for record in message.records:
                    self.agents[agent].receive(record, message.cause)
            except Exception as error:
                self.failed(agent, message, error)
                missing.append(agent)
        return missing

    # --- between hosts -------------------------------------------------------------------------------------------

    async def tell(self, sender: AgentId, to: Sequence[AgentId], message: Tell, timeout: float) -> list[AgentId]:
        """Evidence for agents wherever they are, one parcel to each host; those that did not acknowledge it."""
        elsewhere: dict[HostId, list[AgentId]] = {}
        here: list[AgentId] = []
        for agent in to:
            host = self.where[agent]
            (here if host == self.id else elsewhere.setdefault(host, [])).append(agent)
        missing = self._take_in(here, message)
        if elsewhere:
            calls = [self._told_there(sender, h, agents, message, timeout) for h, agents in elsewhere.items()]
            for some in await asyncio.gather(*calls):
                missing += some
        await self._reactions_done()
        return missing

    async def _told_there(
        self, sender: AgentId, host: HostId, to: list[AgentId], message: Tell, timeout: float
    ) -> list[AgentId]:
        try:
            reply = await self.exchange.ask(sender, host, tuple(to), message, timeout)
        except NetworkError:
            return to
        return list(reply.agents)

    async def _answer(self, parcel: Parcel) -> Any:
        """The reply to a request of another host. Raises what the harness suffers here: the run ends."""
        message: Any = parcel.body
        try:
            if isinstance(message, Tell):
                missing = self._take_in(parcel.to, message)
                await self._reactions_done()
                return Missing(tuple(missing))
            if not isinstance(message, Forward):
                return await self._serving(parcel.sender, parcel.to[0], message)
            # A task of its own, which whoever forwards the same task meanwhile shares.
            work = self._serve(parcel.sender, parcel.to[0], message)
            await asyncio.wait([work])
            return Refused(f"agent {parcel.to[0]} went down") if work.cancelled() else work.result()
        except asyncio.CancelledError:
            return Refused(f"agent {parcel.to[0]} went down")


async def _run(action: Callable[[], Awaitable[None]]) -> None:
    await action()


_REACTION = 1.0
"""Seconds that an acknowledgement waits for the notices that its evidence gave rise to."""
_CLOSING = 5.0
"""Seconds that work has to end in when a host closes."""
