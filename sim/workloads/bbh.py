"""BIG-Bench Hard: 27 files. Abilities are three groups of files; a task's kind is its file.

Data: the folder of `<file>.json` with `examples[].input/target`. An item whose target is not of its file's
form (a movie title where a letter belongs) is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from meshheal.answers import instruction
from meshheal.answers.plain import number_text, text_form
from meshheal.errors import UsageError
from meshheal.types import AnswerForm, Message, Task
from sim.workloads import files
from sim.workloads.sheet import AnswerSheet, Item, Workload, pooled

REPOSITORY = "lukaemon/bbh"

GROUPS: dict[str, tuple[str, ...]] = {
    "algorithmic": (
        "boolean_expressions", "dyck_languages", "geometric_shapes", "multistep_arithmetic_two", "navigate",
        "object_counting",
        "tracking_shuffled_objects_five_objects", "tracking_shuffled_objects_seven_objects",
        "tracking_shuffled_objects_three_objects", "word_sorting",
    ),
    "language": (
        "causal_judgement", "disambiguation_qa", "hyperbaton", "movie_recommendation", "ruin_names",
        "salient_translation_error_detection", "snarks", "sports_understanding",
    ),
    "logic": (
        "date_understanding", "formal_fallacies", "logical_deduction_five_objects",
        "logical_deduction_seven_objects", "logical_deduction_three_objects", "penguins_in_a_table",
        "reasoning_about_colored_objects", "temporal_sequences", "web_of_lies",
    ),
}  # fmt: skip
"""Ability -> its files. 2500, 1865 and 2146 items."""
_ABILITY = {name: ability for ability, names in GROUPS.items() for name in names}

_YES_NO = AnswerForm("text", ("Yes", "No"))
FORMS: dict[str, AnswerForm] = {
    "boolean_expressions": AnswerForm("text", ("True", "False")),
    "causal_judgement": _YES_NO,
    "dyck_languages": AnswerForm("text"),
    "formal_fallacies": AnswerForm("text", ("valid", "invalid")),
    "multistep_arithmetic_two": AnswerForm("number"),
    "navigate": _YES_NO,
    "object_counting": AnswerForm("number"),
    "sports_understanding": AnswerForm("text", ("yes", "no")),
    "web_of_lies": _YES_NO,
    "word_sorting": AnswerForm("text"),
}
"""The form of a file's answers; all other files ask for one of the letters that the item lists."""
_LISTED = re.compile(r"^\(([A-Z])\)", re.MULTILINE)


class _Example(Struct, frozen=True):
    input: str
    target: str


class _File(Struct, frozen=True):
    examples: list[_Example]


def load(data: Path | None, download: bool = True) -> Workload:
    """The workload from the folder of files (or one of them), or from the hub.

    Raises `UsageError` for a folder without them, and for a file that is empty, cut off or of another format.
    """
    if data is None:
        folder, source = files.from_hub("bbh", REPOSITORY, ["*.parquet", "*.json"], download)
        found = {}
        for path in files.hub_files(folder, REPOSITORY):
            name = next((n for n in _ABILITY if n in path.relative_to(folder).as_posix()), None)
            if name:
                found[name] = files.table(path, _Example)
    else:
        paths = _files(data)
        source = f"{data.name}, {len(paths)} files"
        found = {p.stem: files.parse(files.content(p), _File, p).examples for p in paths}
    sheet = AnswerSheet()
    pool = pooled((item for name in sorted(found) for item in _items(name, found[name])), sheet)
    total = sum(len(examples) for examples in found.values())
    if not pool:
        raise UsageError(f"workload bbh: no usable item in {source}; give the folder of BBH's JSON files with --data")
    return Workload(
        name="bbh",
        benchmark="BBH",
        abilities=tuple(pool),
        sheet=sheet,
        source=f"{source}; {total} items, {total - len(sheet)} with a target of another form dropped",
        pool=pool,
    )


def _files(data: Path) -> list[Path]:
    if not data.is_dir():
        if data.stem not in _ABILITY:
            files.fail(data, "is not one of BBH's 27 files; give the folder that holds them")
        return [data]
    found = sorted(p for p in data.glob("*.json") if p.stem in _ABILITY)
    if not found:
        files.fail(data, "holds none of BBH's 27 JSON files; give the folder that does")
    return found


def _items(name: str, examples: list[_Example]) -> Iterator[Item]:
    for number, example in enumerate(examples):
        form = FORMS.get(name) or AnswerForm("choice", tuple(dict.fromkeys(_LISTED.findall(example.input))))
        gold = _gold(form, example.target)
        if gold is None:
            continue
        message = Message("user", f"{example.input}\n{instruction(form)}")
        yield Item(Task(f"bbh/{name}/{number}", (message,), form, _ABILITY[name], name), gold)


def _gold(form: AnswerForm, target: str) -> str | None:
    target = target.strip()
    if form.kind == "choice":
        letter = target.strip("()")
        return letter if len(form.options) > 1 and letter in form.options and target != letter else None
    if form.kind == "number":
        return number_text(target)
    if form.options:
        return target if target in form.options else None
    return text_form(target) or None
