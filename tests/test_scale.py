"""What a task costs does not grow with the network: calls are counted, since seconds depend on who else is at work."""

from __future__ import annotations

import cProfile
import pstats

from meshheal.experiment import Arm, Experiment, prepare, world
from meshheal.trace.recorder import MemoryLog
from sim.local import LocalRun
from sim.workloads import gym
from topologies import parse


def calls_per_task(agents: int, tasks: int) -> float:
    experiment = Experiment(
        name="scale",
        topology=parse(f"coverage:{agents},at_least=4"),
        workload=gym("math", tasks=tasks),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        methods=("meshheal",),
        seeds=1,
    )
    run = LocalRun(world(prepare(experiment), Arm("meshheal", 0)), MemoryLog())
    profile = cProfile.Profile()
    profile.runcall(run.run)
    return sum(count for _, count, *_ in pstats.Stats(profile).stats.values()) / tasks


def test_a_task_takes_as_many_calls_in_a_large_sparse_network_as_in_a_small_one():
    assert calls_per_task(600, 600) < 1.15 * calls_per_task(60, 60)
