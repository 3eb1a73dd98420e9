"""Claim: agents that join, leave or crash are not mistaken for bad ones, and do not keep a bad one from being found.

Twelve agents; in each case agent 0 is also swapped to Llama-3.2-1B for arrivals 315 to 525. Tasks that enter at a crashed agent
are lost with it and count as wrong.
"""

from meshheal.experiment import Experiment
from meshheal.suite import Suite, main
from sim.faults import Crash, join, leave, swap
from sim.workloads import gym
from topologies import complete

CASES = {
    "nobody": (),
    "join": tuple(join(agent=a, at=at) for a, at in ((4, 60), (7, 200), (10, 330))),
    "leave": tuple(leave(agent=a, at=at) for a, at in ((4, 60), (7, 200), (10, 330))),
    "crash": tuple(Crash(agent=a, at=at, back=at + 40) for a, at in ((4, 60), (7, 200), (10, 330))),
    "all": (join(4, 60), leave(7, 200), Crash(10, 330, 370)),
}

SUITE = Suite(
    name="churn",
    experiments={
        label: Experiment(
            name=f"churn_{label}",
            topology=complete(12),
            workload=gym("math", tasks=630),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=(*faults, swap(agent=0, to="synthetic/llama-3.2-1b", at=315, back=525)),
            methods=("meshheal", "unprotected"),
            seeds=5,
        )
        for label, faults in CASES.items()
    },
    columns=(
        "accuracy_degraded", "accuracy_healthy", "detected", "detection_tasks", "false_exclusions",
        "reintegration_tasks",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(SUITE)
