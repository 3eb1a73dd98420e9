"""A run directory as one report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from meshheal.errors import UsageError
from meshheal.folds.report.about import TWIN, About, about, order
from meshheal.folds.report.columns import Arm
from meshheal.folds.report.heads import Head, Network, network, speak
from meshheal.folds.report.incidents import Incident
from meshheal.folds.report.page import Blob, packed, page
from meshheal.folds.report.reading import Reading
from meshheal.folds.report.stories import blocks
from meshheal.trace.rundir import Arm as LogName
from meshheal.trace.rundir import RunDir

STORIES = 6_000_000
"""Bytes of compressed stories that a report holds by default; about a third more in the file."""


class Stories(Struct):
    """The stories that are in the page: the number of the block for each task id, by arm."""

    blocks: dict[str, dict[str, int]] = field(default_factory=dict)
    kept: int = 0
    all: int = 0


class Overview(Struct):
    """What a page of one run opens with."""

    about: About
    network: Network
    heads: list[Head]
    stories: Stories
    results: dict[str, object] | None


class Report(Struct):
    """A finished page and what is in it."""

    html: str
    arms: int
    events: int
    stories: int
    tasks: int
    thinned: list[str]


def build(run: RunDir, methods: Sequence[str] = (), seeds: Sequence[int] = (), stories: int = STORIES) -> Report:
    """The report of a run, or of some of its methods (with their twins) and seeds.

    `stories` is how many bytes of tasks' stories it may hold. Raises `UsageError` where there is no such log.
    """
    described = about(run)
    chosen = [arm for arm in order(run.arms(), _methods(run)) if _wanted(arm, methods, seeds)]
    if not chosen:
        have = ", ".join(dict.fromkeys(arm.method for arm in run.arms())) or "none"
        raise UsageError(f"run {run.name} has no such log; its methods are {have}")
    heads: list[Head] = []
    incidents: dict[str, list[Incident]] = {}
    thinned: list[str] = []
    told = Stories()
    found: list[Blob] = []
    budget = stories
    for name in chosen:
        with Reading(described, run.log_path(*name), *name) as reading:
            reading.read()
            head, arm = reading.snapshot()
            heads.append(head)
            incidents[head.key] = arm.incidents
            thinned += [f"{head.key}: {left}" for left in arm.thinned]
            found.append(Blob(f"arm {head.key}", packed(arm)))
            told.all += len(arm.tasks.id)
            budget -= _tell(reading, arm, budget, told, found)
    speak(described, heads, incidents)
    overview = Overview(described, network(described), heads, told, run.results)
    html = page(f"{described.experiment} · {described.name}", [Blob("overview", overview), *found])
    return Report(html, len(heads), sum(h.events for h in heads), told.kept, told.all, thinned)


def write(report: Report, path: Path) -> None:
    """Write the page. Raises `UsageError` where that is not possible."""
    try:
        path.write_text(report.html, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error


def _methods(run: RunDir) -> list[str]:
    return [str(m) for m in run.experiment.get("declaration", {}).get("methods", [])]


def _wanted(arm: LogName, methods: Sequence[str], seeds: Sequence[int]) -> bool:
    return (not methods or arm.method.removesuffix(TWIN) in methods or arm.method in methods) and (
        not seeds or arm.seed in seeds
    )


def _tell(reading: Reading, arm: Arm, budget: int, told: Stories, found: list[Blob]) -> int:
    """Put stories of an arm's tasks into `found` until the budget is used up; return the bytes used."""
    used = 0
    of = told.blocks[reading.key] = {}
    wanted = _worth_telling(arm)
    for number, block in enumerate(blocks(reading.log, wanted)):
        content = packed(block)
        if used + len(content) > budget:
            break
        used += len(content)
        found.append(Blob(f"stories {reading.key} {number}", content))
        of.update(dict.fromkeys(block.stories, number))
    told.kept += len(of)
    return used


def _worth_telling(arm: Arm) -> list[str]:
    """Ids of tasks: those that changed a belief, those that went wrong, then the rest in ever finer steps."""
    tasks = arm.tasks
    rows = dict.fromkeys(row for row in arm.states.task if row >= 0)
    rows.update(dict.fromkeys(row for row, correct in enumerate(tasks.correct) if correct != 1))
    step = 64
    while step:
        rows.update(dict.fromkeys(range(0, len(tasks.id), step)))
        step //= 2
    return [tasks.id[row] for row in rows]
