"""One process in real time: for models that are served somewhere, and for tests of what runs on a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from meshheal.events import Log
from meshheal.types import AgentId
from sim.assignment import assign_hosts
from sim.driver import Driver, require_real_links
from sim.host import Host
from sim.traffic import Traffic
from sim.wire import Batch, HostId, decode, encode
from sim.world import World

Transport = Callable[[HostId, bytes], Awaitable[None]]


class RealtimeRun:
    """A world on this process' clock. `run()` takes the whole stream through it.

    The latency of simulated models is told in the log, not waited for. With several `hosts` the agents are spread over as
    many and what passes between them is encoded, as on a cluster.
    """

    def __init__(
        self,
        world: World,
        log: Log,
        progress: Callable[[int], None] = lambda _: None,
        enough: Callable[[int], bool] = lambda _: False,
        *,
        hosts: int = 1,
        clock: Callable[[], float] = time.monotonic,
        through: Callable[[Transport], Transport] = lambda transport: transport,
    ) -> None:
        """`progress` and `enough` as for `LocalRun`; `through` wraps what carries bytes to a host, for tests of faults.

        Raises `UsageError` for faults that only simulated links can have.
        """
        require_real_links(world)
        self.world = world
        self.log = log
        self.traffic = Traffic()
        self.where = assign_hosts(world.neighbours, hosts)
        self.hosts: list[Host] = []
        self._progress = progress
        self._enough = enough
        self._clock = clock
        self._start = clock()
        self._transport = through(self._carry)

    @property
    def agents(self) -> dict[AgentId, object]:
        """All agents by number."""
        return {a: agent for host in self.hosts for a, agent in host.agents.items()}

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._start

    def run(self) -> None:
        """Take every task of the stream to its end."""
        asyncio.run(self.main())

    async def main(self) -> None:
        """`run`, for callers that are on a loop already."""
        self._start = self._clock()
        driver = Driver(self.world, self.log, self.hosts, self.where, self.now, self._progress, self._enough)
        for host in range(max(self.where) + 1):
            mine = [a for a, h in enumerate(self.where) if h == host]
            made = Host(self.world, mine, self.log, self.now, driver.note, id=host, where=self.where, post=self._post)
            self.hosts.append(made)
        stream = asyncio.create_task(driver.stream())
        broken = [host.broken for host in self.hosts]
        try:
            await asyncio.wait([stream, *broken], return_when=asyncio.FIRST_COMPLETED)
            for one in (*broken, stream):
                if one.done():
                    one.result()
        finally:
            stream.cancel()
            driver.close()
            await asyncio.gather(stream, return_exceptions=True)
            await self._close()

    async def _close(self) -> None:
        for host in self.hosts:
            self.traffic += host.traffic
            await host.close()
            host.broken.cancel()

    async def _post(self, to: HostId, batch: Batch) -> None:
        await self._transport(to, encode(batch))

    async def _carry(self, to: HostId, data: bytes) -> None:
        await self.hosts[to].deliver(decode(data))
