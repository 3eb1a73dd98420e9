"""Claim: what is no degradation leads to no exclusion: a swap to the same model, drift of tasks, one agent that got better.

False exclusions by reviewed outputs of healthy agents, with an exact Poisson interval. `harder` (tasks ever harder) needs the
levels of MATH: it runs on them with --data DIR, and is refused without. Power against dose: degradation_ladder.
"""

from meshheal.experiment import Experiment
from meshheal.results import Family
from meshheal.suite import Suite, main
from sim.faults import Fault, swap
from sim.workloads import gym
from sim.workloads.stream import Order
from topologies import complete

STRONG, MIDDLE = "synthetic/gpt-oss-120b", "synthetic/gpt-oss-20b"


def quiet(label: str, faults: tuple[Fault, ...] = (), order: Order = "drawn", healthy: str = STRONG) -> Experiment:
    return Experiment(
        name=f"placebo_{label}",
        topology=complete(6),
        workload=gym("math", tasks=1500, benchmark="MATH"),
        healthy=healthy,
        outside="synthetic/llama-3.1-8b",
        faults=faults,
        methods=("meshheal", "meshheal-seed"),
        seeds=10,
        order=order,
        family=Family(measures=("false_exclusions",)),
    )


SUITE = Suite(
    name="placebo",
    experiments={
        "nothing": quiet("nothing"),
        "same-model": quiet("same", tuple(swap(a, STRONG, 300 + 100 * a, 1200, degraded=False) for a in (0, 3))),
        "one-improved": quiet("improved", (swap(0, STRONG, 300, 1500, degraded=False),), healthy=MIDDLE),
        "ability-mix": quiet("mix", order="abilities"),
        "harder": quiet("harder", order="harder"),
    },
    columns=("false_exclusions", "false_exclusions_per_100k", "arl0_outputs", "accuracy_healthy", "tokens_per_task"),
)

if __name__ == "__main__":
    main(SUITE)
