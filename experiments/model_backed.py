"""Claim: a routing error costs accuracy only where an agent's abilities are models, not prompts (Model-Backed Evaluation).

Twelve agents who each hold one ability; a share of the tasks arrives labelled with an ability that it does not need.
Model-backed: work outside an agent's ability runs on Llama-3.1-8B. Prompt-only: one strong model under every role.
"""

from meshheal.experiment import Experiment
from meshheal.results import Family
from meshheal.suite import Suite, main
from sim.workloads import gym
from topologies import assign, complete

STRONG, WEAKER = "synthetic/gpt-oss-120b", "synthetic/llama-3.1-8b"

SUITE = Suite(
    name="model_backed",
    experiments={
        f"{kind}-{rate:.1f}": Experiment(
            name=f"{kind}_{rate:.1f}",
            topology=assign(complete(12), ("algebra", "arithmetic", "geometry"), per_agent=1),
            workload=gym("math", tasks=630),
            healthy=STRONG,
            outside=outside,
            methods=("meshheal", "unprotected"),
            seeds=10,
            misrouting=rate,
            family=Family(measures=("accuracy_healthy",)),
        )
        for kind, outside in (("model-backed", WEAKER), ("prompt-only", STRONG))
        for rate in (0.0, 0.1, 0.2, 0.3)
    },
    columns=("accuracy_healthy", "tokens_per_task", "false_exclusions", "false_exclusions_per_100k"),
)

if __name__ == "__main__":
    main(SUITE)
