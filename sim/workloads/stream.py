"""What may be done to a stream of tasks between drawing and arrival: put it in an order, and mislabel some of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from meshheal.errors import UsageError
from meshheal.rng import uniform
from meshheal.types import Ability, Task, TaskId
from sim.workloads.sheet import Workload, base_id

Order = Literal["drawn", "harder", "abilities"]
ORDERS: tuple[Order, ...] = ("drawn", "harder", "abilities")


def arranged(tasks: Sequence[Task], workload: Workload, order: Order, seed: int) -> list[Task]:
    """The same tasks in another order.

    `harder`: ever harder, by the data set's own levels. `abilities`: a mix that changes, from mostly the first ability
    to mostly the last. Both are blurred by noise as wide as what they sort by, so that every stretch keeps some of
    everything. As the tasks stay the same, so does what a method could get right of them. Raises `UsageError` for
    `harder` where the data set has no levels.
    """
    if order == "drawn":
        return list(tasks)
    if order == "harder":
        if not workload.levels:
            raise UsageError(f"order 'harder': {workload.name} does not say how hard its tasks are; use math")
        key = [workload.difficulty(t.id) or 0.0 for t in tasks]
    else:
        place = {a: n / max(1, len(workload.abilities) - 1) for n, a in enumerate(workload.abilities)}
        key = [place[t.ability] for t in tasks]
    low, wide = min(key), max(key) - min(key) or 1.0
    ranks = [(k - low) / wide + uniform(seed, "order", t.id) for k, t in zip(key, tasks, strict=True)]
    return [tasks[n] for n in sorted(range(len(tasks)), key=ranks.__getitem__)]


class Labelled(Struct, frozen=True):
    """Tasks as the network gets them, and what the mislabelled ones really need."""

    tasks: list[Task]
    needs: Mapping[TaskId, Ability]


def mislabelled(tasks: Sequence[Task], abilities: Sequence[Ability], rate: float, seed: int) -> Labelled:
    """A share `rate` of the tasks labelled with another ability, drawn per (seed, item): routers that err.

    Who gets such a task works on it with the model that it has for the ability really needed.
    """
    if not rate:
        return Labelled(list(tasks), {})
    if len(abilities) < 2:
        raise UsageError(f"misrouting {rate:g}: with one ability no task can be mislabelled")
    out: list[Task] = []
    needs: dict[TaskId, Ability] = {}
    for task in tasks:
        if uniform(seed, "misrouted", base_id(task.id)) < rate:
            others = [a for a in abilities if a != task.ability]
            label = others[int(uniform(seed, "label", base_id(task.id)) * len(others))]
            needs[task.id] = task.ability
            task = replace(task, ability=label)
        out.append(task)
    return Labelled(out, needs)
