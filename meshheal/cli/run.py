"""`meshheal run EXPERIMENT`, and what a script's `main(EXPERIMENT)` does."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from msgspec import Struct
from msgspec.structs import replace

from meshheal.cli.app import guarded
from meshheal.cli.away import Away
from meshheal.cli.display import display
from meshheal.cli.table import show
from meshheal.errors import MeshHealError, UsageError
from meshheal.experiment import Experiment
from meshheal.exposition import Exposition, serve
from meshheal.methods.named import merge
from meshheal.models.served import bare, named, served
from meshheal.study import Parallel, Study, Watch
from meshheal.suite import Suite, SuiteStudy, also_tuned, at_profile_ends, real
from meshheal.tuning import read as read_tuned
from sim.runtimes import on_cluster

_CORES = os.cpu_count() or 1

SeedsOption = Annotated[int | None, typer.Option("--seeds", help="Number of seeds.")]
OutOption = Annotated[
    str, typer.Option("--out", help="Where run directories are made; a URL such as s3://bucket/runs: copied to there.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print results.json to standard output, all else to standard error.")
]
DisplayOption = Annotated[
    str, typer.Option("--display", help="Progress: none, plain or full; by default what suits the terminal.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting of the protocol.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="TOML file with settings of the protocol.")]
HealthyOption = Annotated[
    str | None,
    typer.Option("--healthy", metavar="MODEL[,MODEL...]", help="Models of healthy agents, given out in turn."),
]
DegradedOption = Annotated[
    str | None, typer.Option("--degraded", metavar="MODEL", help="Model that swapped agents run on.")
]
OutsideOption = Annotated[
    str | None, typer.Option("--outside", metavar="MODEL", help="Weaker model for work outside an agent's abilities.")
]
WorkloadOption = Annotated[str | None, typer.Option("--workload", help="gym:math, bbh, math, mmlu_pro or facts.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="File or folder of the workload's data.")]
TasksOption = Annotated[int | None, typer.Option("--tasks", help="Length of the task stream.")]
MethodsOption = Annotated[
    str | None, typer.Option("--methods", metavar="METHOD[,METHOD...]", help="Methods to compare.")
]
EndpointOption = Annotated[
    list[str] | None,
    typer.Option("--endpoint", metavar="NAME=URL[,URL...]", help="Where the model openai/NAME is served."),
]
ParallelOption = Annotated[
    str | None,
    typer.Option(
        "--parallel",
        metavar="N|ray",
        help="Runs at a time; 0: in this process; ray: as tasks of a Ray cluster. By default one a core, in real time one.",
    ),
]
RuntimeOption = Annotated[
    str | None,
    typer.Option("--runtime", help="auto, local (virtual time), realtime (this process) or ray (a cluster)."),
]
HostsOption = Annotated[int | None, typer.Option("--hosts", help="Hosts to spread the agents over, with ray.")]
AgentsPerHostOption = Annotated[
    int | None, typer.Option("--agents-per-host", help="Agents that a host holds, with ray.")
]
OnlyOption = Annotated[
    str | None, typer.Option("--only", metavar="LABEL[,LABEL...]", help="Of a study of several experiments, these.")
]
EndsOption = Annotated[
    bool,
    typer.Option("--profile-ends", help="Also with simulated models at both ends of their estimated ranges."),
]
TunedOption = Annotated[
    Path | None,
    typer.Option("--tuned", metavar="FILE", help="Also with the settings that tuning chose (experiments/tuned.toml)."),
]
TwinOption = Annotated[
    bool | None,
    typer.Option("--twin/--no-twin", help="With or without the same runs without faults, to set beside; half the time."),
]
PortOption = Annotated[
    int | None, typer.Option("--metrics-port", help="Serve Prometheus metrics on this port while it runs.")
]
HostOption = Annotated[str, typer.Option("--metrics-host", help="Address that the metrics are served on.")]
ResumeOption = Annotated[str | None, typer.Option("--resume", metavar="RUN", help="Complete an interrupted run.")]


def load(name: str) -> Experiment | Suite:
    """The EXPERIMENT or SUITE that a script declares. Raises `UsageError`."""
    path = Path(name)
    if not path.suffix:
        path = Path("experiments") / f"{name}.py"
    if not path.is_file():
        known = sorted(p.stem for p in Path("experiments").glob("*.py"))
        have = f"; in experiments/ there are: {', '.join(known)}" if known else ""
        raise UsageError(f"unknown experiment {name!r}: no file {path}{have}")
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except MeshHealError:
        raise
    except Exception as error:
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    suite = getattr(module, "SUITE", None)
    if isinstance(suite, Suite):
        return suite
    declared = getattr(module, "EXPERIMENT", None)
    if not isinstance(declared, Experiment):
        raise UsageError(f"{path} declares no EXPERIMENT (an Experiment of meshheal.experiment)")
    return declared


def run(
    experiment: Annotated[
        Any,  # Experiment | Suite: the type of an argument cannot be a union
        typer.Argument(
            parser=load, help="A script that declares EXPERIMENT or SUITE, or the name of one in experiments/."
        ),
    ],
    seeds: SeedsOption = None,
    out: OutOption = "runs",
    as_json: JsonOption = False,
    display: DisplayOption = "",
    settings: SetOption = None,
    config: ConfigOption = None,
    healthy: HealthyOption = None,
    degraded: DegradedOption = None,
    workload: WorkloadOption = None,
    data: DataOption = None,
    tasks: TasksOption = None,
    methods: MethodsOption = None,
    endpoint: EndpointOption = None,
    parallel: ParallelOption = None,
    resume: ResumeOption = None,
    runtime: RuntimeOption = None,
    hosts: HostsOption = None,
    agents_per_host: AgentsPerHostOption = None,
    only: OnlyOption = None,
    profile_ends: EndsOption = False,
    tuned: TunedOption = None,
    twin: TwinOption = None,
    metrics_port: PortOption = None,
    metrics_host: HostOption = "127.0.0.1",
    outside: OutsideOption = None,
) -> None:
    """Run an experiment from its script."""

    def serving_there(e: Experiment) -> Experiment:
        e = e if outside is None else replace(e, outside=outside)
        e = e if twin is None else replace(e, twin=twin)
        return placed(serving(e, endpoint, config), runtime, hosts, agents_per_host)

    both = experiment if tuned is None else also_tuned(experiment, read_tuned(tuned))
    found = chosen(both, only, profile_ends)
    asked = Changes(seeds, healthy, degraded, workload, data, tasks, methods, tuple(settings or ()), config)
    changed = adapt(found, asked)
    changed = changed.changed(serving_there) if isinstance(changed, Suite) else serving_there(changed)
    with exposed(metrics_port, metrics_host) as exposition:
        conduct(changed, out, as_json, display, parallel, resume, exposition)


def script(declared: Experiment | Suite) -> None:
    """The command line of the own script of an experiment or a suite."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    def command(**options: Any) -> None:
        run(declared, **options)

    # The script's options are those of `meshheal run`, which has its name besides.
    taken = inspect.signature(run, eval_str=True)
    named = [p for name, p in taken.parameters.items() if name != "experiment"]
    command.__signature__ = taken.replace(parameters=named)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in named}

    import __main__

    app.command(help=(getattr(__main__, "__doc__", None) or declared.name).strip())(command)
    guarded(app)


def chosen(declared: Experiment | Suite, only: str | None, profile_ends: bool) -> Experiment | Suite:
    """What of a study is to be run, and over which ends of the profiles' ranges."""
    if only is not None:
        if not isinstance(declared, Suite):
            raise UsageError(f"--only {only}: {declared.name} is one experiment; leave it out")
        declared = declared.only(_names("--only", only))
    return at_profile_ends(declared) if profile_ends else declared


class Changes(Struct, frozen=True):
    """What the command line changes of an experiment; None: as declared."""

    seeds: int | None = None
    healthy: str | None = None
    degraded: str | None = None
    workload: str | None = None
    data: Path | None = None
    tasks: int | None = None
    methods: str | None = None
    settings: tuple[str, ...] = ()
    config: Path | None = None


def adapt(e: Experiment | Suite, to: Changes) -> Experiment | Suite:
    """The experiment, or every one of the suite, as the command line changes it."""
    if isinstance(e, Experiment):
        return _adapted(e, to)
    if to.workload is not None:
        raise UsageError(f"--workload {to.workload}: the study {e.name} has workloads of its own; leave it out")
    data = to.data
    if data is not None:
        e = e.changed(lambda one: replace(one, workload=real(one.workload, data)))
    each = replace(to, data=None)
    return e.changed(lambda one: _adapted(one, each))


def _adapted(e: Experiment, to: Changes) -> Experiment:
    if to.seeds is not None:
        e = replace(e, seeds=to.seeds)
    if to.healthy is not None:
        e = replace(e, healthy=_names("--healthy", to.healthy))
    if to.degraded is not None:
        e = replace(e, faults=tuple(replace(f, to=to.degraded) if hasattr(f, "to") else f for f in e.faults))
    if to.methods is not None:
        e = replace(e, methods=tuple(dict.fromkeys(_names("--methods", to.methods))))
    load = e.workload
    if to.workload is not None:
        load = replace(load, name=to.workload, data=None)
    if to.data is not None:
        load = replace(load, data=str(to.data))
    if to.tasks is not None:
        load = replace(load, tasks=to.tasks)
    return replace(e, workload=load, settings=overrides(e.settings, list(to.settings), to.config))


def placed(e: Experiment, runtime: str | None, hosts: int | None, agents_per_host: int | None) -> Experiment:
    """The experiment with where it runs as the command line says."""
    if runtime is not None:
        e = replace(e, runtime=runtime)
    if hosts is not None or agents_per_host is not None:
        e = replace(e, hosts=hosts, agents_per_host=agents_per_host)
    return e


def _names(option: str, given: str) -> tuple[str, ...]:
    names = tuple(m.strip() for m in given.split(",") if m.strip())
    if not names:
        raise UsageError(f"{option} {given!r}: names nothing; give one name, or several with commas between")
    return names


def serving(e: Experiment, endpoints: list[str] | None, config: Path | None) -> Experiment:
    """The experiment with the servers that the file ([models.NAME]) and the command line name; the latter wins."""
    tables = {} if config is None else _read(config).get("models", {})
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise UsageError(f"--config {config}: write one table a model: [models.NAME], then endpoints = [...]")
    found: dict[str, Any] = {bare(name): given for name, given in e.endpoints.items()}
    for name, table in tables.items():
        found[bare(name)] = served(bare(name), table)
    for name, given in named(endpoints or []).items():
        known = found.get(name)
        # Only where it is changes: its key, its limits and its name there stay as the file or the experiment has them.
        found[name] = given if known is None else replace(served(name, known), endpoints=given.endpoints)
    return replace(e, endpoints=found)


def overrides(base: dict[str, dict[str, Any]], pairs: list[str], config: Path | None) -> dict[str, dict[str, Any]]:
    """Settings by section: the experiment's, then the file's, then the command line's. Raises `UsageError`."""
    merged: dict[str, dict[str, Any]] = copy.deepcopy(base)
    if config is not None:
        for section, values in _read(config).items():
            if section == "models":
                continue
            if not isinstance(values, dict):
                raise UsageError(
                    f"--config {config}: {section!r} stands outside a section; write [review], [detector], ..."
                )
            merge(merged.setdefault(section, {}), values)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot or not key:
            raise UsageError(f"--set {pair}: write SECTION.NAME=VALUE, e.g. --set detector.drop=0.1")
        held = merged.setdefault(section, {})
        *groups, last = key.split(".")
        for group in groups:
            held = held.setdefault(group, {})
        held[last] = _value(value.strip())
    return merged


def _read(config: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `UsageError`."""
    try:
        return tomllib.loads(config.read_text())
    except OSError as error:
        raise UsageError(f"--config {config}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {config}: not TOML: {error}") from error


def _value(text: str) -> Any:
    """A value as TOML would read it; a bare word is a string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


@contextmanager
def exposed(port: int | None, host: str) -> Iterator[Exposition | None]:
    """Serve metrics where a port is given, and say where. Raises `UsageError`."""
    if port is None:
        yield None
        return
    exposition = Exposition()
    with serve(exposition, host, port) as taken:
        print(f"meshheal: metrics on http://{host}:{taken}/metrics", file=sys.stderr, flush=True)
        yield exposition


def conduct(
    e: Experiment | Suite,
    out: str | Path,
    as_json: bool,
    how: str,
    parallel: str | None,
    resume: str | None,
    exposition: Exposition | None = None,
) -> None:
    """Run everything, show progress and the table, write results. Exit 1 where the run is not valid."""
    if how not in ("", "none", "plain", "full"):
        raise UsageError(f"--display {how}: choose none, plain or full")
    how = cast("Literal['', 'none', 'plain', 'full']", how)
    now = datetime.now(UTC)
    away = Away(out)
    out = away.here
    asked = _asked(parallel)
    if asked is None and isinstance(e, Suite) and on_cluster(os.environ) and _simulated(e):
        asked = "ray"
    if asked == "ray":
        e = e.changed(_under_virtual_time) if isinstance(e, Suite) else _under_virtual_time(e)
    studies: dict[str, Study]
    run: Callable[[Parallel, list[Watch]], dict[str, Any]]
    if isinstance(e, Suite):
        suite = SuiteStudy.start(e, out, now) if resume is None else SuiteStudy.resume(resume, out, e)
        path, studies = suite.path, suite.studies
        run = lambda n, watches: suite.run(n, watches, exposition)  # noqa: E731
    else:
        study = Study.start(e, out, now) if resume is None else Study.resume(resume, out, e)
        path, studies = study.directory.path, {"": study}
        run = lambda n, watches: study.run(n, watches[0], exposition)  # noqa: E731
    with display(how, e.name, studies) as watches:
        try:
            results = run(_parallel(asked, studies), away.copying(path, watches))
        except KeyboardInterrupt:
            away.copy(path)
            print(
                f"meshheal: interrupted; {path} keeps what was done. Complete it with --resume {path.name}",
                file=sys.stderr,
            )
            sys.exit(130)
    if as_json:
        print(json.dumps(results, indent=1))
    shown = sys.stderr if as_json else sys.stdout
    show(results, path, shown)
    if away.url is not None:
        print(f"copied to {away.copy(path)}", file=shown)
    if not results["valid"]:
        raise SystemExit(1)


def _asked(parallel: str | None) -> Parallel | None:
    if parallel is None or parallel == "ray":
        return parallel  # type: ignore[return-value]
    if not parallel.isdecimal():
        raise UsageError(f"--parallel {parallel}: give a number of runs at a time, or ray")
    return int(parallel)


def _simulated(suite: Suite) -> bool:
    """Whether no runtime was asked for and no model is behind a server: then runs can be tasks of a cluster."""
    return all(e.runtime == "auto" and not e.endpoints for e in suite.experiments.values())


def _under_virtual_time(e: Experiment) -> Experiment:
    """A run that is a task of a cluster is in one process there, unless asked otherwise."""
    return replace(e, runtime="local") if e.runtime == "auto" else e


def _parallel(asked: Parallel | None, studies: dict[str, Study]) -> Parallel:
    """Runs at a time. Runs in real time, which share servers or a cluster, come one after another unless asked otherwise."""
    if asked is not None:
        return asked
    return _CORES if all(study.prepared.runtime() == "local" for study in studies.values()) else 1
