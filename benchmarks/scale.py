"""Claim: what a task costs does not grow with the network, an agent takes little memory, and logs stay small.

    python benchmarks/scale.py [--agents 10000] [--per-agent 5] [--rounds 1] [--full] [--check] [--json]

- Cost a task on a sparse graph of many agents against one of 100, the first tenth left out. Both get the same number
  of tasks an agent; with --per-agent 0 the same number in all (--tasks), which is quick, but then most agents of the
  large world have learnt nothing yet, and both its cost and its memory look better than they are.
- Memory an agent: growth of the resident set by building the large world and taking it through its tasks, models'
  caches and log included.
- Bytes of the event logs: the default run (staggered_math with its seeds and twins), and 60,000 tasks on 576 agents, of
  which a tenth is run and scaled up (all of it with --full).

With --check it exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from meshheal.experiment import Arm, Experiment, prepare, run_arm, world
from meshheal.trace.recorder import Recorder
from sim.local import LocalRun
from sim.workloads import gym
from topologies import parse

SMALL = 100
COST_GROWTH, AGENT_BYTES, DEFAULT_BYTES, LARGE_BYTES = 1.3, 50_000, 30e6, 1e9
"""Targets: ratio of costs a task, bytes an agent, bytes of the default run's logs and of the large run's."""
LARGE_AGENTS, LARGE_TASKS = 576, 60_000
STRETCHES = 10


def experiment(agents: int, tasks: int) -> Experiment:
    return Experiment(
        name="scale",
        topology=parse(f"coverage:{agents},at_least=4"),
        workload=gym("math", tasks=tasks),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        methods=("meshheal",),
        seeds=1,
    )


class Stopwatch:
    """Cuts a run into stretches of tasks and keeps the processor seconds of each."""

    def __init__(self, tasks: int) -> None:
        self._every = tasks // STRETCHES
        self._since = 0.0
        self.seconds: list[float] = []

    def start(self) -> None:
        self._since = time.process_time()

    def __call__(self, index: int) -> None:
        if (index + 1) % self._every == 0:
            now = time.process_time()
            self.seconds.append(now - self._since)
            self._since = now


def timed(agents: int, tasks: int, seed: int, folder: Path) -> tuple[float, float]:
    """(processor seconds a task, the first stretch left out; bytes an agent that building and running took)."""
    prepared = prepare(experiment(agents, tasks))
    made = world(prepared, Arm("meshheal", seed))
    gc.collect()
    before = resident()
    watch = Stopwatch(tasks)
    with Recorder(folder / f"{agents}-{seed}.jsonl.zst", {}) as log:
        run = LocalRun(made, log, watch)
        watch.start()
        run.run()
        gc.collect()
        taken = resident() - before
    return median(watch.seconds[1:]) * STRETCHES / tasks, taken / agents


def resident() -> int:
    """Bytes of this process that are in memory now."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # its peak, where the present cannot be read


def default_run_bytes(folder: Path) -> int:
    """Bytes of all event logs of `experiments/staggered_math.py` as it stands."""
    path = Path(__file__).parent.parent / "experiments" / "staggered_math.py"
    spec = importlib.util.spec_from_file_location("staggered_math", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    prepared, total = prepare(module.EXPERIMENT), 0
    for arm in module.EXPERIMENT.arms():
        log = folder / f"default-{arm.label}-{arm.seed}.jsonl.zst"
        run_arm(prepared, arm, log)
        total += log.stat().st_size
    return total


def large_run_bytes(folder: Path, tasks: int) -> float:
    """Bytes of the log of 60,000 tasks on 576 agents, scaled up from `tasks` of them."""
    prepared = prepare(experiment(LARGE_AGENTS, tasks))
    log = folder / "large.jsonl.zst"
    run_arm(prepared, Arm("meshheal", 0), log)
    return log.stat().st_size * LARGE_TASKS / tasks


def measured(agents: int, tasks: int, per_agent: int, rounds: int, full: bool) -> dict[str, Any]:
    ratios: list[float] = []
    memories: list[float] = []
    costs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timed(SMALL, tasks, 99, folder)
        for seed in range(rounds):
            large, memory = timed(agents, per_agent * agents or tasks, seed, folder)
            small, _ = timed(SMALL, per_agent * SMALL or tasks, seed, folder)
            ratios.append(large / small)
            costs.append((small, large))
            memories.append(memory)
        default = default_run_bytes(folder)
        whole = large_run_bytes(folder, LARGE_TASKS if full else LARGE_TASKS // 10)
    found: dict[str, Any] = {
        "agents": agents,
        "tasks": tasks,
        "tasks_per_agent": per_agent,
        "microseconds_per_task": [[s * 1e6, b * 1e6] for s, b in costs],
        "cost_growth": median(ratios),
        "bytes_per_agent": max(memories),
        "default_run_bytes": default,
        "large_run_bytes": whole,
        "large_run_is": "measured" if full else "extrapolated",
    }
    limits: dict[str, float] = {
        "cost_growth": COST_GROWTH,
        "bytes_per_agent": AGENT_BYTES,
        "default_run_bytes": DEFAULT_BYTES,
        "large_run_bytes": LARGE_BYTES,
    }
    found["reached"] = {key: found[key] <= limit for key, limit in limits.items()}
    return found


def show(found: dict[str, Any]) -> None:
    def line(what: str, value: str, target: str) -> None:
        print(f"{what:48} {value:>10}   (target: {target})")

    small, large = (median([pair[i] for pair in found["microseconds_per_task"]]) for i in (0, 1))
    print(f"a task: {small:,.0f} us at {SMALL} agents, {large:,.0f} us at {found['agents']:,}")
    growth = f"{found['cost_growth']:.2f}"
    line(f"cost at {found['agents']:,} agents to that at {SMALL}", growth, f"at most {COST_GROWTH}")
    line("memory an agent", f"{found['bytes_per_agent'] / 1000:.1f} kB", f"at most {AGENT_BYTES / 1000:.0f} kB")
    line("logs of the default run", f"{found['default_run_bytes'] / 1e6:.1f} MB", f"below {DEFAULT_BYTES / 1e6:.0f} MB")
    name = f"log of {LARGE_TASKS:,} tasks, {LARGE_AGENTS} agents, {found['large_run_is']}"
    line(name, f"{found['large_run_bytes'] / 1e6:.0f} MB", f"below {LARGE_BYTES / 1e6:.0f} MB")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=1500)
    parser.add_argument("--per-agent", type=int, default=5, help="tasks an agent; 0: --tasks in all")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="run all of the 60,000 tasks")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = measured(given.agents, given.tasks, given.per_agent, given.rounds, given.full)
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    return 1 if given.check and not all(found["reached"].values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
