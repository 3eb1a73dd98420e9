"""Models to put under agents: simulated from profiles, or recorded from real evaluations.

`resolve` turns a name into a model: `synthetic/<profile>` or `recorded/<model>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from msgspec import structs

from meshheal.errors import UsageError
from meshheal.types import Task, TaskId
from sim.models.figures import End
from sim.models.profiles import PROFILES
from sim.models.recorded import Recorded, available, find_recorded, open_recorded
from sim.models.recordings import read
from sim.models.synthetic import Synthetic
from sim.workloads.sheet import Workload

__all__ = ["PROFILES", "Recorded", "Synthetic", "answered", "catalogue", "resolve"]


def catalogue(data: Path | None = None) -> tuple[str, ...]:
    """Every name that `resolve` knows; the recorded models are those found under `data`."""
    return (*[f"synthetic/{name}" for name in PROFILES], *[f"recorded/{name}" for name in available(data)])


def resolve(
    name: str,
    workload: Workload,
    tasks: Mapping[TaskId, Task],
    seed: int,
    *,
    data: Path | None = None,
    end: End = "value",
    agreeable: float | None = None,
) -> Synthetic | Recorded:
    """The model called `name`, for `tasks` of `workload`.

    `data` holds the published outputs that recorded models read (a file or a folder), `end` is the end of
    their estimated ranges that simulated ones take, `agreeable` the chance that a recorded judge accepts an
    answer that disagrees with its own. Raises `UsageError` for an unknown name (saying what there is), for a
    benchmark the profile has no accuracy on, and for a recorded model without an answer to one of the tasks.
    """
    kind, _, model = name.partition("/")
    if kind == "synthetic" and model in PROFILES:
        profile = PROFILES[model].at(end)
        return Synthetic(profile, workload.sheet, tasks, workload.benchmark, seed, workload.levels)
    if kind == "recorded" and (found := find_recorded(model, data)) is not None:
        return open_recorded(*found, tasks, seed, agreeable=agreeable)
    raise UsageError(_unknown(name, data))


def answered(workload: Workload, names: Iterable[str], data: Path | None) -> Workload:
    """`workload` with only the items that all the recorded models among `names` have answered.

    Raises `UsageError` for an unknown recorded model, or where nothing is left.
    """
    every = {task.id: task for tasks in workload.pool.values() for task in tasks}
    left = set(every)
    for name in sorted({name for name in names if name.startswith("recorded/")}):
        found = find_recorded(name.removeprefix("recorded/"), data)
        if found is None:
            raise UsageError(_unknown(name, data))
        left &= read(*found, every).keys()
    kept = {ability: tuple([t for t in tasks if t.id in left]) for ability, tasks in workload.pool.items()}
    pool = {ability: tasks for ability, tasks in kept.items() if tasks}
    if not pool:
        raise UsageError(f"workload {workload.name}: no item was answered by all the recorded models")
    return structs.replace(workload, pool=pool, abilities=tuple(pool))


def _unknown(name: str, data: Path | None) -> str:
    known = catalogue(data)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    lacking = ""
    if name.startswith("recorded/") and not available(data):
        where = f"in {data}" if data else "(no data folder was given)"
        lacking = f" No recorded outputs were found {where}; give their folder with --data."
    return f"model: there is no {name!r}.{hint} There are: {', '.join(known)}.{lacking}"
