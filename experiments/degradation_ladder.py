"""Claim: the milder the degradation, the later it is caught and the less it costs; what is never caught costs little.

One agent of six is swapped from GPT-OSS-120B to ever smaller models: the dose, from itself (a placebo) to Llama-3.2-1B.
"""

from meshheal.experiment import Experiment
from meshheal.suite import Suite, main
from sim.faults import swap
from sim.workloads import gym
from topologies import complete

DOSES = {"20b": "gpt-oss-20b", "8b": "llama-3.1-8b", "3b": "llama-3.2-3b", "1b": "llama-3.2-1b"}

SUITE = Suite(
    name="degradation_ladder",
    experiments={
        label: Experiment(
            name=f"ladder_{label}",
            topology=complete(6),
            workload=gym("math", tasks=630),
            healthy="synthetic/gpt-oss-120b",
            outside="synthetic/llama-3.1-8b",
            faults=(swap(agent=0, to=f"synthetic/{model}", at=105, back=525),),
            methods=("meshheal", "unprotected"),
            seeds=10,
        )
        for label, model in DOSES.items()
    },
    columns=("detected", "detection_tasks", "accuracy_degraded", "degraded_minus_twin", "tokens_per_task"),
)

if __name__ == "__main__":
    main(SUITE)
