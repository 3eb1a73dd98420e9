"""Claim: on a hundredth of a complete graph's edges all degraded agents are isolated, at a cost a task that does not grow.

A third of the agents is swapped to Llama-3.2-1B after 35 of 105 tasks an agent, and stays so. Sparse: cells of six, joined
in a ring, two degraded a cell (`stratified`) or anywhere (`random`); complete graphs up to 576 agents. The whole takes hours and
gigabytes: --only picks. `meshheal tables RUN --costs` has edges, counts and seconds, `meshheal compare RUN/576-stratified
RUN/576-complete` the paired difference of accuracy.
"""

from meshheal.experiment import Experiment
from meshheal.results import Family
from meshheal.suite import Suite, main
from sim.faults import swap
from sim.workloads import gym
from topologies import assign, cells, complete, random_placement, stratified

SIZES = (6, 36, 144, 576, 2304, 10_000)
COMPLETE = (36, 144, 576)
A_AGENT, HEALTHY = 105, 35
ABILITIES = ("algebra", "arithmetic", "geometry")


def scaling(n: int, graph: str, placement: str) -> Experiment:
    made = complete(n) if graph == "complete" else cells(n)
    sparse = assign(cells(n), ABILITIES)
    # The same agents are degraded in the complete graph, so that only the edges differ.
    degraded = stratified(sparse) if placement == "stratified" else random_placement(sparse)
    return Experiment(
        name=f"scaling_{n}_{graph}_{placement}",
        topology=assign(made, ABILITIES),
        workload=gym("math", tasks=A_AGENT * n),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        faults=tuple(swap(a, "synthetic/llama-3.2-1b", at=HEALTHY * n, back=A_AGENT * n) for a in degraded),
        methods=("meshheal",),
        seeds=3,
        twin=False,
        family=Family(measures=()),
    )


SUITE = Suite(
    name="scaling",
    experiments={
        **{f"{n}-{p}": scaling(n, "cells", p) for n in SIZES for p in ("stratified", "random")},
        **{f"{n}-complete": scaling(n, "complete", "stratified") for n in COMPLETE},
    },
    columns=(
        "detected", "detected_among", "false_exclusions", "accuracy_degraded", "requests_per_task",
        "evidence_per_task", "two_hops_per_task",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(SUITE)
