"""A study: an experiment being run into a run directory, by as many processes as wanted, resumable at any point."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from meshheal.config import Settings
from meshheal.errors import UsageError
from meshheal.experiment import Arm, Experiment, Prepared, fold_arm, prepare, run_arm
from meshheal.exposition import Exposition, read
from meshheal.folds.layout import Layout, layout
from meshheal.folds.metrics import Families, Metrics
from meshheal.folds.progress import Progress
from meshheal.folds.summary import SeedResult, Summary
from meshheal.results import results
from meshheal.sweep import Interrupted, Message, Report, Sweep
from meshheal.trace.rundir import RunDir, create, create_at, open_run

_REPORT_EVERY = 0.2
"""Seconds of wall clock between progress reports of one run."""
_METRICS_EVERY = 2.0
"""The same for its metrics, which are larger."""


MetricsWanted = Literal["none", "told", "direct"]
"""Whether an arm's metrics are wanted: told now and then, or, where it runs in this process, the fold itself at once."""


class Job(Struct, frozen=True):
    """One arm to run, and where."""

    experiment: Experiment
    arm: Arm
    log: str
    replay_from: str | None = None
    metrics: MetricsWanted = "none"


class Watched(Struct, frozen=True):
    """The metrics of an arm that runs in this very process: always current."""

    metrics: Metrics


class Told(Struct, frozen=True):
    """The metrics of an arm as its worker has them now."""

    layout: Layout
    families: Families


class Snapshot(Struct, frozen=True):
    """Progress of one arm as a worker tells it."""

    tasks: int
    right: int
    tokens: int
    calls: int
    excluded: tuple[int, ...]


Watch = Callable[[Arm, Snapshot | SeedResult], None]


class Study:
    """Holds a run directory for writing and fills it."""

    def __init__(self, prepared: Prepared, directory: RunDir) -> None:
        self.prepared = prepared
        self.directory = directory
        self._found: dict[Arm, SeedResult] = {}

    @property
    def experiment(self) -> Experiment:
        return self.prepared.experiment

    @classmethod
    def start(cls, experiment: Experiment, out: Path, now: datetime) -> Study:
        """Check the experiment and make its run directory. Raises `UsageError`, `TraceError`."""
        prepared = prepare(experiment)
        return cls(prepared, create(out, experiment.name, now, _declared(prepared)))

    @classmethod
    def start_at(cls, prepared: Prepared, path: Path) -> Study:
        """The same for an experiment that has been checked, into a given directory."""
        return cls(prepared, create_at(path, _declared(prepared)))

    @classmethod
    def resume(cls, run: str, out: Path, experiment: Experiment) -> Study:
        """Go on with a run of the same experiment. Raises `UsageError` where it was another one."""
        return cls.resume_at(prepare(experiment), open_run(run, out))

    @classmethod
    def resume_at(cls, prepared: Prepared, directory: RunDir) -> Study:
        """The same for an experiment that has been checked, in its directory."""
        was, now = directory.experiment, _declared(prepared)
        differing = [
            k for k in now if k != "meshheal" and was.get(k) != msgspec.json.decode(msgspec.json.encode(now[k]))
        ]
        if differing:
            raise UsageError(
                f"--resume {directory.name}: that run differs in {', '.join(differing)}; give the same options, "
                "or start a new run without --resume"
            )
        return cls(prepared, directory)

    def run(self, parallel: Parallel, watch: Watch, exposition: Exposition | None = None) -> dict[str, Any]:
        """Run what is not complete yet, write results.json, return its content. Metrics go to `exposition`."""
        return run_all([self], parallel, [watch], exposition)[0]

    def begin(self, watch: Watch, metrics: MetricsWanted = "none") -> list[Job]:
        """Take in the arms that are complete; return jobs for the others."""
        done = {(a.method, a.seed) for a in self.directory.complete_arms()}
        jobs: list[Job] = []
        for arm in self.experiment.arms():
            log = self.directory.log_path(arm.label, arm.seed)
            if (arm.label, arm.seed) in done:
                self._found[arm] = fold_arm(self.prepared, arm, log)
                watch(arm, self._found[arm])
            else:
                cut = self.directory.set_aside(arm.label, arm.seed)
                jobs.append(Job(self.experiment, arm, str(log), None if cut is None else str(cut), metrics))
        return jobs

    def take(self, arm: Arm, result: SeedResult) -> None:
        """Take in an arm that a job has completed."""
        self._found[arm] = result
        self.directory.drop_set_aside(arm.label, arm.seed)

    def end(self) -> dict[str, Any]:
        """Write results.json, and return its content."""
        runs: dict[str, list[SeedResult]] = {m: [] for m in self.experiment.methods}
        twins: dict[str, list[SeedResult]] = {m: [] for m in self.experiment.methods}
        for arm in self.experiment.arms():
            (twins if arm.twin else runs)[arm.method].append(self._found[arm])
        p, e = self.prepared, self.experiment
        content = results(e.name, runs, twins, p.natures(), e.family, p.network, e.tuned_on)
        self.directory.write_results(content)
        return content


Parallel = int | Literal["ray"]
"""Runs at a time in processes of this machine (0: in this process), or tasks on a Ray cluster."""


def _messages(
    jobs: list[Job], parallel: Parallel, at_once: Callable[[Message], object]
) -> Generator[Message | None, None, None]:
    if parallel == "ray":
        from sim import ray_tasks

        return ray_tasks.messages(work, jobs)
    return Sweep(work, jobs, parallel, at_once).messages()


def run_all(
    studies: Sequence[Study], parallel: Parallel, watches: Sequence[Watch], exposition: Exposition | None = None
) -> list[dict[str, Any]]:
    """Run several studies as one, each into its own directory; return the results of each. Metrics go to `exposition`.

    All their jobs go through the same workers, so that all cores are busy until the last job has begun.
    """
    with ExitStack() as held:
        for study in studies:
            held.enter_context(study.directory.exclusive())
        wanted: MetricsWanted = "none" if exposition is None else "told" if parallel else "direct"
        jobs: list[Job] = []
        owner: list[int] = []

        def to_port(message: Message) -> bool:
            return exposition is not None and _shown(exposition, message.value)

        for n, study in enumerate(studies):
            more = study.begin(watches[n], wanted)
            jobs += more
            owner += [n] * len(more)
        if jobs:
            with closing(_messages(jobs, parallel, to_port)) as messages:
                for message in messages:
                    if message is None or to_port(message):
                        continue
                    n, arm = owner[message.job], jobs[message.job].arm
                    if message.kind == "done":
                        studies[n].take(arm, message.value)
                    watches[n](arm, message.value)
        return [study.end() for study in studies]


def _shown(exposition: Exposition, value: Any) -> bool:
    """Whether what a job told was metrics, which go to the port and nowhere else."""
    if isinstance(value, Watched):
        exposition.watch(value.metrics.layout, value.metrics.families)
    elif isinstance(value, Told):
        exposition.told(value.layout, value.families)
    return isinstance(value, Watched | Told)


def _declared(prepared: Prepared) -> dict[str, Any]:
    from meshheal import __version__

    e, topology = prepared.experiment, prepared.topology
    return {
        "name": e.name,
        "meshheal": __version__,
        "declaration": e.declaration(),
        "topology": {
            "name": topology.name,
            "hash": topology.hash,
            "agents": len(topology),
            "edges": topology.edges,
            "abilities": [list(topology.held(a)) for a in range(len(topology))],
            "neighbours": [list(n) for n in topology.neighbours],
        },
        "workload": {"name": prepared.workload.name, "source": prepared.workload.source},
        "settings": Settings.model_validate(e.settings).model_dump(mode="json"),
    }


@lru_cache(maxsize=2)
def _prepared(encoded: bytes, experiment: _ById) -> Prepared:
    del encoded
    return prepare(experiment.value)


class _ById:
    """Lets one prepared experiment serve all jobs of a worker: equal whatever it wraps, the encoded key tells apart."""

    def __init__(self, value: Experiment) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById)

    def __hash__(self) -> int:
        return 0


def work(job: Job, report: Report) -> SeedResult:
    """Run one job in a worker process."""
    key = msgspec.json.encode([job.experiment.declaration(), repr(job.experiment.topology)])
    prepared = _prepared(key, _ById(job.experiment))
    teller = _Teller(job, report)
    try:
        return run_arm(
            prepared,
            job.arm,
            Path(job.log),
            None if job.replay_from is None else Path(job.replay_from),
            teller.progress,
            None if job.metrics == "none" else teller.watch,
        )
    finally:
        teller.close()


class _Teller:
    """Tells of one run's progress and metrics, no oftener than is of use."""

    def __init__(self, job: Job, report: Report) -> None:
        self._job = job
        self._report = report
        self._metrics: Metrics | None = None
        self._ended = threading.Event()
        self._last = self._last_metrics = time.monotonic()

    def watch(self, header: dict[str, Any], summary: Summary) -> Metrics:
        """The fold that makes the arm's metrics."""
        self._metrics = Metrics(layout(RunDir(Path(self._job.log).parents[1]), header), summary)
        if self._job.metrics == "direct":
            self._report(Watched(self._metrics))
        self.end()
        if header["clock"] == "wall" and self._job.metrics == "told":
            # In real time nothing may end for long, and that is what one wants to see.
            threading.Thread(target=self._tell_on, daemon=True).start()
        return self._metrics

    def _tell_on(self) -> None:
        while not self._ended.wait(_METRICS_EVERY):
            try:
                self.end()
            except Interrupted:
                return

    def progress(self, progress: Progress) -> None:
        if progress.tasks % 8 and self._metrics is None:
            return
        now = time.monotonic()
        if now - self._last > _REPORT_EVERY:
            self._last = now
            self._report(Snapshot(progress.tasks, progress.right, progress.tokens, progress.calls, progress.excluded))
        if now - self._last_metrics > _METRICS_EVERY:
            self._last_metrics = now
            self.end()

    def end(self) -> None:
        """The metrics as they are now, to whoever serves them in another process."""
        if self._metrics is not None and self._job.metrics == "told":
            self._report(Told(self._metrics.layout, read(self._metrics.families)))

    def close(self) -> None:
        """The run has ended: tell its last metrics, and no more."""
        self._ended.set()
        self.end()
