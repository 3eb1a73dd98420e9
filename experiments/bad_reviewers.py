"""Claim: agents that judge badly but answer well cost little, and where all judges like everything the network says so.

`reviews-only`: two of six agents keep their model for answers and review on Llama-3.2-1B. `agreeable-R`: every judge accepts
a wrong answer with chance R, while two agents are swapped as in staggered_math. An agent that still answers well is not
degraded, so that `reviews-only` has no degraded phase: its accuracy is that of the whole run.
"""

from meshheal.experiment import Experiment
from meshheal.suite import Suite, main
from sim.faults import Fault, staggered, swap
from sim.workloads import gym
from topologies import complete

WEAK = "synthetic/llama-3.2-1b"
STAGGERED = staggered(WEAK)


def judged(label: str, faults: tuple[Fault, ...], agreeable: float | None = None) -> Experiment:
    return Experiment(
        name=f"bad_reviewers_{label}",
        topology=complete(6),
        workload=gym("math", tasks=630),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        faults=faults,
        methods=("meshheal", "unprotected"),
        seeds=10,
        agreeable=agreeable,
    )


REVIEWS = ("review", "deliberate")

SUITE = Suite(
    name="bad_reviewers",
    experiments={
        "reviews-only": judged(
            "reviews",
            tuple(swap(a, WEAK, at=105, back=420, roles=REVIEWS, degraded=False) for a in (0, 3)),
        ),
        "as-profiled": judged("profiled", STAGGERED),
        **{f"agreeable-{r:.2f}": judged(f"{r:.2f}", STAGGERED, r) for r in (0.5, 0.75, 0.9)},
    },
    columns=(
        "accuracy_degraded", "accuracy_healthy", "detected", "detection_tasks", "sidelined", "uninformative_alarms",
    ),
)  # fmt: skip

if __name__ == "__main__":
    main(SUITE)
