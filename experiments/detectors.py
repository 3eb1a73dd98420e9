"""Claim: at equal measured ARL0 no detector is much sooner than MeshHeal's, and an oracle is not much sooner either.

Nobody is excluded, so that one stored stream of evidence serves all: every detector reads the same scores against the same
expectations. `quiet` gives the false alarms, `faulty` the delays. The stream has the bursts of probes that MeshHeal's own
suspicion asked for. `meshheal plot RUN --kind arl0` draws it.
"""

from meshheal.experiment import Experiment
from meshheal.operating import compare_detectors
from meshheal.results import Family
from meshheal.suite import Suite, main
from sim.faults import Fault, staggered
from sim.workloads import gym
from topologies import complete

WEAK = "synthetic/llama-3.2-1b"


def watched(label: str, tasks: int, faults: tuple[Fault, ...] = ()) -> Experiment:
    return Experiment(
        name=f"detectors_{label}",
        topology=complete(6),
        workload=gym("math", tasks=tasks),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        faults=faults,
        methods=("meshheal",),
        seeds=10,
        twin=False,
        settings={"detector": {"exclude_at": 1e9}},
        family=Family(measures=()),
    )


SUITE = Suite(
    name="detectors",
    experiments={
        "quiet": watched("quiet", 1500),
        "faulty": watched("faulty", 450, staggered(WEAK)),
    },
    columns=("accuracy_healthy", "tokens_per_task", "probe_calls_per_task"),
    after=compare_detectors,
)

if __name__ == "__main__":
    main(SUITE)
