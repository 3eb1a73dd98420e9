"""MATH: competition problems with LaTeX answers. Abilities are three groups of its seven types; a task's kind
is its level.

Data: `test.jsonl` with problem, level, type, solution; the gold answer is the last box of the solution.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from meshheal.answers import instruction, read
from meshheal.errors import UsageError
from meshheal.types import AnswerForm, Message, Task
from sim.workloads import files
from sim.workloads.sheet import AnswerSheet, Item, Workload, pooled

FORM = AnswerForm("math")
REPOSITORY = "HuggingFaceH4/MATH-500"

GROUPS: dict[str, tuple[str, ...]] = {
    "algebra": ("Algebra", "Intermediate Algebra"),
    "numbers": ("Prealgebra", "Number Theory", "Counting & Probability"),
    "space": ("Geometry", "Precalculus"),
}
"""Ability -> its types. 2090, 1885 and 1025 of the 5,000 problems."""
_ABILITY = {kind: ability for ability, kinds in GROUPS.items() for kind in kinds}


class _Row(Struct, frozen=True):
    problem: str
    solution: str
    level: str | int
    type: str | None = None
    subject: str | None = None
    """What the 500-problem subset calls the type."""


def load(data: Path | None, download: bool = True) -> Workload:
    """The workload from a file (or the folder that holds `test.jsonl`), or from the hub.

    Raises `UsageError` for a file that is missing, empty, cut off or of another format.
    """
    if data is None:
        folder, source = files.from_hub("math", REPOSITORY, ["test.jsonl"], download)
        path = files.hub_files(folder, REPOSITORY)[0]
    else:
        path = data / "test.jsonl" if data.is_dir() else data
        source = path.name
    rows = files.table(path, _Row)
    sheet = AnswerSheet()
    levels: dict[str, float] = {}
    pool = pooled(_items(rows, path, levels), sheet)
    if not pool:
        files.fail(path, "holds no problem with a boxed answer; give MATH's test.jsonl")
    return Workload(
        name="math",
        benchmark="MATH",
        abilities=tuple(pool),
        sheet=sheet,
        source=f"{source}; {len(rows)} problems, {len(rows) - len(sheet)} without a boxed answer dropped",
        pool=pool,
        levels=levels,
    )


def _items(rows: list[_Row], path: Path, levels: dict[str, float]) -> Iterator[Item]:
    for number, row in enumerate(rows):
        kind = row.type or row.subject or ""
        if kind not in _ABILITY:
            files.fail(path, f"line {number + 1}: unknown type {kind!r}; give MATH's test.jsonl")
        gold = read(FORM, row.solution)
        if gold is None:
            continue
        digit = str(row.level).removeprefix("Level ").strip()
        if digit not in ("1", "2", "3", "4", "5"):
            raise UsageError(f"data {path}: line {number + 1}: level {row.level!r} is none of Level 1 to Level 5")
        task_id = f"math/{number}"
        levels[task_id] = (int(digit) - 1) / 4
        message = Message("user", f"{row.problem}\n{instruction(FORM)}")
        yield Item(Task(task_id, (message,), FORM, _ABILITY[kind], f"Level {digit}"), gold)
