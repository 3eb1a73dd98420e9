"""Claim: in the degraded phase MeshHeal is on the frontier of accuracy and tokens on every benchmark (MeshHeal, Table 1).

BBH, MATH and MMLU-Pro against every rival, two of six agents swapped to Llama-3.2-1B in staggered windows. With --data DIR
(bbh/, math/test.jsonl, mmlu_pro/) on the benchmarks' own items, else on generated tasks with the models' accuracies there.
Models are simulated either way. Family: MeshHeal against each decentralised rival, by benchmark; oracles are bounds.
"""

from meshheal.experiment import Experiment
from meshheal.methods import METHODS
from meshheal.results import Family
from meshheal.suite import Suite, main
from sim.faults import swap
from sim.workloads import gym
from topologies import complete

BENCHMARKS = {"bbh": "BBH", "math": "MATH", "mmlu_pro": "MMLU-Pro"}
COMPARED = tuple(n for n in METHODS if not n.startswith("meshheal-") or n in ("meshheal-seed", "meshheal-central"))
RIVALS = tuple(n for n in COMPARED if not METHODS[n].marks and not n.startswith("meshheal"))

SUITE = Suite(
    name="main_table",
    experiments={
        label: Experiment(
            name=f"main_table_{label}",
            topology=complete(6),
            workload=gym("math", tasks=630, benchmark=benchmark),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=(
                swap(agent=0, to="synthetic/llama-3.2-1b", at=105, back=315),
                swap(agent=3, to="synthetic/llama-3.2-1b", at=210, back=420),
            ),
            methods=COMPARED,
            seeds=5,
            family=Family(against=RIVALS),
        )
        for label, benchmark in BENCHMARKS.items()
    },
    columns=("accuracy_degraded", "tokens_per_task", "degraded_minus_twin", "detection_tasks", "false_exclusions"),
)

if __name__ == "__main__":
    main(SUITE)
