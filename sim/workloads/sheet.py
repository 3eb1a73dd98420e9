"""Items with their gold answers, the answer sheet that grades by task id, and the workload that draws tasks
from a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, structs

from meshheal.answers import same
from meshheal.errors import UsageError
from meshheal.rng import Stream
from meshheal.types import Ability, Task, TaskId
from sim.workloads.slips import slips

Benchmark = Literal["BBH", "MATH", "MMLU-Pro"]


class Item(Struct, frozen=True):
    """A task and its gold answer, which goes no further than the `AnswerSheet`."""

    task: Task
    gold: str


def base_id(task_id: TaskId) -> TaskId:
    """The item behind a task: a repeated item's tasks are called `item#2`, `item#3`, ..."""
    return task_id.partition("#")[0]


class AnswerSheet:
    """Gold answers by task id: for grading, and for the synthetic model alone."""

    def __init__(self, golds: Mapping[TaskId, str] | None = None) -> None:
        self._golds: dict[TaskId, str] = dict(golds or {})
        self._slips: dict[TaskId, tuple[str, ...]] = {}

    def add(self, task_id: TaskId, gold: str) -> None:
        self._golds[task_id] = gold

    def __len__(self) -> int:
        return len(self._golds)

    def ids(self) -> list[TaskId]:
        """The items whose gold answer is known, in the order they came."""
        return list(self._golds)

    def gold(self, task_id: TaskId) -> str:
        """The gold answer of a task or of the item it repeats. Raises `UsageError` for an unknown id."""
        found = self._golds.get(task_id)
        if found is None:
            found = self._golds.get(base_id(task_id))
        if found is None:
            raise UsageError(f"workload: no gold answer for task {task_id!r}; was it drawn from another workload?")
        return found

    def correct(self, task: Task, value: str | None) -> bool:
        """Whether `value` says what the gold answer says. No answer is not correct. Cached (in
        `answers.same`).
        """
        return value is not None and same(task.form, self.gold(task.id), value)

    def plausible_wrong(self, task: Task, u: float, modal: bool) -> str:
        """A wrong answer someone might give, chosen by `u` in [0, 1); with `modal` the item's most tempting
        one.

        Depends on the item, `u` and `modal` only, so models that err on the modal answer err alike. Never
        correct.
        """
        item = base_id(task.id)
        wrong = self._slips.get(item)
        if wrong is None:
            wrong = slips(item, task.form, self.gold(task.id))
            if not wrong:
                raise UsageError(f"workload: item {item!r} has no wrong answer; a choice needs at least two options")
            if len(self._slips) >= _SLIPS_KEPT:
                self._slips.clear()
            self._slips[item] = wrong
        return wrong[0] if modal else wrong[int(u * len(wrong))]

    def with_golds(self, golds: Mapping[TaskId, str]) -> AnswerSheet:
        """A sheet with other gold answers, as a test of what may depend on them needs."""
        return AnswerSheet({**self._golds, **golds})


_SLIPS_KEPT = 100_000


class Workload(Struct):
    """A pool of items by ability, and how tasks are drawn from it.

    `benchmark` is the one whose published accuracies stand for the models' here (a declared proxy where the
    items are others). `source` says where the data came from. `levels` holds a difficulty in [0, 1] where the
    data set has one.
    """

    name: str
    benchmark: Benchmark
    abilities: tuple[Ability, ...]
    sheet: AnswerSheet
    source: str
    pool: dict[Ability, tuple[Task, ...]] = {}
    levels: dict[TaskId, float] = {}

    def tasks(self, n: int, seed: int) -> list[Task]:
        """`n` tasks, abilities uniform, items without repeats while there are any left, then reshuffled as
        `item#2`.
        """
        draw = Stream(seed, "workload", self.name, "ability")
        decks = {a: _Deck(self.pool[a], Stream(seed, "workload", self.name, a)) for a in self.abilities}
        return [decks[draw.choice(self.abilities)].deal() for _ in range(n)]

    def difficulty(self, task_id: TaskId) -> float | None:
        """How hard the data set says the item is, 0 to 1; None where it does not say."""
        return self.levels.get(base_id(task_id))


class _Deck:
    """The items of one ability, dealt in shuffled order, round after round."""

    def __init__(self, items: tuple[Task, ...], draw: Stream) -> None:
        self._items, self._draw = items, draw
        self._order: list[int] = []
        self._round = 0

    def deal(self) -> Task:
        if not self._order:
            self._round += 1
            self._order = list(range(len(self._items)))
            self._draw.shuffle(self._order)
        task = self._items[self._order.pop()]
        return task if self._round == 1 else structs.replace(task, id=f"{task.id}#{self._round}")


def repeated(tasks: Iterable[Task]) -> int:
    """How many of `tasks` repeat an earlier item."""
    return sum("#" in t.id for t in tasks)


def pooled(items: Iterable[Item], sheet: AnswerSheet) -> dict[Ability, tuple[Task, ...]]:
    """The tasks of `items` by ability, their gold answers entered into `sheet`."""
    pool: dict[Ability, list[Task]] = {}
    for item in items:
        sheet.add(item.task.id, item.gold)
        pool.setdefault(item.task.ability, []).append(item.task)
    return {ability: tuple(tasks) for ability, tasks in sorted(pool.items())}
