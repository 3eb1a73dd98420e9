"""How soon faults are found, at what cost, and how often in error: every figure the README states about detection.

    python benchmarks/detection.py staggered [--seeds 50]      the targets of the staggered run; simulated models
    python benchmarks/detection.py oracle [--seeds 30]         against an oracle CUSUM at equal measured ARL0
    python benchmarks/detection.py frontier [--seeds 16]       delay against probe calls
    python benchmarks/detection.py arl0 [--seeds 16]           false exclusions in long fault-free runs
    python benchmarks/detection.py placebo [--seeds 30]        a swap to an identical model
    python benchmarks/detection.py recorded --data DIR [--seeds 20]

Exit status 1 where a target is missed and --check is given.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from meshheal.beliefs import Beliefs, Finding
from meshheal.cli.run import load
from meshheal.events import EvidenceShared, TaskArrived
from meshheal.experiment import Arm, Experiment, Prepared, prepare, run_arm, world
from meshheal.floor import Floor, Ratio, Scored, scored
from meshheal.folds.summary import SeedResult
from meshheal.opinion import Opinion
from meshheal.results import merge_twins, summarise
from meshheal.stats import Interval, arl0, mean_interval
from meshheal.sweep import Report, Sweep
from meshheal.trace.recorder import MemoryLog
from meshheal.types import ReviewRecord
from sim.faults import swap
from sim.local import LocalRun

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
FIRST_SEED = 100
"""Seeds from here on were not used while the settings were chosen."""


# --- many runs -------------------------------------------------------------------------------------------------------


class Job(Struct, frozen=True):
    experiment: Experiment
    arm: Arm


_prepared: dict[str, Prepared] = {}


def work(job: Job, report: Report) -> tuple[Arm, SeedResult]:
    """One run in a worker, without a log file."""
    del report
    key = repr(job.experiment)
    if key not in _prepared:
        _prepared.clear()
        _prepared[key] = prepare(job.experiment)
    return job.arm, run_arm(_prepared[key], job.arm, None)


def sweep(experiment: Experiment, parallel: int) -> dict[str, list[SeedResult]]:
    """Results by method, twins merged into them as results.json does."""
    runs: dict[str, list[SeedResult]] = {m: [] for m in experiment.methods}
    twins: dict[str, list[SeedResult]] = {}
    for message in Sweep(work, [Job(experiment, arm) for arm in experiment.arms()], parallel).messages():
        if message is not None and message.kind == "done":
            arm, result = message.value
            if arm.twin:
                twins.setdefault(arm.method, []).append(result)
            else:
                runs[arm.method].append(result)
    for method, results in runs.items():
        results.sort(key=lambda r: r.seed)
        merge_twins(results, twins.get(method, ()))
    return runs


def declared(name: str, seeds: int, data: str | None = None, **changes: Any) -> Experiment:
    found = load(str(EXPERIMENTS / f"{name}.py"))
    assert isinstance(found, Experiment)
    e = replace(found, seeds=seeds, first_seed=FIRST_SEED, **changes)
    return e if data is None else replace(e, workload=replace(e.workload, data=data))


# --- targets ---------------------------------------------------------------------------------------------------------


class Target(Struct, frozen=True):
    """One figure, what it is to be, and whether it is."""

    what: str
    value: float
    wanted: str
    met: bool

    def line(self) -> str:
        return f"  {'ok  ' if self.met else 'MISS'} {self.what}: {self.value:.3f} (wanted {self.wanted})"


def at_most(what: str, value: float, limit: float) -> Target:
    return Target(what, value, f"<= {limit:g}", value <= limit)


def at_least(what: str, value: float, limit: float) -> Target:
    return Target(what, value, f">= {limit:g}", value >= limit)


def show(targets: Iterable[Target]) -> bool:
    rows = list(targets)
    for row in rows:
        print(row.line())
    return all(row.met for row in rows)


def line(name: str, results: Sequence[SeedResult]) -> str:
    """The figures of one method on one line, each with its 95 % interval."""
    s = summarise(results)

    def part(metric: str, digits: int = 1) -> str:
        v = s.get(metric)
        if v is None or v["mean"] is None:
            return "-"
        low, high = (("?" if x is None else f"{x:.{digits}f}") for x in v["ci95"])
        return f"{v['mean']:.{digits}f} [{low}, {high}]"

    parts = [f"detection {part('detection_tasks')} tasks, {part('detection_outputs')} outputs",
             f"back {part('reintegration_tasks')} tasks", f"probe calls {part('probe_calls_per_task', 2)}",
             f"degraded phase {part('accuracy_degraded', 3)}, minus twin {part('degraded_minus_twin', 3)}",
             f"false exclusions {sum(r.false_exclusions for r in results)}"]  # fmt: skip
    return f"{name}: " + "; ".join(parts)


def staggered(seeds: int, parallel: int, data: str | None) -> bool:
    del data
    e = declared("staggered_math", seeds, methods=("meshheal", "meshheal-seed", "unprotected"))
    runs = sweep(e, parallel)
    print(f"staggered, simulated models, {seeds} seeds:")
    for method, results in runs.items():
        print(f"  {line(method, results)}")
    ours = runs["meshheal"]
    s = summarise(ours)
    n = len([d for r in ours for d in r.detection])
    targets = [
        *[at_most(f"mean detection of agent {a}, tasks", s[f"detection_tasks.agent_{a}"]["mean"], 13) for a in (0, 3)],
        *[
            at_most(f"mean reintegration of agent {a}, tasks", s[f"reintegration_tasks.agent_{a}"]["mean"], 20)
            for a in (0, 3)
        ],
        at_least("episodes detected", sum(d.delay_tasks is not None for r in ours for d in r.detection), n),
        at_least("episodes reinstated", sum(b.delay_tasks is not None for r in ours for b in r.reintegration), n),
        at_most("probe calls a task", s["probe_calls_per_task"]["mean"], 0.9),
        at_most("false exclusions in all runs", sum(r.false_exclusions for r in ours), 1),
        at_most("ordinary tasks while excluded", sum(r.ordinary_tasks_while_excluded for r in ours), 0),
        at_least("degraded phase minus twin", s["degraded_minus_twin"]["mean"], -0.01),
    ]
    return show(targets)


def recorded(seeds: int, parallel: int, data: str | None) -> bool:
    good = True
    for agreeable in (None, 0.75):
        e = declared(
            "recorded_mmlu_pro", seeds, data, agreeable=agreeable, methods=("meshheal", "meshheal-seed", "unprotected")
        )
        runs = sweep(e, parallel)
        print(
            f"recorded MMLU-Pro, {seeds} seeds"
            + ("" if agreeable is None else f", judges accept {agreeable} of what they dispute")
            + ":"
        )
        for method, results in runs.items():
            print(f"  {line(method, results)}")
        ours = runs["meshheal"]
        s = summarise(ours)
        if agreeable is not None:
            continue
        n = len([d for r in ours for d in r.detection])
        good = show(
            [
                at_least("degraded phase minus twin", s["degraded_minus_twin"]["mean"], -0.02),
                at_least(
                    "episodes detected", sum(d.delay_tasks is not None for r in ours for d in r.detection), 0.95 * n
                ),
                at_most("restricted mean detection, tasks", s["detection_tasks"]["mean"], 40),
                at_most("mean reintegration, tasks", s["reintegration_tasks"]["mean"], 40),
                at_most("false exclusions a run", s["false_exclusions"]["mean"], 0.1),
                at_most("probe calls a task", s["probe_calls_per_task"]["mean"], 0.9),
            ]
        )
    return good


def frontier(seeds: int, parallel: int, data: str | None) -> bool:
    del data
    print(f"delay against probe calls, staggered, simulated models, {seeds} seeds:")
    base = declared("staggered_math", seeds, methods=("meshheal",), twin=False)
    for budget in (0.2, 0.4, 0.6, 0.8, 1.2):
        for burst in (0, 4):
            e = replace(base, settings={"recovery": {"budget": budget, "burst": burst}})
            print(f"  {line(f'budget {budget}, burst {burst}', sweep(e, parallel)['meshheal'])}", flush=True)
    return True


def measured_arl0(seeds: int, parallel: int, data: str | None) -> bool:
    e = declared("staggered_math", seeds, methods=("meshheal",), faults=(), twin=False)
    e = replace(e, workload=replace(e.workload, tasks=5000))
    if data is not None:
        r = declared("recorded_mmlu_pro", seeds, data, methods=("meshheal",), faults=(), twin=False)
        _arl0("recorded MMLU-Pro", sweep(r, parallel)["meshheal"])
    _arl0("staggered tasks, simulated models", sweep(e, parallel)["meshheal"])
    return True


def _arl0(what: str, results: Sequence[SeedResult]) -> None:
    false, seen = sum(r.false_exclusions for r in results), sum(r.observations_healthy for r in results)
    i = arl0(false, seen)
    print(f"ARL0, {what}: {false} false exclusions in {seen} reviewed outputs and probes of healthy agents: "
          f"{i.mean:.0f} [{i.low:.0f}, {i.high:.0f}] (exact Poisson interval)")  # fmt: skip


def placebo(seeds: int, parallel: int, data: str | None) -> bool:
    del data
    same = tuple(
        swap(agent=a, to="synthetic/gpt-oss-120b", at=at, back=at + 210, degraded=False)
        for a, at in ((0, 105), (3, 210))
    )
    counts = {}
    for name, faults in (("placebo", same), ("no swap", ())):
        e = declared("staggered_math", seeds, methods=("meshheal",), faults=faults, twin=False)
        counts[name] = sum(r.false_exclusions for r in sweep(e, parallel)["meshheal"])
        print(f"{name}: {counts[name]} exclusions in {seeds} runs (simulated models)")
    return show(
        [at_most("exclusions after a placebo swap, more than without", counts["placebo"] - counts["no swap"], 0)]
    )


# --- the oracle ------------------------------------------------------------------------------------------------------

DEGRADED = {0: range(105, 315), 3: range(210, 420)}
"""Arrivals during which the staggered experiment's two agents are degraded."""
CLEARED = 1.5
"""Evidence at or below which an alarm is over, and the next one counts."""
LEARNT_FROM = 12
"""Seeds that the oracle learns the distributions from; none of those it is measured on."""
THRESHOLDS = [math.exp(0.1 * k) for k in range(10, 150)]


class Traced(Beliefs):
    """Judges as always, and writes down each record with the evidence after it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trace: list[tuple[ReviewRecord, float]] = []

    def observe(self, record: ReviewRecord) -> list[Finding]:
        found = super().observe(record)
        self.trace.append((record, self.evidence(record.producer)))
        return found


def oracle_of(ratio: Ratio) -> type[Traced]:
    """Beliefs whose evidence is a CUSUM that knows how scores of either state are distributed."""

    class Oracle(Traced):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._tests = {a: Floor(ratio) for a in self.opinions}

        def _test(self, opinion: Opinion, record: ReviewRecord, expected: float, found: list[Finding]) -> None:
            del expected, found
            opinion.evidence = self._tests[record.producer].update(scored(record))

    return Oracle


class Step(Struct, frozen=True):
    """One record as one observer took it: arrival, its score, the evidence after it."""

    index: int
    scored: Scored
    evidence: float


class Traces(Struct, frozen=True):
    """What one observer of each agent saw in one run."""

    seed: int
    faulty: bool
    steps: dict[int, list[Step]]


class TraceJob(Struct, frozen=True):
    experiment: Experiment
    seed: int
    method: str = "meshheal"
    knows: Ratio | None = None
    """What the oracle knows; without it the judge is the method's own."""


def trace(job: TraceJob, report: Report) -> Traces:
    """Run a world and follow the evidence against each agent at the first of its neighbours (all see the same records)."""
    del report
    prepared = prepare(job.experiment)
    made = world(prepared, Arm(job.method, job.seed))
    made.beliefs = Traced if job.knows is None else oracle_of(job.knows)
    log = MemoryLog()
    run = LocalRun(made, log)
    run.run()
    arrived, index_of = -1, dict[str, int]()
    for event in log.events:
        if isinstance(event, TaskArrived):
            arrived = event.index
        elif isinstance(event, EvidenceShared):
            index_of[event.record.id] = arrived
    steps: dict[int, list[Step]] = {}
    for agent in range(made.size):
        beliefs = run.agents[made.neighbours[agent][0]].beliefs
        assert isinstance(beliefs, Traced)
        steps[agent] = [
            Step(index_of[r.id], scored(r), evidence) for r, evidence in beliefs.trace if r.producer == agent
        ]
    return Traces(job.seed, bool(job.experiment.faults), steps)


def reread(one: Traces, knows: Ratio) -> Traces:
    """The same records as the oracle would have judged them."""
    steps: dict[int, list[Step]] = {}
    for agent, own in one.steps.items():
        update = Floor(knows).update
        steps[agent] = [Step(s.index, s.scored, update(s.scored)) for s in own]
    return Traces(one.seed, one.faulty, steps)


def _run_traces(jobs: Sequence[TraceJob], parallel: int) -> list[Traces]:
    messages = Sweep(trace, jobs, parallel).messages()
    return [m.value for m in messages if m is not None and m.kind == "done"]


def _false_alarms(steps: Sequence[Step], threshold: float) -> int:
    """Times the evidence reached the threshold; counted again only after it was gone."""
    alarms, armed = 0, True
    for step in steps:
        if armed and step.evidence >= threshold:
            alarms, armed = alarms + 1, False
        elif step.evidence <= CLEARED:
            armed = True
    return alarms


def _delays(traces: Iterable[Traces], threshold: float) -> list[float]:
    """Outputs of a degraded agent until its evidence reached the threshold; all of them where it never did."""
    delays = []
    for one in traces:
        for agent, window in DEGRADED.items():
            inside = [s for s in one.steps[agent] if s.index in window]
            reached = next((n for n, s in enumerate(inside, 1) if s.evidence >= threshold), len(inside))
            delays.append(float(reached))
    return delays


def known(runs: Iterable[Traces]) -> Ratio:
    """What the oracle knows: scores of all agents of fault-free runs, and those of the degraded ones."""
    healthy, degraded = list[Scored](), list[Scored]()
    for one in runs:
        for agent, steps in one.steps.items():
            if not one.faulty:
                healthy += [s.scored for s in steps]
            else:
                degraded += [s.scored for s in steps if s.index in DEGRADED.get(agent, ())]
    return Ratio(healthy, degraded)


def at_arl0(traces: Sequence[Traces]) -> tuple[Interval, Interval]:
    """(ARL0, delay in outputs) at the lowest threshold that lets at most one false alarm by in 5,000 healthy outputs."""
    quiet = [steps for one in traces if not one.faulty for steps in one.steps.values()]
    seen = sum(map(len, quiet))
    for threshold in THRESHOLDS:
        false = sum(_false_alarms(steps, threshold) for steps in quiet)
        if false * 5000 <= seen:
            break
    return arl0(false, seen), mean_interval(_delays([t for t in traces if t.faulty], threshold))


def oracle(seeds: int, parallel: int, data: str | None) -> bool:
    """Each detector with probes of its own, none allowed to convict, so that one set of runs gives the whole curve.

    The oracle learns what it knows from runs on other seeds.
    """
    del data
    methods = ("meshheal", "meshheal-seed")
    base = declared("staggered_math", seeds, methods=methods, settings={"detector": {"exclude_at": 1e9}})
    fair = replace(base, faults=(), workload=replace(base.workload, tasks=1500))
    knows = known(_run_traces([TraceJob(e, seed) for seed in range(LEARNT_FROM) for e in (base, fair)], parallel))

    def play(method: str, knows: Ratio | None = None) -> list[Traces]:
        jobs = [TraceJob(e, FIRST_SEED + n, method, knows) for n in range(seeds) for e in (base, fair)]
        return _run_traces(jobs, parallel)

    print(f"delay in reviewed outputs at measured ARL0 of 5,000 (simulated models, {seeds} seeds):")
    means: dict[str, float] = {}

    def tell(judge: str, traces: Sequence[Traces]) -> None:
        reached, delay = at_arl0(traces)
        means[judge] = delay.mean
        print(f"  {judge}: ARL0 {reached.mean:.0f} [{reached.low:.0f}, {reached.high:.0f}], "
              f"delay {delay.mean:.1f} [{delay.low:.1f}, {delay.high:.1f}] outputs", flush=True)  # fmt: skip

    ours = play("meshheal")
    tell("ours", ours)
    tell("oracle", play("meshheal", knows))
    tell("oracle, on our records", [reread(one, knows) for one in ours])
    tell("meshheal-seed", play("meshheal-seed"))
    return show([at_most("ours in outputs, times the oracle's", means["ours"] / means["oracle"], 1.3)])


STUDIES: dict[str, tuple[Callable[[int, int, str | None], bool], int]] = {
    "staggered": (staggered, 50), "oracle": (oracle, 30), "frontier": (frontier, 16), "arl0": (measured_arl0, 16),
    "placebo": (placebo, 30), "recorded": (recorded, 20),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--data", help="folder with the published model_outputs_* files")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    study, seeds = STUDIES[given.study]
    if given.study == "recorded" and given.data is None:
        parser.error("recorded needs --data DIR")
    met = study(given.seeds or seeds, given.parallel, given.data)
    return 1 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
