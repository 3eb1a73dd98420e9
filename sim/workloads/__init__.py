"""Workloads: tasks with checkable answers, by ability. Declared by `gym()`, `bbh()`, `math()`, `mmlu_pro()`, `facts()`.

The declaration is a `WorkloadSpec`; `load` turns a name into a `Workload`. Modules of the same names hold the
workloads themselves; import from them by `from sim.workloads.mmlu_pro import ...`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, structs

from meshheal.errors import UsageError

# These imports come before the functions of the same names, so that `sim.workloads.gym` is the function
# from here on.
from sim.workloads import bbh as _bbh
from sim.workloads import facts as _facts
from sim.workloads import grading
from sim.workloads import gym as _gym
from sim.workloads import math as _math
from sim.workloads import mmlu_pro as _mmlu_pro
from sim.workloads.sheet import AnswerSheet, Benchmark, Item, Workload, base_id, repeated

__all__ = [
    "LOADERS", "NAMES", "AnswerSheet", "Benchmark", "Item", "Workload", "WorkloadSpec", "base_id", "bbh",
    "facts", "grading", "gym", "load", "math", "mmlu_pro", "repeated",
]  # fmt: skip

LOADERS: dict[str, Callable[[Path | None, bool], Workload]] = {
    "bbh": _bbh.load,
    "math": _math.load,
    "mmlu_pro": _mmlu_pro.load,
    "facts": _facts.load,
}
"""Workloads by name. A loader takes the file or folder given with --data (None: there is none) and whether
it may fetch from the hub instead."""
NAMES = ("gym:math", *LOADERS)
"""The workloads that `load` knows."""


class WorkloadSpec(Struct, frozen=True):
    """A workload as an experiment declares it: `tasks` is the length of the stream, `data` a file or folder,
    if any.

    `benchmark`: whose published accuracies the simulated models take in place of the workload's own (a declared
    proxy: generated tasks then stand for that benchmark's items).
    """

    name: str
    tasks: int = 630
    data: str | None = None
    benchmark: Benchmark | None = None

    def load(self, download: bool = True) -> Workload:
        """The workload declared here; raises `UsageError` as `load` does."""
        found = load(self.name, None if self.data is None else Path(self.data), self.tasks, download)
        if self.benchmark is None or self.benchmark == found.benchmark:
            return found
        source = f"{found.source.partition(';')[0]}; {self.benchmark} is the declared proxy for model accuracies"
        return structs.replace(found, benchmark=self.benchmark, source=source)


def gym(subject: str = "math", tasks: int = 630, benchmark: Benchmark | None = None) -> WorkloadSpec:
    """Generated tasks of a subject; with `benchmark` they stand for the items of that one."""
    return WorkloadSpec(f"gym:{subject}", tasks, benchmark=benchmark)


def bbh(tasks: int = 630, data: str | None = None) -> WorkloadSpec:
    """BIG-Bench Hard; `data` is the folder of its files."""
    return WorkloadSpec("bbh", tasks, data)


def math(tasks: int = 630, data: str | None = None) -> WorkloadSpec:
    """The MATH test set; `data` is its test.jsonl."""
    return WorkloadSpec("math", tasks, data)


def mmlu_pro(tasks: int = 630, data: str | None = None) -> WorkloadSpec:
    """MMLU-Pro; `data` is a published model_outputs_* file or a folder of them."""
    return WorkloadSpec("mmlu_pro", tasks, data)


def facts(tasks: int = 630, data: str | None = None) -> WorkloadSpec:
    """Facts about countries; needs no data. `data` is a file of calibrated models' likelihoods, where they run."""
    return WorkloadSpec("facts", tasks, data)


def load(
    name: str,
    data: Path | None = None,
    tasks: int = 630,
    download: bool = True,
) -> Workload:
    """The workload called `name`, one of `NAMES`.

    Without `data` all but gym and facts are fetched from the Hugging Face hub, if `download`; the revision is in
    `source`. `tasks` is how many the caller means to draw; drawing itself is `Workload.tasks`. Raises
    `UsageError` with one line for an unknown name, data that cannot be had, and files that are missing,
    empty, cut off or of another format.
    """
    if tasks < 1:
        raise UsageError(f"workload {name}: {tasks} tasks asked for; give at least 1")
    group, colon, subject = name.partition(":")
    if group == "gym":
        return _gym.load(subject if colon else "math")
    if name not in LOADERS:
        raise UsageError(f"workload: unknown name {name!r}; choose one of {', '.join(NAMES)}")
    return LOADERS[name](data, download)
