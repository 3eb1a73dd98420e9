"""Claim: an agent that goes bad and well again in turn does no more harm than its shortest detection lets by.

One agent of six is on Llama-3.2-1B for every other stretch of so many arrivals, over 480 arrivals.
"""

from meshheal.experiment import Experiment
from meshheal.suite import Suite, main
from sim.faults import swap
from sim.workloads import gym
from topologies import complete

FROM, UNTIL = 105, 585

SUITE = Suite(
    name="flapping",
    experiments={
        f"every-{stretch}": Experiment(
            name=f"flapping_{stretch}",
            topology=complete(6),
            workload=gym("math", tasks=630),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=tuple(
                swap(0, "synthetic/llama-3.2-1b", at=at, back=at + stretch)
                for at in range(FROM, UNTIL - stretch + 1, 2 * stretch)
            ),
            methods=("meshheal", "unprotected"),
            seeds=10,
        )
        for stretch in (10, 30, 60, 120)
    },
    columns=(
        "accuracy_degraded", "degraded_minus_twin", "detected", "detection_tasks", "reintegration_tasks",
        "false_exclusions",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(SUITE)
