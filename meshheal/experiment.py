"""Experiment: a declaration, how it unfolds into runs (method x seed, with and without faults), and how one run is made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from meshheal.config import Settings
from meshheal.errors import UsageError
from meshheal.events import Event
from meshheal.folds.progress import Progress
from meshheal.folds.summary import SeedResult, Summary, watchers
from meshheal.methods import Named, find
from meshheal.methods.named import Overrides, merge
from meshheal.models.check import check as check_server
from meshheal.models.served import Served, bare, served
from meshheal.results import Family, Network
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import MemoryLog, Recorder
from meshheal.trace.replay import Replay
from meshheal.types import AgentId
from sim.faults import AnyFault, Swap, TimedSwap, check
from sim.links import LinkProfile
from sim.models import RECORDED, answered, resolve
from sim.runtimes import Placement, Runtime, choose, footer, make
from sim.truth import Truth
from sim.workloads import Workload, WorkloadSpec
from sim.workloads.stream import ORDERS, Order, arranged, mislabelled
from sim.world import Closed, Poisson, Stream, World
from topologies import Spec, Topology, assign, outnumbered, require

_FLUSH_EVERY = 2.0
"""Seconds of wall clock after which what a slow run has done can be read in its log."""
TWIN = "+twin"
"""Marks the run of a method without faults: same tasks, seeds and draws."""


class Experiment(Struct, frozen=True, kw_only=True):
    """What is studied. A claim belongs into the docstring of the script that declares it.

    `healthy` is one model for all agents, or a sequence given out in turn; `outside` the weaker model for work outside an
    agent's abilities. `settings` overrides the protocol's, by section. `families` of agents are those their models declare.
    """

    name: str
    topology: Topology | Spec
    workload: WorkloadSpec
    healthy: str | tuple[str, ...]
    outside: str
    faults: tuple[AnyFault, ...] = ()
    methods: tuple[str, ...] = ("meshheal", "unprotected")
    seeds: int = 5
    first_seed: int = 0
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_method: dict[str, Overrides] = field(default_factory=dict)
    """Settings of single methods, in place of their defaults; `settings` go over them."""
    tuned_on: tuple[int, ...] = ()
    """The development seeds that `by_method` was chosen on, where it was: tables say so, and no run may use them."""
    twin: bool = True
    stream: Stream = Closed()
    links: LinkProfile = LinkProfile()
    agreeable: float | None = None
    """Chance that a judge wrongly accepts: a recorded one what disagrees with its own answer, a simulated one what is
    wrong. None: as its profile has it."""
    profile_end: Literal["low", "value", "high"] = "value"
    """End of the estimated ranges that simulated models take."""
    runtime: str = "auto"
    """`local` (virtual time), `realtime` (one process), `ray`; `auto` takes what suits the models and the surroundings."""
    hosts: int | None = None
    """Hosts that agents are spread over on `ray`."""
    agents_per_host: int | None = None
    endpoints: dict[str, Any] = field(default_factory=dict)
    """Where the models named openai/<name> are served, by name: a URL, several, or a `meshheal.models.Served`."""
    family: Family = Family()
    """The comparisons declared beforehand; all others are exploratory."""
    order: Order = "drawn"
    """Order of the stream's tasks: as drawn, ever harder, or with a mix of abilities that changes."""
    misrouting: float = 0.0
    """Share of tasks that arrive labelled with an ability they do not need."""

    def arms(self) -> list[Arm]:
        """Every run, in the order in which results list them."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        twins = (
            [False, True]
            if self.twin and any(isinstance(f, Swap | TimedSwap) and f.degraded for f in self.faults)
            else [False]
        )
        return [Arm(m, s, t) for m in self.methods for t in twins for s in seeds]

    def healthy_of(self, agents: int) -> list[str]:
        names = (self.healthy,) if isinstance(self.healthy, str) else tuple(self.healthy)
        return [names[a % len(names)] for a in range(agents)]

    def phase(self) -> tuple[int, int] | None:
        """The declared degraded phase, half open, in arrivals; None where there is none, or it is a matter of the clock."""
        if any(isinstance(f, TimedSwap) and f.degraded for f in self.faults):
            return None
        swaps = [f for f in self.faults if isinstance(f, Swap) and f.degraded]
        return (min(f.at for f in swaps), max(f.back for f in swaps)) if swaps else None

    def declaration(self) -> dict[str, Any]:
        """Plain values for experiment.json: everything but the graph itself, which stands there by name and hash."""
        plain: dict[str, Any] = msgspec.to_builtins(
            {f: getattr(self, f) for f in self.__struct_fields__ if f != "topology"}
        )
        return plain

    def served(self) -> dict[str, Served]:
        """The servers of its models. Raises `UsageError` for what can be none."""
        return {bare(name): served(bare(name), given) for name, given in self.endpoints.items()}

    def network(self, abilities: Sequence[str]) -> Topology:
        """The graph with abilities given out, checked to be able to review. Raises `UsageError`."""
        made = self.topology.build(tuple(abilities)) if isinstance(self.topology, Spec) else self.topology
        if not made.abilities:
            made = assign(made, tuple(abilities))
        return made


class Arm(Struct, frozen=True):
    """One run: a method under a seed, or its fault-free twin."""

    method: str
    seed: int
    twin: bool = False

    @property
    def label(self) -> str:
        return self.method + (TWIN if self.twin else "")


class Prepared(Struct, dict=True):
    """An experiment with its workload loaded and its graph made: what the arms of one process share."""

    experiment: Experiment
    workload: Workload
    topology: Topology

    @property
    def data(self) -> Path | None:
        given = self.experiment.workload.data
        return None if given is None else Path(given)

    @cached_property
    def network(self) -> Network:
        """The graph's figures, and who of it is degraded at some time."""
        t = self.topology
        ill = tuple(sorted({f.agent for f in self.experiment.faults if isinstance(f, Swap) and f.degraded}))
        over = set(outnumbered(t, ill)) if ill else set[AgentId]()
        among = tuple(a for a in ill if not over.intersection(t.neighbours[a]))
        return Network(len(t), t.edges, t.share_of_complete, ill, among)

    def natures(self) -> set[str]:
        """simulated, recorded, live: what the models are."""
        return set(natures(world(self, Arm(self.experiment.methods[0], self.experiment.first_seed))).values())

    def runtime(self) -> Runtime:
        """What the arms run on. Raises `UsageError` where that cannot be."""
        return choose(self.experiment.runtime, "live" in self.natures(), os.environ)


def prepare(experiment: Experiment) -> Prepared:
    """Load what an experiment names and check that it fits together. Raises `UsageError` with one clear line."""
    _check_shape(experiment)
    for name in experiment.methods:
        _settings(experiment, name)
    workload = _recorded_part(experiment, experiment.workload.load())
    topology = experiment.network(workload.abilities)
    check(experiment.faults, len(topology))
    for fault in experiment.faults:
        if not isinstance(fault, TimedSwap) and fault.at >= experiment.workload.tasks:
            raise UsageError(
                f"a fault at arrival {fault.at} never comes: the stream has {experiment.workload.tasks} tasks; "
                "give more with --tasks, or move the fault"
            )
    require(topology, 1)
    prepared = Prepared(experiment, workload, topology)
    prepared.runtime()
    made = world(prepared, Arm(experiment.methods[0], experiment.first_seed))
    _check_models(experiment, made)
    for named in map(find, experiment.methods):
        _check_method(named, prepared)
    return prepared


def _check_method(method: Named, prepared: Prepared) -> None:
    """Raise `UsageError` where a method cannot run on the runtime or the models of an experiment."""
    _check_recorded(method, prepared.natures())
    if prepared.runtime() == "ray" and (method.oracle or method.centralised):
        raise UsageError(
            f"method {method.name!r} cannot run on Ray: the {method.marks} part of it lives in one process; take --runtime "
            "local or realtime, or leave it out with --methods"
        )


def _recorded_part(e: Experiment, workload: Workload) -> Workload:
    """The workload without the items that one of its recorded models never answered."""
    given = (e.healthy,) if isinstance(e.healthy, str) else tuple(e.healthy)
    names = {e.outside, *given, *(f.to for f in e.faults if isinstance(f, Swap | TimedSwap))}
    recorded = [name for name in names if name.startswith("recorded/")]
    if not recorded or not workload.pool:
        return workload
    return answered(workload, recorded, None if e.workload.data is None else Path(e.workload.data))


def _check_models(e: Experiment, made: World) -> None:
    """Raise `UsageError` for models that cannot do what the settings ask, and `ModelError` where a server is not there."""
    servers = e.served()
    for name in made.model_names():
        model = made.model(name)
        nature = model.nature
        if made.settings.review.by == "likelihood" and nature == "simulated" and not getattr(model, "weighs", False):
            raise UsageError(
                f"review.by=likelihood needs the token likelihoods of real models; {name} is {nature}. Leave review.by at "
                "sampling, or use models behind a server (openai/NAME)"
            )
        if nature == "live":
            check_server(bare(name), servers[bare(name)])


def _check_recorded(method: Named, natures: Collection[str]) -> None:
    """Raise `UsageError` where a method makes calls that no recording of plain answers holds."""
    if "recorded" not in natures:
        return
    missing = [f"{purpose!r}" for purpose in method.needs if purpose not in RECORDED]
    if not missing and method.own_prompts:
        missing = ["'produce' with a prompt of its own"]
    if missing:
        raise UsageError(
            f"method {method.name!r} cannot run on recorded models: its calls ({', '.join(missing)}) were not recorded; "
            "leave it out with --methods, or choose simulated or live models"
        )


def _check_shape(e: Experiment) -> None:
    """Raise `UsageError` where something declared is none or impossible whatever the workload."""
    if e.seeds < 1:
        raise UsageError(f"--seeds {e.seeds}: needs at least 1")
    if e.order not in ORDERS:
        raise UsageError(f"order {e.order!r}: choose one of {', '.join(ORDERS)}")
    if not 0 <= e.misrouting < 1:
        raise UsageError(f"misrouting {e.misrouting:g}: give a share of the tasks, 0 to below 1")
    if e.agreeable is not None and not 0 <= e.agreeable <= 1:
        raise UsageError(f"agreeable {e.agreeable:g}: give a chance, 0 to 1")
    used = [s for s in range(e.first_seed, e.first_seed + e.seeds) if s in e.tuned_on]
    if used:
        raise UsageError(f"seed {used[0]}: the settings were tuned on it; take fewer --seeds, or others in the script")
    if not e.methods:
        raise UsageError("methods: none is declared; name at least one, e.g. methods=('meshheal',)")
    if not e.healthy:
        raise UsageError("healthy: no model is declared; name at least one")
    if isinstance(e.stream, Closed) and e.stream.in_flight < 1:
        raise UsageError(f"stream: closed(in_flight={e.stream.in_flight}) has no task in flight; give at least 1")
    if isinstance(e.stream, Poisson) and not 0 < e.stream.rate < float("inf"):
        raise UsageError(f"stream: poisson(rate={e.stream.rate:g}) is no rate; give tasks a second, above 0")
    for option, given in (("--hosts", e.hosts), ("--agents-per-host", e.agents_per_host)):
        if given is not None and given < 1:
            raise UsageError(f"{option} {given}: needs at least 1")
    if e.hosts is not None and e.agents_per_host is not None:
        raise UsageError("--hosts and --agents-per-host: give one of them")
    links = e.links
    if not (links.latency >= 0 and links.latency_sigma >= 0 and 0 <= links.loss < 1 and 0 <= links.duplicate <= 1):
        raise UsageError(
            f"links: {links} cannot be; latency is 0 or more seconds, loss and duplicate are probabilities"
        )


def _settings(experiment: Experiment, method: str) -> Settings:
    from pydantic import ValidationError

    asked: dict[str, Any] = {}
    for layer in (experiment.by_method.get(method, {}), experiment.settings):
        merge(asked, layer)
    try:
        return find(method).settings(Settings.model_validate(asked))
    except ValidationError as error:
        raise UsageError(_setting_error(error.errors()[0])) from error


def _setting_error(first: Any) -> str:
    """One line about the first thing that is wrong with the settings."""
    where = ".".join(str(p) for p in first["loc"])
    if first["type"] == "extra_forbidden":
        fields = Settings.model_fields
        for part in first["loc"][:-1]:
            fields = fields[str(part)].annotation.model_fields  # type: ignore[union-attr]
        return f"setting {where}: there is no such setting; choose one of {', '.join(fields)}"
    if first["type"] == "value_error":
        return f"setting {where}: {first['ctx']['error']}"
    return f"setting {where}: {first['msg']} (got {first.get('input')!r})"


def world(prepared: Prepared, arm: Arm, recall: Replay | None = None) -> World:
    """The world of one arm. Raises `UsageError` for models that are unknown or lack answers."""
    e, workload, topology = prepared.experiment, prepared.workload, prepared.topology
    drawn = workload.tasks(e.workload.tasks, arm.seed)
    labelled = mislabelled(drawn, workload.abilities, e.misrouting, arm.seed)
    # Labels first: the order goes by what the network sees of a task.
    tasks = arranged(labelled.tasks, workload, e.order, arm.seed)
    by_id = {t.id: t for t in tasks}
    models: dict[str, Any] = {}
    servers = e.served()

    def model(name: str) -> Any:
        if name not in models:
            models[name] = resolve(
                name,
                workload,
                by_id,
                arm.seed,
                data=prepared.data,
                end=e.profile_end,
                agreeable=e.agreeable,
                served=servers,
            )
        return models[name]

    method, faults = find(arm.method), () if arm.twin else e.faults
    named = {e.outside, *e.healthy_of(len(topology)), *(f.to for f in faults if isinstance(f, Swap | TimedSwap))}
    for name in sorted(named):
        model(name)
    return World(
        neighbours=topology.neighbours,
        abilities=[topology.held(a) for a in range(len(topology))],
        tasks=tasks,
        sheet=workload.sheet,
        healthy=e.healthy_of(len(topology)),
        outside=e.outside,
        model=model,
        settings=_settings(e, arm.method),
        method=method.settle,
        beliefs=method.judges(),
        truth=Truth(workload.sheet) if method.oracle else None,
        seed=arm.seed,
        faults=faults,
        links=e.links,
        stream=e.stream,
        recall=None if recall is None else recall.find,
        needs=labelled.needs,
    )


def natures(world: World) -> dict[str, str]:
    """What each model of a world is: simulated, recorded or live."""
    return {name: world.model(name).nature for name in world.model_names()}


def summary(prepared: Prepared, arm: Arm) -> Summary:
    """The fold that turns the events of one arm into its results."""
    topology = prepared.topology
    abilities = [topology.held(a) for a in range(len(topology))]
    around: Sequence[Sequence[AgentId]] = watchers(topology.neighbours, abilities)
    return Summary(around, abilities, arm.seed, prepared.experiment.phase())


def run_arm(
    prepared: Prepared,
    arm: Arm,
    log_path: Path | None,
    replay_from: Path | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    watch: Callable[[dict[str, Any], Summary], Callable[[Event], None]] | None = None,
) -> SeedResult:
    """Run one arm to its end and return its results; with `replay_from`, completions come from that cut log first.

    `watch` makes one more fold of the arm's events from the header of its log and its summary.
    """
    replay = None
    if replay_from is not None:
        replay = Replay(LogFile(replay_from), "resume")
    made = world(prepared, arm, replay)
    fold, progress = summary(prepared, arm), Progress()
    runtime, e = prepared.runtime(), prepared.experiment
    header = {
        "experiment": prepared.experiment.name,
        "method": arm.method,
        "seed": arm.seed,
        "twin": arm.twin,
        "clock": "virtual" if runtime == "local" else "wall",
        "topology": {"name": prepared.topology.name, "hash": prepared.topology.hash, "agents": len(prepared.topology)},
        "workload": {"name": prepared.workload.name, "source": prepared.workload.source},
        "models": {"healthy": sorted(set(made.healthy)), "outside": made.outside},
        "natures": natures(made),
        "runtime": runtime,
    }
    log = MemoryLog(keep=False) if log_path is None else Recorder(log_path, header)
    with log:
        log.subscribe(fold)
        log.subscribe(progress)
        if watch is not None:
            log.subscribe(watch(header, fold))
        began = time.process_time()
        settled = _Watched(log, lambda: report(progress))
        run = make(runtime, made, log, settled, Placement(e.hosts, e.agents_per_host))
        run.run()
        traffic = msgspec.to_builtins(run.traffic)
        spent = time.process_time() - began
        digest = log.close(traffic=traffic, processor_seconds=spent, **footer(run))
    fold.result.count_traffic(traffic)
    return _finished(fold, prepared, digest)


class _Watched:
    """Called when a task has ended: reports it, and now and then hands the log to whoever reads along."""

    def __init__(self, log: Recorder | MemoryLog, report: Callable[[], None]) -> None:
        self._log = log
        self._report = report
        self._flushed = time.monotonic()

    def __call__(self, task: int) -> None:
        del task
        self._report()
        if time.monotonic() - self._flushed > _FLUSH_EVERY:
            self._log.flush()
            self._flushed = time.monotonic()


def fold_arm(prepared: Prepared, arm: Arm, log_path: Path) -> SeedResult:
    """The results of an arm whose log is complete."""
    fold = summary(prepared, arm)
    with LogFile(log_path) as log:
        for event in log.events():
            fold(event)
        footer = log.footer or {}
    if "traffic" in footer:
        fold.result.count_traffic(footer["traffic"])
    return _finished(fold, prepared, str(footer.get("hash", "")))


def _finished(fold: Summary, prepared: Prepared, digest: str) -> SeedResult:
    result, among = fold.finish(digest), set(prepared.network.among_healthy)
    for episode in result.detection:
        episode.among_healthy = episode.agent in among
    return result


def main(experiment: Experiment) -> None:
    """Run an experiment from a script: reads the command line, prints, exits."""
    from meshheal.cli.run import script

    script(experiment)
