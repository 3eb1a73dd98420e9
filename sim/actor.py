"""What runs in a Ray actor: one host, told what to do by the driver's calls and by other hosts' batches."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from meshheal.events import WORLD, EventId
from meshheal.journal import Journal
from meshheal.model import Model
from meshheal.types import AgentId, Task
from sim.clock import Clock
from sim.faults import BackendSwap
from sim.host import Host, Rebind
from sim.shipping import ShippingLog
from sim.traffic import Traffic
from sim.wire import Batch, HostId, HostLost, decode, encode
from sim.workloads import AnswerSheet
from sim.world import World


class Spec(Struct, frozen=True):
    """A world as its hosts get it: without the stream's tasks and without the answer sheet.

    Simulated models carry the answers they are drawn from; models behind servers come as their addresses.
    """

    world: World
    models: dict[str, Model]
    where: list[HostId]


class Joining(Struct, frozen=True):
    """What a host needs to begin, or to go on after it died."""

    incarnation: int
    beat: int
    rebound: list[Rebind]
    states: dict[AgentId, bytes] | None
    """Checkpoints to go on from; None at the beginning."""


def spec_of(world: World, where: Sequence[HostId]) -> Spec:
    """What the hosts of a world are sent."""
    models: Mapping[str, Model] = {name: world.model(name) for name in world.model_names()}
    abilities = {task.ability: task for task in world.tasks}
    bare = structs.replace(
        world, tasks=list(abilities.values()), sheet=AnswerSheet(), model=_unset, recall=None, stream=world.stream
    )
    return Spec(bare, dict(models), list(where))


def _unset(name: str) -> Model:
    raise KeyError(name)


class HostActor:
    """The actor's class; `sim.cluster` makes it one of Ray's. Every call carries the caller's clock, and the reply this one's."""

    def __init__(self, id: HostId, began: float) -> None:
        """`began`: when the run did, in seconds since the epoch."""
        self._id = id
        self._clock = Clock(began)
        self._joined = asyncio.Event()
        self._host: Host
        self._log: ShippingLog
        self._peers: list[Any] = []
        self._admitted: set[asyncio.Task[None]] = set()
        self._calls: set[int] = set()

    async def join(self, t: float, spec: Spec, joining: Joining, peers: Sequence[Any]) -> float:
        """Build the agents; go on from their checkpoints after a death. Doing it again does nothing."""
        self._clock.hear(t)
        if not self._joined.is_set():
            now = self._clock.now
            world = structs.replace(spec.world, model=spec.models.__getitem__)
            self._peers = list(peers)
            self._log = ShippingLog(now)
            numbered = 1 + self._id + len(peers) * joining.incarnation
            journal = Journal(WORLD, self._log, now, numbered)
            mine = [a for a, h in enumerate(spec.where) if h == self._id]
            host = self._host = Host(
                world, mine, self._log, now, journal.add,
                id=self._id, where=spec.where, post=self._post, incarnation=joining.incarnation,
            )  # fmt: skip
            self._joined.set()
            await host.advance(joining.beat, joining.rebound)
            if joining.states is not None:
                await host.restore({a: pickle.loads(s) for a, s in joining.states.items()})
        return self._clock.now()

    async def process(self) -> int:
        """The process id."""
        return os.getpid()

    async def incarnation(self) -> int:
        """Of the host here, -1 where it has not joined: it was started anew."""
        return self._host.incarnation if self._joined.is_set() else -1

    async def do(self, t: float, call: str, *arguments: Any) -> tuple[float, Any]:
        """Call a method of the host."""
        self._clock.hear(t)
        await self._here()
        result = await getattr(self._host, call)(*arguments)
        return self._clock.now(), result

    async def admit(self, t: float, call: int, entry: AgentId, task: Task, cause: EventId) -> None:
        """Let a task enter; its end is shipped under the number `call`."""
        self._clock.hear(t)
        await self._here()
        if call in self._calls:
            return
        self._calls.add(call)
        work = asyncio.get_running_loop().create_task(self._admit(call, entry, task, cause))
        self._admitted.add(work)
        work.add_done_callback(self._admitted.discard)

    async def _admit(self, call: int, entry: AgentId, task: Task, cause: EventId) -> None:
        try:
            settled = await self._host.admit(entry, task, cause)
        except Exception:  # what the harness suffers is in `broken`
            return
        self._log.ended(call, settled)

    async def checkpoint(self, t: float) -> tuple[float, dict[AgentId, bytes]]:
        """The states of the agents that did something since the last checkpoint."""
        self._clock.hear(t)
        await self._here()
        states = await self._host.checkpoint()
        return self._clock.now(), {a: pickle.dumps(s) for a, s in states.items()}

    async def ship(self, acked: int, at_once: bool = False) -> list[bytes]:
        """See `ShippingLog.ship`. Raises what the harness suffered here."""
        await self._here()
        broken = self._host.broken
        if broken.done():
            broken.result()
        return await self._log.ship(acked, at_once)

    async def deliver(self, data: bytes) -> None:
        """Take in a batch of another host."""
        batch = decode(data)
        self._clock.hear(batch.t)
        await self._here()
        await self._host.deliver(batch)

    async def traffic(self) -> Traffic:
        return self._host.traffic

    async def close(self) -> None:
        if self._joined.is_set():
            await self._host.close()

    async def _here(self) -> None:
        if not self._joined.is_set():
            async with asyncio.timeout(_JOINING):
                await self._joined.wait()

    async def _post(self, to: HostId, batch: Batch) -> None:
        """Carry a batch to another host, again where it is restarting: what is sent twice is taken in once."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

        data = encode(batch)
        for wait in _RETRIES:
            try:
                await self._peers[to].deliver.remote(data)
                return
            except ActorDiedError as error:
                raise HostLost(f"host {to} died") from error
            except ActorUnavailableError:
                await asyncio.sleep(wait)
            except (RayError, TimeoutError) as error:
                raise HostLost(f"host {to}: {type(error).__name__}") from error
        raise HostLost(f"host {to} is not back after {sum(_RETRIES):g} s")


def bound(swaps: Mapping[AgentId, BackendSwap]) -> list[Rebind]:
    """Swaps in force, as a host that joins is told them."""
    return [Rebind(agent, swap) for agent, swap in swaps.items()]


_JOINING = 30.0
"""Seconds that calls wait for a restarted host to be told its state."""
_RETRIES = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 4.0)
"""Seconds between attempts to reach a host that is restarting."""
