"""The harness of a real-time run, whatever the agents' hosts are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from meshheal.errors import UsageError
from meshheal.events import Crashed, Event, EventId, Log, Restarted
from meshheal.network import Settled
from meshheal.types import AgentId, Task
from sim.faults import BackendSwap, Crash, Swap, TimedSwap
from sim.harness import CHECKPOINT_EVERY, Harness
from sim.host import Due, Rebind
from sim.wire import HostId
from sim.world import World


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


class Driver(Harness):
    """Takes a stream of tasks through the agents of some hosts."""

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
        super().__init__(world, log, now, progress, enough)
        self.checkpoints: dict[AgentId, Any] = {}
        self._ports = ports
        self._where = where
        crashes = any(isinstance(f, Crash) for f in world.faults)
        self._checkpoint_every = checkpoint_every or (CHECKPOINT_EVERY if crashes else 0)
        self._down: set[AgentId] = set()
        self._asides: set[asyncio.Task[None]] = set()
        self._launched: list[asyncio.Task[None]] = []

    def note(self, kind: type[Event], task: str = "", **fields: Any) -> None:
        """Write an event of the harness."""
        self._journal.add(kind, task, **fields)

    def close(self) -> None:
        """Drop what is scheduled by the clock, and tasks on their way."""
        for task in (*self._asides, *self._launched):
            task.cancel()

    def _aside(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    # --- the stream ----------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        await asyncio.gather(*[port.begin() for port in self._ports])

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _launch(self, work: Coroutine[Any, Any, None]) -> None:
        self._launched.append(asyncio.get_running_loop().create_task(work))

    async def _landed(self) -> None:
        await asyncio.gather(*self._launched)

    async def _together(self, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Run all; the first error ends the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(work)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _admit(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None:
        if entry in self._down:
            return None
        return await self._ports[self._where[entry]].admit(entry, task, cause)

    async def _drain(self) -> None:
        """Wait until no host has work in the background.

        Evidence is acknowledged after what it gives rise to, so that a host that is idle has left nothing to do at another;
        where one says otherwise, all are asked again.
        """
        while any(await asyncio.gather(*[port.drain() for port in self._ports])):
            pass

    # --- faults, beats, wake-ups ---------------------------------------------------------------------------------

    async def _advance(self, index: int) -> None:
        rebind: list[Rebind] = []
        for fault in self._due.get(index, ()):
            match fault:
                case Swap() if index in (fault.at, fault.back):
                    rebind.append(self._rebind(fault, index == fault.at, index))
                case Crash() if index == fault.at:
                    self._aside(self._crash(fault))
                case Crash() if index == fault.back:
                    await self._restart(fault)
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

    def _rebind(self, fault: BackendSwap, begins: bool, index: int) -> Rebind:
        """Note a swap or its end; what the agent's host is to be told of it."""
        self._swapped(fault, begins, index)
        return Rebind(fault.agent, fault if begins else None)

    def _timed(self, fault: TimedSwap) -> None:
        self._aside(self._timed_swap(fault))

    async def _timed_swap(self, fault: TimedSwap) -> None:
        for begins, at in ((True, fault.at_seconds), (False, fault.back_seconds)):
            await asyncio.sleep(max(0.0, at - self._now()))
            change = self._rebind(fault, begins, self.index + 1)
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

    async def _restart(self, fault: Crash) -> None:
        agent = fault.agent
        if agent not in self._down:
            return
        self._down.discard(agent)
        self._journal.add(Restarted, agent=agent)
        state = None if fault.planned else self.checkpoints.get(agent)
        await self._ports[self._where[agent]].restart(agent, state)


def require_real_links(world: World) -> None:
    """Raise `UsageError` where a world has faults that only simulated links can have."""
    unreal = [f for f in world.faults if not isinstance(f, Swap | TimedSwap | Crash)]
    if unreal or not world.links.perfect:
        what = type(unreal[0]).__name__.lower() if unreal else "links"
        raise UsageError(f"{what}: simulated links are part of the local runtime; run it with --runtime local")
