"""MMLU-Pro: questions with up to ten options in 14 categories, and the outputs that were published for real
models.

Abilities are four groups of categories; a task's kind is its category. Data: one `model_outputs_*` zip or
JSON file as published, or a folder of them. Items whose gold letter differs between files are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from meshheal.answers import instruction
from meshheal.errors import UsageError
from meshheal.types import AnswerForm, Message, Task
from sim.workloads import files
from sim.workloads.sheet import AnswerSheet, Item, Workload, pooled

LETTERS = "ABCDEFGHIJ"
REPOSITORY = "TIGER-Lab/MMLU-Pro"

GROUPS: dict[str, tuple[str, ...]] = {
    "exact": ("math", "physics", "computer science"),
    "applied": ("chemistry", "engineering", "business"),
    "life": ("biology", "health", "psychology"),
    "society": ("law", "economics", "history", "philosophy", "other"),
}
"""Ability -> its categories. 3060, 2890, 2333 and 3749 questions of the published 12,032."""
_ABILITY = {category: ability for ability, categories in GROUPS.items() for category in categories}


class Published(Struct, frozen=True):
    """One model's published output on one question. `pred` is the letter that its publisher read, if any."""

    question_id: int
    question: str
    options: tuple[str, ...]
    answer: str
    category: str
    text: str
    pred: str | None


class _Row(Struct, frozen=True):
    """A row as published; the text's key differs between files."""

    question_id: int | str
    question: str
    options: list[str]
    answer: str
    category: str
    pred: str | None = None
    generated_text: str | None = None
    model_outputs: str | list[str] | None = None


def published_outputs(path: Path) -> Iterator[Published]:
    """The records of a `model_outputs_*` zip or JSON file.

    Raises `UsageError` for a file that is missing, empty, cut off or of another format.
    """
    rows: list[_Row] = files.parse(files.content(path), list[_Row], path)
    if not rows:
        files.fail(path, "holds no records")
    for row in rows:
        output = row.generated_text if row.generated_text is not None else row.model_outputs
        text = "\n".join(output) if isinstance(output, list) else output or ""
        yield Published(
            int(row.question_id),
            row.question,
            tuple(row.options),
            row.answer.strip(),
            row.category.strip().lower(),
            text,
            row.pred,
        )


def output_files(path: Path) -> list[Path]:
    """The published files at `path`: itself, or the `model_outputs_*` (else all) zip and JSON files of a
    folder.
    """
    if not path.is_dir():
        return [path]
    every = sorted(p for p in path.iterdir() if p.suffix in (".zip", ".json"))
    found = [p for p in every if p.name.startswith("model_outputs")] or every
    if not found:
        files.fail(path, "holds no model_outputs_*.zip or .json file; give the folder that does")
    return found


def conflicts(records: Iterable[Published]) -> set[int]:
    """Ids of the questions whose gold letter is not the same in all `records`."""
    golds: dict[int, str] = {}
    return {r.question_id for r in records if golds.setdefault(r.question_id, r.answer) != r.answer}


def drop_conflicts(records: Iterable[Published]) -> list[Published]:
    """`records` without those of questions whose gold letter differs among them, and of questions that cannot
    be asked.

    A question cannot be asked if it has fewer than two options, or its gold letter is none of them.
    """
    kept = list(records)
    dropped = conflicts(kept)
    return [r for r in kept if r.question_id not in dropped and _askable(r)]


def _askable(record: Published) -> bool:
    n = len(record.options)
    return 2 <= n <= len(LETTERS) and record.answer in tuple(LETTERS[:n])


def form_of(options: tuple[str, ...]) -> AnswerForm:
    """The form of an answer to a question with these options."""
    return AnswerForm("choice", tuple(LETTERS[: len(options)]))


def task_id(question_id: int) -> str:
    """The id of the task that asks a question."""
    return f"mmlu_pro/{question_id}"


def item(record: Published) -> Item:
    """A question as a task, with its gold letter; raises `UsageError` for a category that is in no group."""
    ability = _ABILITY.get(record.category)
    if ability is None:
        raise UsageError(f"workload mmlu_pro: unknown category {record.category!r} (question {record.question_id})")
    form = form_of(record.options)
    listed = "\n".join(f"({letter}) {option}" for letter, option in zip(LETTERS, record.options, strict=False))
    prompt = f"{record.question}\nOptions:\n{listed}\n{instruction(form)}"
    task = Task(task_id(record.question_id), (Message("user", prompt),), form, ability, record.category)
    return Item(task, record.answer)


def load(data: Path | None, download: bool = True) -> Workload:
    """The workload from a published file, a folder of them (the questions common to all), or the hub.

    Raises `UsageError` as `published_outputs` does.
    """
    if data is None:
        folder, source = files.from_hub("mmlu_pro", REPOSITORY, ["data/test-*.parquet"], download)
        rows = [row for path in files.hub_files(folder, REPOSITORY) for row in files.table(path, _Row)]
        records = [
            Published(int(r.question_id), r.question, tuple(r.options), r.answer, r.category.lower(), "", None)
            for r in rows
        ]
        common = {r.question_id for r in records}
    else:
        paths = output_files(data)
        by_file = [list(published_outputs(path)) for path in paths]
        records = [r for file in by_file for r in file]
        common = set[int].intersection(*({r.question_id for r in file} for file in by_file))
        source = ", ".join(p.name for p in paths)
    kept = drop_conflicts(records)
    first = {r.question_id: r for r in reversed(kept) if r.question_id in common}
    every = {r.question_id for r in records}
    sheet = AnswerSheet()
    pool = pooled((item(first[i]) for i in sorted(first)), sheet)
    if not pool:
        raise UsageError(f"workload mmlu_pro: no usable question in {source}")
    return Workload(
        name="mmlu_pro",
        benchmark="MMLU-Pro",
        abilities=tuple(pool),
        sheet=sheet,
        source=f"{source}; {len(every) - len(first)} of {len(every)} questions dropped "
        "(gold differs between files, not in every file, or not askable)",
        pool=pool,
    )
