"""Claim: each part of MeshHeal earns its place: without it the degraded phase is worse, or detection later or more in error.

On BBH, beside the paper's .900 (whole), .865 and .844 (without a timescale). With --data DIR on BBH's own items, else on
generated tasks with the models' accuracies there. Oracles of one timescale say how much is left to gain.
"""

from meshheal.experiment import Experiment
from meshheal.methods import METHODS
from meshheal.results import Family
from meshheal.suite import Suite, main
from sim.faults import staggered
from sim.workloads import gym
from topologies import complete

PARTS = tuple(n for n in METHODS if n.startswith("meshheal-") and n not in ("meshheal-seed", "meshheal-central"))
BOUNDS = ("oracle-fast", "oracle-slow")

SUITE = Suite(
    name="ablations",
    experiments={
        "bbh": Experiment(
            name="ablations_bbh",
            topology=complete(6),
            workload=gym("math", tasks=630, benchmark="BBH"),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=staggered("synthetic/llama-3.2-1b"),
            methods=("meshheal", "meshheal-seed", *PARTS, *BOUNDS, "unprotected"),
            seeds=30,
            family=Family(against=PARTS),
        )
    },
    columns=("accuracy_degraded", "tokens_per_task", "degraded_minus_twin", "detection_tasks", "false_exclusions"),
)

if __name__ == "__main__":
    main(SUITE)
