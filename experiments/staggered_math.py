"""Claim: both degraded agents are found, excluded and taken back in every seed (MeshHeal, Table 3)."""

from meshheal.experiment import Experiment, main
from sim.faults import swap
from sim.workloads import gym
from topologies import complete

EXPERIMENT = Experiment(
    name="staggered_math",
    topology=complete(6),
    workload=gym("math", tasks=630),
    healthy="synthetic/gpt-oss-120b",
    outside="synthetic/llama-3.1-8b",
    faults=(
        swap(agent=0, to="synthetic/llama-3.2-1b", at=105, back=315),
        swap(agent=3, to="synthetic/llama-3.2-1b", at=210, back=420),
    ),
    methods=("meshheal", "meshheal-seed", "unprotected"),
    seeds=5,
)

if __name__ == "__main__":
    main(EXPERIMENT)
