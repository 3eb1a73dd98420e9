"""Runs with everything in them that metrics show: a plain study, a network in trouble, agreeable judges, a slow backend."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tiny import recorded, write_outputs

from dashboards.server import installed
from meshheal.experiment import Experiment
from meshheal.study import Study
from meshheal.trace.rundir import RunDir
from sim.faults import Crash, swap
from sim.links import LinkProfile
from sim.workloads import gym
from topologies import complete, parse

STRONG, WEAK, OUTSIDE = "synthetic/gpt-oss-120b", "synthetic/llama-3.2-1b", "synthetic/llama-3.1-8b"
STARTED = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def needs_prometheus() -> None:
    """Skips where there is no Prometheus; in CI that is a failure."""
    if installed():
        return
    if os.environ.get("CI") == "true":
        pytest.fail("prometheus and promtool are not installed: apt-get install --no-install-recommends prometheus")
    pytest.skip("prometheus and promtool are not installed (Debian: apt-get install prometheus)")


def plain(tasks: int = 160) -> Experiment:
    """Six agents; two fall in turn and come back."""
    return Experiment(
        name="plain",
        topology=complete(6),
        workload=gym("math", tasks=tasks),
        healthy=STRONG,
        outside=OUTSIDE,
        faults=(
            swap(0, WEAK, tasks // 6, tasks // 2),
            swap(3, WEAK, tasks // 3, 2 * tasks // 3),
        ),
        methods=("meshheal", "unprotected"),
        seeds=1,
        twin=False,
    )


def troubled(tasks: int = 150) -> Experiment:
    """A sparse graph with bad links, in which most holders of one ability fall one after another and another crashes."""
    return Experiment(
        name="troubled",
        topology=parse("coverage:7,at_least=4"),
        workload=gym("math", tasks=tasks),
        healthy=STRONG,
        outside=WEAK,
        faults=(
            *(swap(a, WEAK, 20 + 25 * i, tasks - 5) for i, a in enumerate((0, 1, 2, 4))),
            Crash(agent=5, at=tasks - 40, back=tasks - 10),
        ),
        methods=("meshheal",),
        seeds=1,
        twin=False,
        links=LinkProfile(latency=0.1, loss=0.03, duplicate=0.02),
        settings={
            "limits": {"call_timeout": 30.0},
            "routing": {"max_hops": 3},
            "detector": {"min_eligible": 1, "max_excluded_fraction": 1.0, "shadow": ["ewma"]},
        },
    )


def agreeable(folder: Path) -> Experiment:
    """Recorded models whose judges accept whatever they see."""
    return recorded(
        write_outputs(folder, 300),
        240,
        name="agreeable",
        agreeable=1.0,
        seeds=1,
        twin=False,
        methods=("meshheal",),
        settings={"recovery": {"calibrate_reviewers": 1.0, "budget": 2.0}},
    )


def slow(tasks: int = 60) -> Experiment:
    """A backend that does not answer in time, half of the time."""
    return Experiment(
        name="slow",
        topology=complete(6),
        workload=gym("math", tasks=tasks),
        healthy=STRONG,
        outside=OUTSIDE,
        methods=("meshheal",),
        seeds=1,
        settings={"limits": {"call_timeout": 8.0}},
    )


def run(experiment: Experiment, out: Path) -> RunDir:
    """Run it to its end in this process."""
    study = Study.start(experiment, out, STARTED)
    study.run(0, lambda _arm, _value: None)
    return study.directory
