"""Claim: when a whole neighbourhood falls together, nobody can say who is well, but the network says that something is.

One to all six agents are swapped to Llama-3.2-1B at the same arrival. What is left to answer, and how soon the group alarm
comes (`alarm_delay`: among the seeds in which it came).
"""

from meshheal.experiment import Experiment
from meshheal.suite import Suite, main
from sim.faults import swap
from sim.workloads import gym
from topologies import complete

SUITE = Suite(
    name="correlated",
    experiments={
        f"{k}-of-6": Experiment(
            name=f"correlated_{k}",
            topology=complete(6),
            workload=gym("math", tasks=630),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=tuple(swap(agent=a, to="synthetic/llama-3.2-1b", at=210, back=525) for a in range(k)),
            methods=("meshheal", "unprotected"),
            seeds=10,
        )
        for k in range(1, 7)
    },
    columns=("accuracy_degraded", "detected", "detection_tasks", "group_alarms", "alarm_delay", "withheld"),
)

if __name__ == "__main__":
    main(SUITE)
