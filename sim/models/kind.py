"""What a kind of model has to provide, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from meshheal.model import Model
from meshheal.models.served import Served
from meshheal.types import Task, TaskId
from sim.models.figures import End
from sim.workloads.sheet import Workload


class Setting(Struct, frozen=True):
    """Where a model is to work: the tasks of a run by id, the workload they come from, the run's seed.

    `data` is the file or folder of recordings, `end` the end of the estimated ranges that simulated models
    take, `agreeable` the chance that a judge wrongly accepts an answer: a recorded one where it disagrees with its own,
    a simulated one where it is wrong. `served` says, by name, where models behind servers are.
    """

    workload: Workload
    tasks: Mapping[TaskId, Task]
    seed: int
    data: Path | None = None
    end: End = "value"
    agreeable: float | None = None
    served: Mapping[str, Served] = {}


class Kind(Struct, frozen=True):
    """A kind of model. `make` gives the model whose name follows the slash, None where there is none of that
    name; `names` lists the names there are, given the folder of recordings.
    """

    make: Callable[[str, Setting], Model | None]
    names: Callable[[Path | None], Iterable[str]]
