"""Claim: on real models' recorded answers MeshHeal keeps its place among the methods whose every call is recorded.

MMLU-Pro as in recorded_mmlu_pro, with every method that asks for plain answers and reviews only: nobody has recorded what a
model says in a debate or as a planner. Reviews are simulated: a judge compares the answer with its own recorded one.
Needs --data DIR with the published model_outputs_* files.
"""

from meshheal.experiment import Experiment, main
from meshheal.methods import METHODS
from meshheal.results import Family
from sim.faults import staggered
from sim.workloads import mmlu_pro
from topologies import complete

FLASH, LLAMA, PRO = "gemini-1.5-flash-002", "Meta-Llama-3_1-70B-Instruct", "gemini-1.5-pro-002"
RECORDED = tuple(n for n, m in METHODS.items() if m.recorded)

EXPERIMENT = Experiment(
    name="recorded_main_table",
    topology=complete(6),
    workload=mmlu_pro(tasks=630),
    healthy=tuple(f"recorded/{m}" for m in (FLASH, LLAMA, PRO, FLASH, PRO, LLAMA)),
    outside="recorded/Meta-Llama-3_1-8B-Instruct",
    faults=staggered("recorded/Llama-2-7b-hf"),
    methods=RECORDED,
    seeds=5,
    family=Family(against=tuple(n for n in RECORDED if not METHODS[n].marks and not n.startswith("meshheal"))),
)

if __name__ == "__main__":
    main(EXPERIMENT)
