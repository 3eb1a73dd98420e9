"""Two finished runs against each other, or the methods of one: differences with intervals and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from meshheal.errors import UsageError
from meshheal.measures import Measure, find
from meshheal.results import Family, contrast, read_arms, tested
from meshheal.stats import Comparison
from meshheal.trace.rundir import RunDir

DEFAULT = (
    "accuracy_degraded", "degraded_minus_twin", "accuracy_healthy", "tokens_per_task", "calls_per_task",
    "detection_tasks", "reintegration_tasks", "false_exclusions",
)  # fmt: skip
"""What is compared where nothing is asked for."""

_Asked = tuple[Measure, str, str, Literal["declared", "exploratory"], Comparison]


class Compared(Struct, frozen=True):
    """What the comparison came to. `seeds` says how the seeds were put together, and why."""

    one: str
    other: str
    mode: str
    seeds: str
    comparisons: list[dict[str, Any]]


def within(run: RunDir, measures: Sequence[str] = ()) -> Compared:
    """Every two methods of one run. The declared family is the experiment's own; the rest is exploratory."""
    content = _results(run)
    arms, family = read_arms(content), _family(run)
    declared = set(family.pairs(list(arms)))
    asked: list[_Asked] = []
    for name in measures or DEFAULT:
        measure = find(name)
        for i, one in enumerate(arms):
            for other in list(arms)[i + 1 :]:
                of, against = (other, one) if (other, one, name) in declared else (one, other)
                kind: Literal["declared", "exploratory"] = (
                    "declared" if (of, against, name) in declared else "exploratory"
                )
                asked.append((measure, of, against, kind, contrast(measure, arms[of], arms[against], same_tasks=True)))
    return Compared(run.name, run.name, content["mode"], "paired by seed: same tasks and draws", _plain(asked))


def between(one: RunDir, other: RunDir, measures: Sequence[str] = ()) -> Compared:
    """`other` minus `one`, method by method.

    Paired by seed where both saw the same tasks; the declared family is the measures of the first run's family for the
    method it is about, where both ran it. Two runs put side by side afterwards were not declared together: the family
    holds for the question "did it change", and everything else is exploratory.
    """
    a, b = _results(one), _results(other)
    left, right = read_arms(a), read_arms(b)
    common = [m for m in left if m in right]
    if not common and len(left) == len(right) == 1:
        pairs = [(next(iter(left)), next(iter(right)))]
    elif not common:
        raise UsageError(
            f"{one.name} ran {', '.join(left)} and {other.name} ran {', '.join(right)}: no method is in both"
        )
    else:
        pairs = [(m, m) for m in common]
    same, why = _same_tasks(one, other)
    family = _family(one)
    asked: list[_Asked] = []
    for name in measures or DEFAULT:
        measure = find(name)
        for before, after in pairs:
            kind: Literal["declared", "exploratory"] = (
                "declared" if name in family.measures and before == family.method else "exploratory"
            )
            found = contrast(measure, right[after], left[before], same)
            asked.append((measure, f"{after} ({other.name})", f"{before} ({one.name})", kind, found))
    modes = " and ".join(dict.fromkeys([a["mode"], b["mode"]]))
    return Compared(one.name, other.name, modes, why, _plain(asked))


def _plain(asked: Sequence[_Asked]) -> list[dict[str, Any]]:
    known = [a for a in asked if a[4].difference.n]
    return [msgspec.to_builtins(t) for t in tested(known)]


def _results(run: RunDir) -> Mapping[str, Any]:
    content = run.results
    if content is None:
        raise UsageError(f"run {run.name} has no results.json: complete it with --resume {run.name}")
    return content


def _family(run: RunDir) -> Family:
    declared = run.experiment.get("declaration", {}).get("family")
    return Family() if declared is None else msgspec.convert(declared, Family)


def _same_tasks(one: RunDir, other: RunDir) -> tuple[bool, str]:
    """Whether equal seeds mean equal tasks: the workload and the number of tasks and agents agree."""
    a, b = one.experiment, other.experiment
    differing = [
        what
        for what, left, right in (
            ("workload", a["workload"], b["workload"]),
            ("tasks", _workload(a).get("tasks"), _workload(b).get("tasks")),
            ("order of tasks", a["declaration"].get("order", ""), b["declaration"].get("order", "")),
            ("number of agents", a["topology"]["agents"], b["topology"]["agents"]),
        )
        if left != right
    ]
    if differing:
        return False, f"not paired: the runs differ in {', '.join(differing)}"
    seeds = set(_results(one)["seeds"]) & set(_results(other)["seeds"])
    if not seeds:
        return False, "not paired: the runs have no seed in common"
    return True, f"paired by seed: {len(seeds)} in common, same tasks and draws"


def _workload(experiment: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = experiment["declaration"]["workload"]
    return found
