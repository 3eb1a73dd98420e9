"""Claim: folding a run's metrics costs at most 5 % of the run's time.

    python benchmarks/metrics.py [--rounds 7] [--tasks 1500] [--agents 100] [--check] [--json]

The same run (whole protocol, event log on, simulated models) with the metrics fold and without it, interleaved in one
process, since rates of a machine drift and ratios do not; the median ratio of the rounds is printed. Beside it, what one
event costs the fold alone, from the events of one run replayed to it, and what one scrape costs. With --check it exits
with 1 where the share is above the target.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from meshheal.experiment import Arm, Experiment, Prepared, prepare, run_arm
from meshheal.folds.layout import Layout
from meshheal.folds.metrics import Metrics
from meshheal.folds.summary import Summary
from meshheal.trace.reader import LogFile
from sim.faults import swap
from sim.workloads import gym
from topologies import parse

SHARE = 0.05
"""Greatest share of a run's time."""


def experiment(agents: int, tasks: int) -> Experiment:
    """A sparse graph in which a tenth of the agents falls and recovers."""
    bad = range(0, agents, 10)
    return Experiment(
        name="metrics_cost",
        topology=parse(f"coverage:{agents},at_least=4"),
        workload=gym("math", tasks=tasks),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        faults=tuple(swap(a, "synthetic/llama-3.2-1b", tasks // 4, 3 * tasks // 4) for a in bad),
        methods=("meshheal",),
        seeds=1,
    )


def layout(prepared: Prepared) -> Layout:
    graph = prepared.topology
    return Layout(
        labels=("bench", "meshheal", "false", "0"),
        info=("bench", "virtual", "simulated", graph.name, "gym:math"),
        clock="virtual",
        neighbours=graph.neighbours,
        abilities=[graph.held(a) for a in range(len(graph))],
        natures={},
        top_agents=50,
        window=50,
    )


def measure(prepared: Prepared, folder: Path, name: str, folding: str) -> float:
    """Processor seconds of one run."""
    shape = layout(prepared)
    gc.collect()
    start = time.process_time()
    watch = (lambda _, summary: Metrics(shape, summary)) if folding == "with" else None
    run_arm(prepared, Arm("meshheal", 0), folder / f"{name}.jsonl.zst", watch=watch)
    return time.process_time() - start


def alone(prepared: Prepared, log: Path) -> dict[str, float]:
    """Microseconds that one event costs the fold, and milliseconds of one scrape at the end."""
    with LogFile(log) as file:
        events = list(file.events())
    shape = layout(prepared)
    costs, scrapes = [], []
    for _ in range(5):
        summary = Summary([[] for _ in shape.abilities], shape.abilities, 0)
        fold = Metrics(shape, summary)
        start = time.process_time()
        for event in events:
            fold(event)
        costs.append((time.process_time() - start) / len(events))
        start = time.process_time()
        fold.families()
        scrapes.append(time.process_time() - start)
    return {"events": len(events), "event_us": 1e6 * median(costs), "scrape_ms": 1e3 * median(scrapes)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=1500)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    prepared = prepare(experiment(given.agents, given.tasks))
    times: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        measure(prepared, Path(folder), "warm", "with")
        for n in range(given.rounds):
            for folding in ("with", "without") if n % 2 else ("without", "with"):
                times[folding].append(measure(prepared, Path(folder), f"{folding}{n}", folding))
        found: dict[str, Any] = alone(prepared, Path(folder) / "with0.jsonl.zst")
    ratios = [a / b - 1 for a, b in zip(times["with"], times["without"], strict=True)]
    found |= {"run_s": median(times["without"]), "share": median(ratios), "target": SHARE}
    found["share_alone"] = found["event_us"] * found["events"] / 1e6 / found["run_s"]
    if given.json:
        print(json.dumps(found))
    else:
        print(
            f"a run of {found['events']:,} events takes {found['run_s']:.2f} s; with the metrics fold {found['share']:+.1%} more"
        )
        print(f"the fold alone: {found['event_us']:.2f} µs an event, {found['share_alone']:.1%} of the run; "
              f"one scrape {found['scrape_ms']:.1f} ms")  # fmt: skip
    return int(given.check and found["share"] > SHARE)


if __name__ == "__main__":
    sys.exit(main())
