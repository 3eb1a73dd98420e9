"""Models to put under agents: simulated from profiles, recorded from real evaluations, or real behind a server.

`resolve` turns a name into a model: `synthetic/<profile>`, `recorded/<model>` or `openai/<name>`. `KINDS` lists what may stand
before the slash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from msgspec import structs

from meshheal.errors import UsageError
from meshheal.model import Model
from meshheal.models import OpenAI, Served
from meshheal.types import Task, TaskId
from sim.models import calibration
from sim.models.calibrated import Calibrated
from sim.models.figures import End
from sim.models.kind import Kind, Setting
from sim.models.profiles import PROFILES
from sim.models.recorded import RECORDED, Recorded, available, find_recorded, open_recorded
from sim.models.recordings import answered_in, read
from sim.models.synthetic import Synthetic
from sim.workloads.sheet import Workload

__all__ = [
    "KINDS", "PROFILES", "RECORDED", "Calibrated", "Kind", "Recorded", "Setting", "Synthetic", "answered", "catalogue",
    "resolve",
]  # fmt: skip


def _synthetic(name: str, at: Setting) -> Model | None:
    if name not in PROFILES:
        return None
    w, profile = at.workload, PROFILES[name].at(at.end)
    if at.agreeable is not None:
        profile = profile.agreeable(at.agreeable)
    return Synthetic(profile, w.sheet, at.tasks, w.benchmark, at.seed, w.levels)


def _recorded(name: str, at: Setting) -> Model | None:
    found = find_recorded(name, at.data)
    return None if found is None else open_recorded(*found, at.tasks, at.seed, agreeable=at.agreeable)


def _openai(name: str, at: Setting) -> Model | None:
    if name not in at.served:
        raise UsageError(
            f"model openai/{name}: no endpoint is given; add --endpoint {name}=http://HOST:PORT/v1, [models.{name}] in the file "
            "of --config, or endpoints={...} in the experiment"
        )
    return OpenAI(name, at.served[name], at.seed, at.tasks)


def _calibrated(name: str, at: Setting) -> Model | None:
    if at.data is None:
        raise UsageError(f"model calibrated/{name}: no calibration is given; give its file with --data")
    found = calibration.read(at.data)
    return Calibrated(name, found, at.workload.sheet, at.tasks, at.seed) if name in found.rows else None


def _calibrated_names(data: Path | None) -> tuple[str, ...]:
    """The copies in a file of likelihoods; none where the data are something else."""
    if data is None or data.suffix != ".json" or not data.is_file():
        return ()
    try:
        return tuple(calibration.read(data).rows)
    except UsageError:
        return ()


KINDS: dict[str, Kind] = {
    "synthetic": Kind(_synthetic, lambda _: PROFILES),
    "recorded": Kind(_recorded, available),
    "calibrated": Kind(_calibrated, _calibrated_names),
    "openai": Kind(_openai, lambda _: ()),
}
"""What may stand before the slash of a model's name."""


def catalogue(data: Path | None = None) -> tuple[str, ...]:
    """Every name that `resolve` knows; the recorded models are those found under `data`."""
    return tuple([f"{kind}/{name}" for kind, of in KINDS.items() for name in of.names(data)])


def resolve(
    name: str,
    workload: Workload,
    tasks: Mapping[TaskId, Task],
    seed: int,
    *,
    data: Path | None = None,
    end: End = "value",
    agreeable: float | None = None,
    served: Mapping[str, Served] | None = None,
) -> Model:
    """The model called `name`, for `tasks` of `workload`; the other parameters as in `Setting`.

    Raises `UsageError` for an unknown name (saying what there is), for a benchmark the profile has no
    accuracy on, and for a recorded model without an answer to one of the tasks.
    """
    kind, _, model = name.partition("/")
    at = Setting(workload, tasks, seed, data, end, agreeable, served or {})
    found = KINDS[kind].make(model, at) if kind in KINDS else None
    if found is None:
        raise UsageError(_unknown(name, data))
    return found


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
        left &= answered_in(read(*found, every))
    kept = {ability: tuple([t for t in tasks if t.id in left]) for ability, tasks in workload.pool.items()}
    pool = {ability: tasks for ability, tasks in kept.items() if tasks}
    if not pool:
        raise UsageError(f"workload {workload.name}: no item was answered by all the recorded models")
    if len(left) == len(every):
        return workload
    source = f"{workload.source}; {len(left)} of {len(every)} items, which all the recorded models answered"
    return structs.replace(workload, pool=pool, abilities=tuple(pool), source=source)


def _unknown(name: str, data: Path | None) -> str:
    known = catalogue(data)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    lacking = ""
    if name.startswith("recorded/") and not available(data):
        where = f"in {data}" if data else "(no data folder was given)"
        lacking = f" No recorded outputs were found {where}; give their folder with --data."
    return f"model: there is no {name!r}.{hint} There are: {', '.join(known)}.{lacking}"
