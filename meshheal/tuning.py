"""Tuning: the best of the configurations that a method declares, on development seeds, by one rule for all methods.

A study runs one experiment for each workload and configuration, in which `Experiment.by_method` holds the configuration of each
method. Its scores are means over workloads, each as heavy as the others.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from meshheal.errors import UsageError
from meshheal.folds.summary import SeedResult
from meshheal.measures import find as measure
from meshheal.methods import find
from meshheal.methods.named import Overrides
from meshheal.results import plain, read_arms
from meshheal.stats import Interval, mean_interval
from meshheal.study import Study
from meshheal.trace.rundir import write_json

TIE = 0.005
"""Accuracies no further below the best than this are as good: of these the one with the fewest tokens is chosen."""
CHOSEN, SCORES = "tuned.toml", "tuning.json"
"""What tuning writes into the study's directory: settings for `--tuned`, and what every configuration came to."""


class Tuned(Struct, frozen=True):
    """What tuning chose: settings of each method, and the seeds they were chosen on, which no table may use."""

    seeds: tuple[int, ...]
    settings: dict[str, Overrides]


class Tried(Struct, frozen=True):
    """One configuration of a method: accuracy (0..1) in the degraded phase and tokens a task, over seeds."""

    settings: Overrides
    accuracy: Interval
    tokens: Interval


def best(tried: Sequence[Tried]) -> Tried:
    """The highest accuracy; within `TIE` of it the fewest tokens; among equals whichever was declared first."""
    near = max(t.accuracy.mean for t in tried) - TIE
    return min([t for t in tried if t.accuracy.mean >= near], key=lambda t: t.tokens.mean)


def tried(studies: Mapping[str, Study]) -> dict[str, list[Tried]]:
    """For each method that has configurations what each came to, in the order declared.

    Raises `UsageError` where a configuration lacks a workload that another one has.
    """
    found: dict[str, list[tuple[Overrides, dict[str, list[SeedResult]]]]] = defaultdict(list)
    for study in studies.values():
        e, arms = study.experiment, read_arms(study.directory.results or {"arms": {}})
        for method in [m for m in e.methods if m in e.by_method]:
            held = next((h for s, h in found[method] if s == e.by_method[method]), None)
            if held is None:
                held = {}
                found[method].append((e.by_method[method], held))
            held[e.workload.benchmark or e.workload.name] = arms[method]
    for method, configurations in found.items():
        if len({frozenset(held) for _, held in configurations}) > 1:
            raise UsageError(f"tuning of {method}: not every configuration ran on every workload; leave out --only")
    return {m: [Tried(s, *_scores(held)) for s, held in of] for m, of in found.items()}


def _scores(by_workload: Mapping[str, Sequence[SeedResult]]) -> tuple[Interval, Interval]:
    """Accuracy and tokens: a seed's value is its mean over workloads."""
    seeds = list(zip(*by_workload.values(), strict=True))
    return mean_interval([_mean("accuracy_degraded", rs) for rs in seeds]), mean_interval(
        [_mean("tokens_per_task", rs) for rs in seeds]
    )


def _mean(name: str, results: Sequence[SeedResult]) -> float:
    found = [measure(name).of(r) for r in results]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        raise UsageError("tuning: an experiment has no degraded phase; declare a swap")
    return sum(known) / len(known)


def write(path: Path, studies: Mapping[str, Study]) -> None:
    """Choose, and write what was chosen and what everything came to into the study's directory (`Suite.after`)."""
    found = tried(studies)
    if not found:
        raise UsageError("tuning: none of these methods has configurations; docs/METHODS.md lists those that have")
    seeds = sorted({arm.seed for study in studies.values() for arm in study.experiment.arms()})
    workloads = sorted({s.experiment.workload.benchmark or s.experiment.workload.name for s in studies.values()})
    rows = {method: [_row(t, t is best(of), t is of[0]) for t in of] for method, of in found.items()}
    write_json(path / SCORES, {"seeds": seeds, "workloads": workloads, "methods": rows})
    chosen = {method: best(of) for method, of in found.items()}
    (path / CHOSEN).write_text(page(chosen, seeds, workloads), encoding="utf-8")


def _row(t: Tried, chosen: bool, published: bool) -> dict[str, Any]:
    return {
        "settings": dict(flat(t.settings)),
        "accuracy_degraded": plain(t.accuracy),
        "tokens_per_task": plain(t.tokens),
        "chosen": chosen,
        "published": published,
    }


def flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names with their values."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def page(chosen: Mapping[str, Tried], seeds: Sequence[int], workloads: Sequence[str]) -> str:
    """What was chosen as TOML, for `--tuned`."""
    lines = [
        "# What experiments/tuning.py chose of the configurations that each method declares (docs/METHODS.md): the highest",
        f"# accuracy in the degraded phase, mean over {', '.join(workloads)}; within {TIE:g} of it the fewest tokens.",
        "# Simulated models. A study takes it with --tuned; no study that does may use these seeds.",
        f"seeds = {list(seeds)}",
    ]
    for method, t in chosen.items():
        lines += ["", f"[settings.{method}]", *(f"{name} = {json.dumps(v)}" for name, v in flat(t.settings))]
    return "\n".join([*lines, ""])


def read(path: Path) -> Tuned:
    """A file that tuning wrote. Raises `UsageError` for one that is missing, damaged, or names a method there is not."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--tuned {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--tuned {path}: not TOML: {error}") from error
    seeds, tables = content.get("seeds"), content.get("settings")
    if not isinstance(seeds, list) or not all(isinstance(s, int) for s in seeds) or not isinstance(tables, dict):
        raise UsageError(f"--tuned {path}: needs seeds = [...] and a table [settings.METHOD] for each method")
    for method, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(v, dict) for v in table.values()):
            raise UsageError(f"--tuned {path}: [settings.{method}] has to hold SECTION.NAME = VALUE")
        find(method)
    return Tuned(tuple(seeds), tables)
