"""The driver of a real-time run: the task stream, the faults and the grading, whatever the agents' hosts are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import log as ln
from typing import Any, Protocol

from meshheal.errors import UsageError
from meshheal.events import (
    WORLD,
    Crashed,
    Event,
    EventId,
    Log,
    Restarted,
    Swapped,
    TaskArrived,
    TaskGraded,
    TaskSettled,
)
from meshheal.journal import Journal
from meshheal.network import Settled
from meshheal.rng import Stream as Draws
from meshheal.types import AgentId, Task
from sim.faults import BackendSwap, Crash, Fault, Swap, TimedSwap
from sim.host import Due, Rebind
from sim.wire import HostId
from sim.world import Closed, Poisson, World


class Port(Protocol):
    """A host as its driver reaches it; see `sim.host.Host` for what each call does. A call to a dead host ends at once."""

    async def begin(self) -> None: ...
    async def advance(self, beat: int, rebind: Sequence[Rebind] = (), at_once: bool = True) -> list[Due]: ...
    async def rouse(self, due: Due) -> None: ...
    async def admit(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None: ...
    async def drain(self) -> bool: ...
    async def checkpoint(self) -> dict[AgentId, Any]: ...
    async def crash(self, agent: AgentId) -> None: ...
    async def restart(self, agent: AgentId, state: Any) -> None: ...


class Driver:
    """Takes a stream of tasks through the agents of some hosts. Only here are answers graded."""

    def __init__(
        self,
        world: World,
        log: Log,
        ports: Sequence[Port],
        where: Sequence[HostId],
        now: Callable[[], float],
        progress: Callable[[int], None],
        enough: Callable[[int], bool],
        checkpoint_every: int = 0,
    ) -> None:
        """`checkpoint_every` arrivals the agents' states are taken; 0: only where agents are to crash."""
        self.world = world
        self.beat = 0
        self.index = -1
        self.checkpoints: dict[AgentId, Any] = {}
        self.rebound: dict[AgentId, BackendSwap] = {}
        """Swaps in force, by agent."""
        self._ports = ports
        self._where = where
        self._now = now
        self._progress = progress
        self._enough = enough
        self._journal = Journal(WORLD, log, now)
        self._one_by_one = isinstance(world.stream, Closed) and world.stream.in_flight == 1
        crashes = any(isinstance(f, Crash) for f in world.faults)
        self._checkpoint_every = checkpoint_every or (_CHECKPOINT_EVERY if crashes else 0)
        self._down: set[AgentId] = set()
        self._asides: set[asyncio.Task[None]] = set()
        self._due: dict[int, list[Fault]] = {}
        scheduled = [f for f in world.faults if not isinstance(f, TimedSwap)]
        for fault in scheduled:
            self._due.setdefault(fault.back, []).append(fault)
        for fault in scheduled:
            self._due.setdefault(fault.at, []).append(fault)

    def note(self, kind: type[Event], task: str = "", **fields: Any) -> None:
        """Write an event of the harness."""
        self._journal.add(kind, task, **fields)

    # --- the stream ----------------------------------------------------------------------------------------------

    async def stream(self) -> None:
        """Take every task to its end."""
        await asyncio.gather(*[port.begin() for port in self._ports])
        await self._drain()
        for fault in self.world.faults:
            if isinstance(fault, TimedSwap):
                self._aside(self._timed(fault))
        if isinstance(self.world.stream, Closed):
            await self._closed(self.world.stream.in_flight)
        else:
            await self._poisson(self.world.stream)
        await self._drain()

    def close(self) -> None:
        """Drop what is scheduled by the clock."""
        for task in self._asides:
            task.cancel()

    def _aside(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    def _arrivals(self) -> Iterator[tuple[int, Task]]:
        for index, task in enumerate(self.world.tasks):
            if self._enough(index):
                return
            yield index, task

    async def _closed(self, in_flight: int) -> None:
        if in_flight == 1:
            for index, task in self._arrivals():
                await self._advance(index)
                await self._task(index, task)
                await self._drain()
            return
        arrivals = self._arrivals()

        async def lane() -> None:
            for index, task in arrivals:
                await self._advance(index)
                await self._task(index, task)

        await _all([lane() for _ in range(in_flight)])

    async def _poisson(self, stream: Poisson) -> None:
        draws = Draws(self.world.seed, "arrivals")
        async with asyncio.TaskGroup() as group:
            for index, task in self._arrivals():
                await asyncio.sleep(-ln(1.0 - draws.uniform()) / stream.rate)
                await self._advance(index)
                group.create_task(self._task(index, task))

    async def _task(self, index: int, task: Task) -> None:
        entry = self.world.entry(index)
        cause = self._journal.add(
            TaskArrived,
            task.id,
            index=index,
            entry=entry,
            ability=task.ability,
            task_kind=task.kind,
            prompt=self._journal.text(task.messages[-1].content),
        )
        settled = None
        if entry not in self._down:
            settled = await self._ports[self._where[entry]].admit(entry, task, cause)
        if settled is None:
            # The entry agent is gone: the harness writes the task's outcome in its place.
            self._journal.add(TaskSettled, task.id, (cause,), outcome="failed")
            settled = Settled("failed")
        correct = None if settled.value is None else self.world.sheet.correct(task, settled.value)
        self._journal.add(TaskGraded, task.id, correct=correct)
        self._progress(index)

    async def _drain(self) -> None:
        """Wait until no host has work in the background.

        Evidence is acknowledged after what it gives rise to, so that a host that is idle has left nothing to do at another;
        where one says otherwise, all are asked again.
        """
        while any(await asyncio.gather(*[port.drain() for port in self._ports])):
            pass

    # --- faults, beats, wake-ups ---------------------------------------------------------------------------------

    async def _advance(self, index: int) -> None:
        """Before arrival `index`: its faults take effect, and what is due on the local clock is done."""
        rebind: list[Rebind] = []
        for fault in self._due.get(index, ()):
            match fault:
                case Swap() if index in (fault.at, fault.back):
                    rebind.append(self._swapped(fault, index == fault.at, index))
                case Crash() if index == fault.at:
                    self._aside(self._crash(fault))
                case Crash(agent=agent) if index == fault.back:
                    await self._restart(agent)
        self.index = index
        beat = int(index / self.world.arrivals_per_beat)
        changed = beat != self.beat
        self.beat = beat
        if self._checkpoint_every and index % self._checkpoint_every == 0:
            await self.checkpoint()
        if changed or rebind:
            await self._tell_hosts(rebind)

    async def _tell_hosts(self, rebind: Sequence[Rebind]) -> None:
        """Give all hosts the beat and the swaps. One by one the wake-ups are run in the local runtime's order."""
        calls = []
        for host, port in enumerate(self._ports):
            theirs = [r for r in rebind if self._where[r.agent] == host]
            calls.append(port.advance(self.beat, theirs, at_once=not self._one_by_one))
        found = await asyncio.gather(*calls)
        for due in sorted([due for some in found for due in some]):
            await self._ports[self._where[due.agent]].rouse(due)
        if any(found):
            await self._drain()

    def _swapped(self, fault: BackendSwap, begins: bool, index: int) -> Rebind:
        """Note a swap or its end; what the agent's host is to be told of it."""
        agent = fault.agent
        if begins:
            self.rebound[agent] = fault
        else:
            self.rebound.pop(agent, None)
        if self.world.truth is not None:
            self.world.truth.swapped(agent, begins and fault.degraded)
        self._journal.add(
            Swapped,
            agent=agent,
            to=fault.to if begins else self.world.healthy[agent],
            index=index,
            degraded=begins and fault.degraded,
            roles=fault.roles,
        )
        return Rebind(agent, fault if begins else None)

    async def _timed(self, fault: TimedSwap) -> None:
        """A swap by the clock: for the calls that begin after it, whatever is in flight."""
        for begins, at in ((True, fault.at_seconds), (False, fault.back_seconds)):
            await asyncio.sleep(max(0.0, at - self._now()))
            change = self._swapped(fault, begins, self.index + 1)
            await self._ports[self._where[fault.agent]].advance(self.beat, [change])

    async def checkpoint(self) -> None:
        """Take the states of all agents that are up."""
        for states in await asyncio.gather(*[port.checkpoint() for port in self._ports]):
            self.checkpoints.update(states)

    async def _crash(self, fault: Crash) -> None:
        await asyncio.sleep(fault.after)
        agent = fault.agent
        if agent in self._down or self.index >= fault.back:
            return
        self._down.add(agent)
        self._journal.add(Crashed, agent=agent)
        await self._ports[self._where[agent]].crash(agent)

    async def _restart(self, agent: AgentId) -> None:
        if agent not in self._down:
            return
        self._down.discard(agent)
        self._journal.add(Restarted, agent=agent)
        await self._ports[self._where[agent]].restart(agent, self.checkpoints.get(agent))


def require_real_links(world: World) -> None:
    """Raise `UsageError` where a world has faults that only simulated links can have."""
    unreal = [f for f in world.faults if not isinstance(f, Swap | TimedSwap | Crash)]
    if unreal or not world.links.perfect:
        what = type(unreal[0]).__name__.lower() if unreal else "links"
        raise UsageError(f"{what}: simulated links are part of the local runtime; run it with --runtime local")


async def _all(work: Sequence[Any]) -> None:
    """Run all; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


_CHECKPOINT_EVERY = 5
"""Arrivals between checkpoints, where agents are to crash."""
