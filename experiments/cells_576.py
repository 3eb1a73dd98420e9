"""Claim: with a third of 576 agents degraded at once, two in every cell of six, the healthy majority finds them all.

Arrivals 8,000 to 20,000 of 24,000 see 192 agents on a weak model. Cells are joined by few bridges, so that what happens in
one cell is seen there alone.
"""

from meshheal.experiment import Experiment, main
from sim.faults import swap
from sim.workloads import gym
from topologies import saved, stratified

NETWORK = saved(576)
TASKS = 24_000

EXPERIMENT = Experiment(
    name="cells_576",
    topology=NETWORK,
    workload=gym("math", tasks=TASKS),
    healthy="synthetic/gpt-oss-120b",
    outside="synthetic/llama-3.1-8b",
    faults=tuple(swap(agent, "synthetic/llama-3.2-1b", TASKS // 3, TASKS * 5 // 6) for agent in stratified(NETWORK)),
    methods=("meshheal",),
    seeds=1,
    twin=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
