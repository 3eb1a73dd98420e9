"""Claim: MeshHeal's degraded-phase accuracy is ahead of Symphony's whatever Symphony's planners, steps and output caps.

A rank that depends on how many planners a rival is given, or on where its outputs are cut, is no rank. What is cut off before it
came to its answer has none; a step of K is taken to be a K-th as long as a whole answer.
"""

from meshheal.experiment import Experiment
from meshheal.suite import Suite, main
from sim.faults import staggered
from sim.workloads import gym
from topologies import complete

CAPS = {"": 8192, "-cap512": 512}

SUITE = Suite(
    name="symphony_settings",
    experiments={
        f"M{planners}-K{steps}{cut}": Experiment(
            name=f"symphony_M{planners}_K{steps}{cut}",
            topology=complete(6),
            workload=gym("math", tasks=630, benchmark="BBH"),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=staggered("synthetic/llama-3.2-1b"),
            methods=("meshheal", "symphony-paper"),
            seeds=5,
            twin=False,
            settings={"methods": {"symphony": {"planners": planners, "steps": steps, "max_output": cap}}},
        )
        for planners in (1, 3)
        for steps in (1, 4)
        for cut, cap in CAPS.items()
    },
    columns=("accuracy_degraded", "accuracy_healthy", "tokens_per_task", "calls_per_task"),
)

if __name__ == "__main__":
    main(SUITE)
