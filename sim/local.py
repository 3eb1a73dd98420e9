"""One process under virtual time: all agents of a world on one event loop."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from math import ceil
from typing import Any, TypeVar

from meshheal.agent import Agent
from meshheal.errors import NetworkError
from meshheal.events import (
    Crashed,
    EventId,
    Log,
    MessageLost,
    Restarted,
)
from meshheal.network import Settled, Tell, unreached
from meshheal.types import AgentId, Task
from sim.faults import BackendSwap, Crash, Partition, Swap, TimedSwap, Weather
from sim.harness import CHECKPOINT_EVERY, HARNESS_ERRORS, Harness, note_failure
from sim.links import Links
from sim.loop import Future, Killed, Loop, Process
from sim.traffic import Traffic
from sim.world import World

T = TypeVar("T")


class LocalNetwork:
    """One agent's view of the local runtime (`meshheal.network.Network`)."""

    __slots__ = ("_me", "_run", "now")

    def __init__(self, me: AgentId, run: LocalRun) -> None:
        self._me = me
        self._run = run
        loop = run.loop
        self.now: Callable[[], float] = lambda: loop.now

    def beat(self) -> int:
        return self._run.beat

    async def ask(self, to: AgentId, message: Any, timeout: float) -> Any:
        run = self._run
        run.count(self._me, (to,), message)
        if run.direct:
            try:
                return await run.agents[to].serve(self._me, message)
            except NetworkError:
                raise
            except Exception as error:
                run.failed(to, message, error)
                raise NetworkError(f"agent {to} failed: {error}") from error
        return await run.deliver(self._me, to, message, timeout)

    async def tell(self, to: Sequence[AgentId], message: Any, timeout: float) -> list[AgentId]:
        run = self._run
        if run.direct and type(message) is Tell:
            agents, cause = run.agents, message.cause
            run.count(self._me, to, message)
            for record in message.records:
                for agent in to:
                    agents[agent].receive(record, cause)
            return []
        return await unreached(self, to, message, timeout)

    async def gather(self, calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        if len(calls) == 1:
            return [await calls[0]]
        processes = [self._run.spawn(self._me, call) for call in calls]
        for process in processes:
            while not process.done:
                await process.ended()
        return [process.result() for process in processes]

    def spawn(self, work: Coroutine[Any, Any, None], patient: bool = False) -> None:
        self._run.background(self._me, work, patient)

    def sleep(self, seconds: float) -> Any:
        return self._run.loop.sleep(seconds)

    elapse = sleep

    def wake(self, beats: float, action: Callable[[], Awaitable[None]]) -> None:
        self._run.wake(self._me, max(1, ceil(beats)), action)


class LocalRun(Harness):
    """A world in this process. `run()` takes the whole stream through it."""

    def __init__(
        self,
        world: World,
        log: Log,
        progress: Callable[[int], None] = lambda _: None,
        enough: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`progress` is told the index of each task that ended; `enough` ends the stream before an arrival."""
        self.loop = loop = Loop()
        super().__init__(world, log, lambda: loop.now, progress, enough)
        self.log = log
        self.traffic = Traffic()
        self.links = Links(world.links, world.seed)
        self._crashes = any(isinstance(f, Crash) for f in world.faults)
        self.direct = (
            world.links.perfect
            and not self._crashes
            and not any(isinstance(f, Partition | Weather) for f in world.faults)
        )
        self._public = [world.neighbour(a) for a in range(world.size)]
        self._adjacent = [frozenset(n) for n in world.neighbours]
        self.agents: list[Agent] = []
        self._networks = [LocalNetwork(a, self) for a in range(world.size)]
        self._owned: dict[AgentId, dict[Process[Any], None]] = {}
        self._up = [True] * world.size
        self._incarnation = [0] * world.size
        self._checkpoints: dict[AgentId, Any] = {}
        self._wakes: list[tuple[int, AgentId, int, int, Callable[[], Awaitable[None]]]] = []
        self._wake_count = 0
        self._busy = 0
        self._drained: Future[None] | None = None
        self._delivered: dict[AgentId, dict[int, Future[Any]]] = {}
        self._message_count = 0
        self._launched: list[Process[None]] = []
        for agent in range(world.size):
            self.agents.append(self._build(agent))

    def _build(self, agent: AgentId) -> Agent:
        return self.world.build(agent, self._public, self._networks[agent], self.log, self._incarnation[agent])

    # --- the stream ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Take every task of the stream to its end. Raises `Stalled` where the network goes idle before that."""
        with _seldom_collected():
            self.loop.run(self.stream())

    async def _begin(self) -> None:
        names = self.world.ability_names()
        for agent in self.agents:
            agent.start(names)

    async def _sleep(self, seconds: float) -> None:
        await self.loop.sleep(seconds)

    def _launch(self, work: Coroutine[Any, Any, None]) -> None:
        self._launched.append(self.loop.spawn(work))

    async def _landed(self) -> None:
        for process in self._launched:
            await process

    async def _together(self, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        await self.loop.gather(works)

    async def _admit(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None:
        if not self._up[entry]:
            return None
        agent = self.agents[entry]
        try:
            if self.direct:
                return await agent.admit(task, cause)
            return await self.spawn(entry, agent.admit(task, cause))
        except Killed:
            return None
        except Exception as error:
            self.failed(entry, task, error)
            return None

    async def _advance(self, index: int) -> None:
        for fault in self._due.get(index, ()):
            match fault:
                case Swap() if index in (fault.at, fault.back):
                    self._swapped(fault, index == fault.at, index)
                case Crash() if index == fault.at:
                    self.loop.later(fault.after, lambda f=fault: self._crash(f))  # type: ignore[misc]
                case Crash(agent=agent) if index == fault.back:
                    self._restart(agent)
                case Partition() if index in (fault.at, fault.back):
                    self.links.partition(fault.groups if index == fault.at else None)
                case Weather() if index in (fault.at, fault.back):
                    self.links.profile = fault.links if index == fault.at else self.world.links
        self.index = index
        self.beat = int(index / self.world.arrivals_per_beat)
        if self._crashes and index % CHECKPOINT_EVERY == 0:
            self._checkpoint()
        wakes = self._wakes
        while wakes and wakes[0][0] <= self.beat:
            _, agent, incarnation, _, action = heappop(wakes)
            if self._up[agent] and incarnation == self._incarnation[agent]:
                if self._one_by_one and self.direct:
                    await self._guarded(agent, _run(action), 0)
                else:
                    self.background(agent, _run(action), patient=False)

    # --- services for the agents' networks -----------------------------------------------------------------------

    def count(self, sender: AgentId, to: Sequence[AgentId], message: Any) -> None:
        """Note a message to each of `to` for the traffic figures."""
        self.traffic.count(self._adjacent[sender], to, evidence=type(message) is Tell)

    def spawn(self, owner: AgentId, coro: Coroutine[Any, Any, T]) -> Process[T]:
        """Start work that dies with its agent."""
        process = self.loop.spawn(coro)
        if self._crashes and not process.done:
            owned = self._owned.setdefault(owner, {})
            owned[process] = None
            if len(owned) > 64:
                for old in [p for p in owned if p.done]:
                    del owned[old]
        return process

    def background(self, owner: AgentId, work: Coroutine[Any, Any, None], patient: bool) -> None:
        """Start work nobody waits for; a closed stream waits until there is none left that is not patient."""
        if patient:
            self.spawn(owner, self._guarded(owner, work, 0))
        else:
            self._busy += 1
            self.spawn(owner, self._guarded(owner, work, 1))

    async def _guarded(self, owner: AgentId, work: Coroutine[Any, Any, None], busy: int) -> None:
        try:
            await work
        except NetworkError:
            pass
        except Exception as error:
            self.failed(owner, None, error)
        finally:
            self._busy -= busy
            if self._busy == 0 and self._drained is not None:
                self._drained.resolve(None)
                self._drained = None

    async def _drain(self) -> None:
        while self._busy:
            self._drained = self._drained or Future(self.loop)
            await self._drained

    def wake(self, agent: AgentId, beats: int, action: Callable[[], Awaitable[None]]) -> None:
        self._wake_count += 1
        entry = (self.beat + beats, agent, self._incarnation[agent], self._wake_count, action)
        heappush(self._wakes, entry)

    def failed(self, agent: AgentId, message: Any, error: Exception) -> None:
        """Write that an exception escaped an agent's own code; what the harness suffers ends the run instead."""
        if isinstance(error, HARNESS_ERRORS):
            self.loop.break_off(error)
            raise error
        note_failure(self._journal.add, agent, message, error)

    async def deliver(self, sender: AgentId, to: AgentId, message: Any, timeout: float) -> Any:
        """Carry a request and its reply over links that delay, lose and duplicate; copies are served once."""
        self._message_count += 1
        number, reply = self._message_count, Future[Any](self.loop)
        self._carry(sender, to, message, lambda: self._serve(sender, to, message, number, reply))
        self.loop.later(timeout, lambda: reply.fail(NetworkError(f"agent {to} did not reply within {timeout} s")))
        return await reply

    def _carry(self, sender: AgentId, to: AgentId, what: Any, arrive: Callable[[], None]) -> None:
        fate = self.links.fate(sender, to)
        if isinstance(fate, str):
            self._journal.add(MessageLost, to=to, what=type(what).__name__, why=fate)
            return
        for delay in fate:
            self.loop.later(delay, arrive)

    def _serve(self, sender: AgentId, to: AgentId, message: Any, number: int, reply: Future[Any]) -> None:
        if not self._up[to]:
            self._journal.add(MessageLost, to=to, what=type(message).__name__, why="down")
            return
        inbox = self._delivered.setdefault(to, {})
        if number in inbox:
            return
        inbox[number] = reply
        if len(inbox) > _INBOX:
            del inbox[next(iter(inbox))]
        self.spawn(to, self._answer(sender, to, message, reply))

    async def _answer(self, sender: AgentId, to: AgentId, message: Any, reply: Future[Any]) -> None:
        try:
            result = await self.agents[to].serve(sender, message)
        except NetworkError as error:
            problem: Exception = error
        except Exception as error:
            self.failed(to, message, error)
            problem = NetworkError(f"agent {to} failed: {error}")
        else:
            self._carry(to, sender, result, lambda: reply.resolve(result))
            return
        self._carry(to, sender, problem, lambda: reply.fail(problem))

    # --- faults --------------------------------------------------------------------------------------------------

    def _timed(self, fault: TimedSwap) -> None:
        for begins, at in ((True, fault.at_seconds), (False, fault.back_seconds)):
            self.loop.later(
                at - self.loop.now,
                lambda begins=begins: self._swapped(fault, begins, self.index + 1),  # type: ignore[misc]
            )

    def _swapped(self, fault: BackendSwap, begins: bool, index: int) -> None:
        super()._swapped(fault, begins, index)
        self._bind(fault.agent)

    def _bind(self, agent: AgentId) -> None:
        """Give an agent the models that it now runs on."""
        self.agents[agent].caller.binding = self.world.binding(agent, self.rebound.get(agent))

    def _checkpoint(self) -> None:
        for fault in self.world.faults:
            if isinstance(fault, Crash) and not fault.planned and self._up[fault.agent]:
                self._checkpoints[fault.agent] = self.agents[fault.agent].state()

    def _crash(self, fault: Crash) -> None:
        agent = fault.agent
        if not self._up[agent] or self.index >= fault.back:
            return
        self._up[agent] = False
        self._journal.add(Crashed, agent=agent)
        for process in list(self._owned.pop(agent, ())):
            process.kill()

    def _restart(self, agent: AgentId) -> None:
        if self._up[agent]:
            return
        self._up[agent] = True
        self._incarnation[agent] += 1
        self._delivered.pop(agent, None)
        self.agents[agent] = self._build(agent)
        self._bind(agent)
        self._journal.add(Restarted, agent=agent)
        if agent in self._checkpoints:
            self.agents[agent].restore(self._checkpoints[agent])
        else:
            self.agents[agent].start(self.world.ability_names())


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Spare the cycle collector what was there before and lives on: tasks and agents hold no cycles to be found."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


_COLLECT_EVERY = 20_000
"""Objects gained between collections of the youngest."""


async def _run(action: Callable[[], Awaitable[None]]) -> None:
    await action()


_INBOX = 4096
"""Messages an agent remembers to serve each once."""
