"""Claim: on real models' recorded answers to MMLU-Pro the degraded phase costs at most 0.02 of the twin's accuracy.

Healthy agents run on three strong models of unequal strength; two are swapped to Llama-2-7b in staggered windows. Abilities
are groups of MMLU-Pro's categories, categories are task kinds. Reviews are simulated: a judge compares the answer with its
own recorded one. Needs --data DIR with the published model_outputs_* files.
"""

from meshheal.experiment import Experiment, main
from sim.faults import staggered
from sim.workloads import mmlu_pro
from topologies import complete

EXPERIMENT = Experiment(
    name="recorded_mmlu_pro",
    topology=complete(6),
    workload=mmlu_pro(tasks=630),
    # The two swapped agents hold the same abilities and the same model, so that agents of two other models remain in each
    # of their abilities to settle references with while one of them is away.
    healthy=(
        "recorded/gemini-1.5-flash-002",
        "recorded/Meta-Llama-3_1-70B-Instruct",
        "recorded/gemini-1.5-pro-002",
        "recorded/gemini-1.5-flash-002",
        "recorded/gemini-1.5-pro-002",
        "recorded/Meta-Llama-3_1-70B-Instruct",
    ),
    outside="recorded/Meta-Llama-3_1-8B-Instruct",
    faults=staggered("recorded/Llama-2-7b-hf"),
    methods=("meshheal", "meshheal-seed", "unprotected"),
    seeds=5,
)

if __name__ == "__main__":
    main(EXPERIMENT)
