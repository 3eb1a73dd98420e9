"""A world on a Ray cluster: hosts are actors, the driver is the process that runs the experiment."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from meshheal.errors import NetworkError, TraceError
from meshheal.events import Crashed, EventId, Log, Restarted
from meshheal.network import Settled
from meshheal.types import AgentId, Task
from sim import ray_session as session
from sim.actor import Joining, bound, spec_of
from sim.assignment import assign_hosts
from sim.clock import Clock
from sim.driver import Driver, require_real_links
from sim.host import Due, Rebind
from sim.runtimes import Placement
from sim.shipping import Merger, read
from sim.traffic import Traffic
from sim.wire import HostId, HostLost
from sim.world import World


class RemoteHost:
    """A host in an actor, as the driver reaches it (`sim.driver.Port`). While it restarts, calls wait."""

    def __init__(self, id: HostId, actor: Any, clock: Clock, merger: Merger) -> None:
        self.id = id
        self.actor = actor
        self.incarnation = 0
        self.up = asyncio.Event()
        self.up.set()
        self._clock = clock
        self._merger = merger
        self._calls: dict[int, tuple[Task, asyncio.Future[Settled | None]]] = {}
        self._count = 0

    async def begin(self) -> None:
        await self._insist("begin")

    async def advance(self, beat: int, rebind: Sequence[Rebind] = (), at_once: bool = True) -> list[Due]:
        found: list[Due] = await self._insist("advance", beat, list(rebind), at_once)
        return found

    async def rouse(self, due: Due) -> None:
        with contextlib.suppress(HostLost):  # a restarted host plans anew
            await self._do("rouse", due)

    async def drain(self) -> bool:
        loose: bool = await self._insist("drain")
        return loose

    async def peer_lost(self, host: HostId) -> None:
        with contextlib.suppress(HostLost):
            await self._do("peer_lost", host)

    async def crash(self, agent: AgentId) -> None:
        await self._insist("crash", agent)

    async def restart(self, agent: AgentId, state: Any) -> None:
        await self._insist("restart", agent, None if state is None else pickle.loads(state))

    async def checkpoint(self) -> dict[AgentId, Any]:
        try:
            states: dict[AgentId, Any] = await self._called(self.actor.checkpoint)
        except HostLost:
            return {}
        return states

    async def admit(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None:
        """The task's end; None where the host died before it wrote the task's outcome."""
        await self.up.wait()
        self._count += 1
        call, end = self._count, asyncio.get_running_loop().create_future()
        self._calls[call] = (task, end)
        try:
            while not end.done():
                try:
                    await self.actor.admit.remote(self._clock.now(), call, entry, task, cause)
                    break
                except session.lost():
                    self.up.clear()
                    await self.up.wait()  # either the host is still there, or all its calls have ended
            settled: Settled | None = await end
            return settled
        finally:
            del self._calls[call]

    def ended(self, call: int, settled: Settled | None) -> None:
        """A task's end was shipped."""
        if call in self._calls and not self._calls[call][1].done():
            self._calls[call][1].set_result(settled)

    def died(self) -> None:
        """End all calls: what was shipped of a task's outcome holds, and there will be no other."""
        for task, end in self._calls.values():
            if not end.done():
                end.set_result(self._merger.settled(task.id))

    async def _insist(self, call: str, *arguments: Any) -> Any:
        while True:
            try:
                return await self._do(call, *arguments)
            except HostLost:
                continue

    async def _do(self, call: str, *arguments: Any) -> Any:
        return await self._called(self.actor.do, call, *arguments)

    async def _called(self, method: Any, *arguments: Any) -> Any:
        await self.up.wait()
        try:
            t, result = await method.remote(self._clock.now(), *arguments)
        except session.lost() as error:
            self.up.clear()
            raise HostLost(f"host {self.id}") from error
        except session.failed() as error:
            raise error.cause from None
        self._clock.hear(t)
        return result


class ClusterRun:
    """A world on the actors of a Ray cluster, in real time. `run()` takes the whole stream through it.

    A host that dies is restarted, and its agents go on from their last checkpoint; tasks that had entered there fail, each
    with one outcome in the log.
    """

    def __init__(
        self,
        world: World,
        log: Log,
        progress: Callable[[int], None] = lambda _: None,
        enough: Callable[[int], bool] = lambda _: False,
        *,
        placement: Placement = Placement(),  # noqa: B008 (a frozen value)
    ) -> None:
        """Connects to the cluster. Raises `UsageError` where there is no Ray, or one that does not fit."""
        require_real_links(world)
        session.connect()
        self.world = world
        self.log = log
        self.traffic = Traffic()
        self.where = assign_hosts(world.neighbours, placement.count(world.size, session.cpus()))
        self.hosts: list[RemoteHost] = []
        self.clock = Clock(time.time())
        self._progress = progress
        self._enough = enough
        self._merger: Merger
        self._driver: Driver

    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock.now()

    def run(self) -> None:
        """Take every task of the stream to its end."""
        asyncio.run(self.main())

    async def main(self) -> None:
        """`run`, for callers that are on a loop already."""
        began = time.time()
        self.clock = Clock(began)
        count = max(self.where) + 1
        merger = self._merger = Merger(self.log, range(count), self.clock.now)
        self._spec = session.shared(spec_of(self.world, self.where))
        with session.actors(began, count) as actors:
            self.hosts = [RemoteHost(h, actor, self.clock, merger) for h, actor in enumerate(actors)]
            self._driver = Driver(
                self.world, merger, self.hosts, self.where, self.clock.now, self._progress, self._enough,
                checkpoint_every=_CHECKPOINT_EVERY,
            )  # fmt: skip
            first = Joining(0, 0, [], None)
            await session.ready([actor.join.remote(0.0, self._spec, first, actors) for actor in actors])
            await self._drive()

    async def _drive(self) -> None:
        stream = asyncio.create_task(self._driver.stream())
        following = [asyncio.create_task(self._follow(host)) for host in self.hosts]
        try:
            await asyncio.wait([stream, *following], return_when=asyncio.FIRST_COMPLETED)
            for one in (*following, stream):
                if one.done():
                    one.result()
            await _stopped(following)
            for host in self.hosts:
                self._take(host, await host.actor.ship.remote(self._merger.acked(host.id), True))
                self.traffic += await host.actor.traffic.remote()
            self._merger.flush()
        except BaseException:
            with contextlib.suppress(TraceError):
                self._merger.flush()
            raise
        finally:
            self._driver.close()
            await _stopped([stream, *following])
            await session.ended([host.actor.close.remote() for host in self.hosts])

    # --- what hosts ship -----------------------------------------------------------------------------------------

    async def _follow(self, host: RemoteHost) -> None:
        """Take in what a host ships, and bring it back when it dies."""
        while True:
            try:
                async with asyncio.timeout(_STALLED):
                    parts = await host.actor.ship.remote(self._merger.acked(host.id))
            except session.lost():
                await self._recover(host)
            except session.failed() as error:
                raise error.cause from None
            except TimeoutError:
                session.kill(host.actor)  # a process that stands still is as good as dead: it is started anew
            else:
                self._take(host, parts)

    def _take(self, host: RemoteHost, parts: Sequence[bytes]) -> None:
        for data in parts:
            shipment = read(data)
            self.clock.hear(shipment.t)
            if self._merger.take(host.id, shipment):
                for call, settled in shipment.ended:
                    host.ended(call, settled)

    async def _recover(self, host: RemoteHost) -> None:
        """A host could not be reached: wait until it can, and where it was started anew, tell it where it was."""
        host.up.clear()
        found = await self._answering(host)
        if found != host.incarnation:
            await self._rejoin(host)
        host.up.set()

    async def _answering(self, host: RemoteHost) -> int:
        """The incarnation of the host, once it answers. Raises `NetworkError` where it does not within a minute."""
        deadline = time.monotonic() + _RESTARTING
        while True:
            try:
                async with asyncio.timeout(_ANSWERING):
                    found: int = await host.actor.incarnation.remote()
                    return found
            except _unreachable() as error:
                if session.is_final(error) or time.monotonic() > deadline:
                    raise NetworkError(
                        f"host {host.id} died and was not restarted within {_RESTARTING:g} s; what was recorded is kept, "
                        "go on with --resume"
                    ) from error
                await asyncio.sleep(_PAUSE)

    async def _rejoin(self, host: RemoteHost) -> None:
        driver, merger = self._driver, self._merger
        mine = [a for a, h in enumerate(self.where) if h == host.id]
        merger.lost(host.id)
        for agent in mine:
            driver.note(Crashed, agent=agent)
        host.died()
        others = [other for other in self.hosts if other is not host and other.up.is_set()]
        await asyncio.gather(*[other.peer_lost(host.id) for other in others])
        host.incarnation += 1
        rebound = {a: swap for a, swap in driver.rebound.items() if a in set(mine)}
        states = {a: driver.checkpoints[a] for a in mine if a in driver.checkpoints}
        for agent in mine:
            driver.note(Restarted, agent=agent)
        merger.back(host.id)
        joining = Joining(host.incarnation, driver.beat, bound(rebound), states)
        try:
            await host.actor.join.remote(self.clock.now(), self._spec, joining, [h.actor for h in self.hosts])
        except session.lost():
            await self._recover(host)


def _unreachable() -> tuple[type[BaseException], ...]:
    return (TimeoutError, *session.lost())


async def _stopped(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_CHECKPOINT_EVERY = 10
"""Arrivals between checkpoints."""
_STALLED = 60.0
"""Seconds of silence after which a host, which ships its clock four times a second, is started anew."""
_RESTARTING = 60.0
"""Seconds that a host has to be back in."""
_ANSWERING = 5.0
_PAUSE = 0.2
