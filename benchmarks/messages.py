"""Messages a second between two hosts on Ray: batched as the runtime sends them, against one `.remote()` a message.

    python benchmarks/messages.py [--rounds 3] [--seconds 3]

Both ways are measured in turn in one process pair, with the same requests of about 1 KB in both directions at once; a
request and its reply are two messages. What counts is the ratio: rates drift with what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

from meshheal.experiment import Arm, Experiment, prepare, world
from meshheal.network import Advert
from sim import ray_session as session
from sim.actor import HostActor, Joining, spec_of
from sim.assignment import assign_hosts
from sim.workloads import gym
from topologies import complete

ASKED = Advert(0, tuple((f"an ability with a longish name, number {i}", i) for i in range(22)))
"""A kilobyte that costs its receiver next to nothing: an advert that is no news."""
LANES = 512
"""Requests that a host has open at a time."""


class Exchanging(HostActor):
    """A host that asks the agents of the other one as fast as it can."""

    async def batched(self, seconds: float) -> int:
        """Round trips by the runtime's own way."""
        host = self._host
        mine = list(host.agents)
        theirs = [a for a in range(len(host.where)) if host.where[a] != host.id]
        return await self._lanes(
            seconds, lambda i: host.agents[mine[i % len(mine)]].network.ask(theirs[i % len(theirs)], ASKED, 30.0)
        )

    async def single(self, seconds: float) -> int:
        """Round trips with a call of the other actor for each."""
        peer = self._peers[1 - self._id]
        return await self._lanes(seconds, lambda _: peer.served.remote(ASKED))

    async def served(self, message: Advert) -> bool:
        """Take in one message of `single`."""
        agent = next(iter(self._host.agents))
        return bool(await self._host.agents[agent].serve(agent, message))

    async def _lanes(self, seconds: float, ask: Any) -> int:
        until, done = time.monotonic() + seconds, 0

        async def lane(i: int) -> None:
            nonlocal done
            while time.monotonic() < until:
                await ask(i)
                done += 1

        await asyncio.gather(*[lane(i) for i in range(LANES)])
        return done


async def measure(rounds: int, seconds: float) -> None:
    """Print the rates of each round, and the medians."""
    experiment = Experiment(
        name="messages",
        topology=complete(12),
        workload=gym("math", tasks=1),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
    )
    made = world(prepare(experiment), Arm("meshheal", 0))
    where = assign_hosts(made.neighbours, 2)
    spec = session.shared(spec_of(made, where))
    with session.actors(time.time(), 2, Exchanging) as actors:
        first = Joining(0, 0, [], None)
        await session.ready([a.join.remote(0.0, spec, first, actors) for a in actors])
        for way in ("batched", "single"):
            await asyncio.gather(*[getattr(a, way).remote(0.5) for a in actors])  # fresh pairs are slow
        rates: dict[str, list[float]] = {"batched": [], "single": []}
        for n in range(rounds):
            for way in ("batched", "single") if n % 2 == 0 else ("single", "batched"):
                began = time.monotonic()
                trips = await asyncio.gather(*[getattr(a, way).remote(seconds) for a in actors])
                rates[way].append(2 * sum(trips) / (time.monotonic() - began))
            print(
                f"round {n}: batched {rates['batched'][-1]:,.0f} messages/s, one .remote() each {rates['single'][-1]:,.0f}"
            )
    batched, single = (statistics.median(rates[way]) for way in ("batched", "single"))
    print(f"medians: batched {batched:,.0f} messages/s, one .remote() each {single:,.0f}, ratio {batched / single:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    session.connect()
    asyncio.run(measure(asked.rounds, asked.seconds))


if __name__ == "__main__":
    main()
