"""Claim: on real models two agents whose weights were badly quantised are found, excluded and taken back, /health green.

Six agents, each on Ray, answer questions of fact by likelihood on SmolLM2-135M behind vLLM; two are swapped, one after the
other, to a second server of the same name that holds the weights rounded to 4 bits. `make live` runs it on two CPU cores.
--dose NAME puts something else behind the name: placebo and q8 (must not alarm), q5, prefix, template, cut. --predict runs
the same in the virtual world, on models simulated from likelihoods measured beforehand (experiments/live/calibration.json).
"""

from pathlib import Path

from meshheal.experiment import Experiment
from sim.faults import swap
from sim.live.serving import HEALTHY_MODEL, SWAPPED_MODEL, main
from sim.workloads import facts
from topologies import complete

EXPERIMENT = Experiment(
    name="live_quantization",
    topology=complete(6),
    workload=facts(tasks=150, data=str(Path(__file__).parent / "live" / "calibration.json")),
    healthy=HEALTHY_MODEL,
    # Work outside an agent's abilities, which only a routing error gives it, costs accuracy there too.
    outside=SWAPPED_MODEL,
    faults=(
        swap(agent=0, to=SWAPPED_MODEL, at=25, back=85),
        swap(agent=3, to=SWAPPED_MODEL, at=50, back=110),
    ),
    methods=("meshheal", "unprotected"),
    seeds=1,
    twin=False,
    # Reviewers are sure of what they know: half a nat a token is a clear lead. The calls wait long, for cores that are shared.
    settings={"review": {"by": "likelihood", "likelihood_scale": 0.5}, "limits": {"call_timeout": 300.0}},
    runtime="ray",
    agents_per_host=1,
)

if __name__ == "__main__":
    main(EXPERIMENT)
