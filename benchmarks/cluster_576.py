"""576 agents as Ray actors: the 630-task synthetic stream on two hosts, start to end, in seconds of wall clock.

    python benchmarks/cluster_576.py [--hosts 2] [--in-flight 32] [--method meshheal]

The network is the saved one of 576 agents; sixteen agents fall and come back in staggered windows. Also says how many edges
cross between hosts and what went over them.
"""

from __future__ import annotations

import argparse
import time

from meshheal.experiment import Arm, Experiment, prepare, summary, world
from meshheal.trace.recorder import MemoryLog
from sim import ray_session as session
from sim.assignment import crossing
from sim.cluster import ClusterRun
from sim.faults import swap
from sim.runtimes import Placement
from sim.workloads import gym
from sim.world import Closed
from topologies import saved

FALLING = 16


def main() -> None:
    """Run once and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--tasks", type=int, default=630)
    parser.add_argument("--method", default="meshheal")
    asked = parser.parse_args()
    at, back = asked.tasks // 6, asked.tasks // 2
    faults = [swap(36 * i, "synthetic/llama-3.2-1b", at + 6 * i, back + 6 * i) for i in range(FALLING)]
    prepared = prepare(
        Experiment(
            name="cluster_576",
            topology=saved(576),
            workload=gym("math", tasks=asked.tasks),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=tuple(f for f in faults if f.back < asked.tasks),
            methods=(asked.method,),
            stream=Closed(asked.in_flight),
        )
    )
    began = time.monotonic()
    session.connect()
    connected = time.monotonic()
    log, arm = MemoryLog(keep=False), Arm(asked.method, 0)
    fold = summary(prepared, arm)
    log.subscribe(fold)
    run = ClusterRun(world(prepared, arm), log, placement=Placement(hosts=asked.hosts))
    run.run()
    ended = time.monotonic()
    result = fold.finish(log.event_hash)
    topology = prepared.topology
    print(
        f"{len(topology)} agents on {max(run.where) + 1} hosts, {asked.tasks} tasks, {asked.in_flight} in flight: "
        f"{ended - connected:.1f} s (and {connected - began:.1f} s to start Ray)\n"
        f"{crossing(topology.neighbours, run.where)} of {topology.edges} edges cross hosts; {run.traffic}\n"
        f"outcomes {result.outcomes}; failures {result.failures}"
    )


if __name__ == "__main__":
    main()
