"""Finding and reading recorded outputs of real models.

Three formats are read: MMLU-Pro `model_outputs_*` zip or JSON files as published; `samples_*.jsonl` logs of
lm-evaluation-harness (the folder names the model); and our own JSONL, one completion a line:

    {"model": "m", "item": "math/17", "purpose": "produce", "text": "...",
     "usage": {"prompt": 80, "completion": 200}, "finish": "stop"}

`item` is a task id. Only `model`, `item` and `text` are required. Several lines of one item are several
samples. A line of purpose `review` says in `of` what it is about: the `text_id` of the answer, or, for a reply by
likelihood, the `prompt_id` of what was asked. `nature` is what the model was when it was recorded. `meshheal export`
writes such files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from meshheal.errors import UsageError
from meshheal.model import PURPOSES, Purpose
from meshheal.types import Task, TaskId
from sim.workloads import files
from sim.workloads.mmlu_pro import published_outputs, task_id
from sim.workloads.sheet import base_id

_PUBLISHED = re.compile(r"model_outputs_(.+?)(?:_\d+shots?)?\.(?:zip|json)\Z")
_SUFFIXES = (".zip", ".json", ".jsonl")
_QUESTION_KEYS = ("question", "problem", "input", "query")
_FIRST = 48
"""Characters of a question that tell most questions of a data set apart; the rest is compared in full."""


class Sample(NamedTuple):
    """One recorded completion. Token counts are None where the recording has none."""

    text: str
    finish: Literal["stop", "length"] = "stop"
    prompt: int | None = None
    completion: int | None = None
    of: str = ""
    nature: Literal["simulated", "recorded", "live"] = "recorded"


Recording = Mapping[TaskId, Mapping[Purpose, tuple[Sample, ...]]]
"""Item -> purpose -> samples, in the order in which they stand in the file."""


def answer_to(held: Mapping[Purpose, tuple[Sample, ...]]) -> tuple[Sample, ...]:
    """What was recorded of a model as an answer to an item's own prompt: as work, else as a probe, which asks the same."""
    return held.get("produce") or held.get("probe") or ()


def answered_in(recording: Recording) -> set[TaskId]:
    """Items that a model answered; others it may only have reviewed, or taken over."""
    return {item for item, held in recording.items() if answer_to(held)}


class _Usage(msgspec.Struct, frozen=True):
    prompt: int | None = None
    completion: int | None = None


class _Line(msgspec.Struct, frozen=True):
    model: str
    item: str
    text: str
    purpose: str = "produce"
    usage: _Usage = _Usage()
    finish: Literal["stop", "length"] = "stop"
    of: str = ""
    nature: Literal["simulated", "recorded", "live"] = "recorded"


class _Harness(msgspec.Struct, frozen=True):
    doc_id: int
    doc: dict[str, Any]
    resps: list[Any]


class _Named(msgspec.Struct, frozen=True):
    model: str
    item: str
    text: str


def known_as(name: str) -> str:
    """The form in which names of models are compared: publishers write 3.1, 3_1 and 3-1, with capitals or
    without.
    """
    return re.sub(r"[._\s]+", "-", name.strip().lower())


def find(data: Path | None) -> dict[str, tuple[Path, ...]]:
    """Model -> its files at `data`: a file, a folder, or a folder of folders (two levels deep). Empty for
    None.
    """
    found: dict[str, list[Path]] = {}
    for path in _candidates(data):
        for model in _models_in(path):
            found.setdefault(model, []).append(path)
    return {model: tuple(paths) for model, paths in sorted(found.items())}


def _candidates(data: Path | None) -> Iterator[Path]:
    if data is None or not data.exists():
        return
    if data.is_file():
        yield data
        return
    for pattern in ("*", "*/*", "*/*/*"):
        yield from sorted(p for p in data.glob(pattern) if p.suffix in _SUFFIXES and p.is_file())


def _models_in(path: Path) -> tuple[str, ...]:
    if published := _PUBLISHED.match(path.name):
        return (published.group(1),)
    if path.suffix == ".jsonl" and path.name.startswith("samples_"):
        return (path.parent.name.rpartition("__")[2],)
    if path.suffix == ".jsonl":
        return _own_models(path, path.stat().st_mtime_ns)
    return ()


@lru_cache(maxsize=256)
def _own_models(path: Path, _changed: int) -> tuple[str, ...]:
    """The models of a file in our own format; none if its first line is in another one."""
    names: dict[str, None] = {}
    with path.open("rb") as lines:
        for line in lines:
            try:
                names.setdefault(msgspec.json.decode(line, type=_Named).model)
            except msgspec.DecodeError:
                if not names:
                    return ()
    return tuple(names)


def read(model: str, paths: Iterable[Path], tasks: Mapping[TaskId, Task]) -> Recording:
    """What `model` said about the items of `tasks`; what it said about others is not kept.

    Raises `UsageError` for a file that is damaged, in another format, or without text.
    """
    wanted = {base_id(t): task for t, task in tasks.items()}
    samples: dict[TaskId, dict[Purpose, list[Sample]]] = {}
    for path in paths:
        for item, purpose, sample in _rows(model, path, wanted):
            samples.setdefault(item, {}).setdefault(purpose, []).append(sample)
    return {item: {p: tuple(s) for p, s in by.items()} for item, by in samples.items()}


def _rows(model: str, path: Path, wanted: Mapping[TaskId, Task]) -> Iterator[tuple[TaskId, Purpose, Sample]]:
    if _PUBLISHED.match(path.name):
        texts = _published_texts(path, path.stat().st_mtime_ns)
        for item in wanted:
            if item in texts:
                yield item, "produce", Sample(texts[item])
    elif path.name.startswith("samples_"):
        yield from _harness(path, wanted)
    else:
        for line in _own_lines(path, path.stat().st_mtime_ns):
            if line.model == model and base_id(line.item) in wanted:
                yield base_id(line.item), _purpose(path, line.purpose), _sample(line)


@lru_cache(maxsize=8)
def _published_texts(path: Path, _changed: int) -> dict[TaskId, str]:
    """Texts of a published file, remembered: the seeds of an experiment read the same files."""
    return {task_id(record.question_id): record.text for record in published_outputs(path)}


@lru_cache(maxsize=8)
def _own_lines(path: Path, _changed: int) -> tuple[_Line, ...]:
    return tuple(files.lines(path, _Line))


@lru_cache(maxsize=8)
def _harness_rows(path: Path, _changed: int) -> tuple[_Harness, ...]:
    return tuple(files.lines(path, _Harness))


def _sample(line: _Line) -> Sample:
    return Sample(line.text, line.finish, line.usage.prompt, line.usage.completion, line.of, line.nature)


def _purpose(path: Path, purpose: str) -> Purpose:
    for known in PURPOSES:
        if purpose == known:
            return known
    raise UsageError(f"data {path}: purpose {purpose!r} is none of {', '.join(PURPOSES)}")


def _harness(path: Path, wanted: Mapping[TaskId, Task]) -> Iterator[tuple[TaskId, Purpose, Sample]]:
    """Rows of lm-evaluation-harness; a document stands there once for each filter, with the same responses."""
    by_opening: dict[str, list[Task]] = {}
    for task in wanted.values():
        by_opening.setdefault(task.messages[-1].content.strip()[:_FIRST], []).append(task)
    seen: set[int] = set()
    for row in _harness_rows(path, path.stat().st_mtime_ns):
        if row.doc_id in seen:
            continue
        seen.add(row.doc_id)
        item = _item_of(row.doc, by_opening, wanted)
        if item is not None:
            for text in _texts(row.resps, path):
                yield item, "produce", Sample(text)


def _item_of(doc: dict[str, Any], by_opening: Mapping[str, list[Task]], wanted: Mapping[TaskId, Task]) -> TaskId | None:
    """The item that a document is: by the question's published number, else by its text."""
    number = doc.get("question_id")
    if isinstance(number, int) and task_id(number) in wanted:
        return task_id(number)
    for key in _QUESTION_KEYS:
        question = doc.get(key)
        if isinstance(question, str) and (question := question.strip()):
            for task in _near(question, by_opening):
                if task.messages[-1].content.strip().startswith(question):
                    return base_id(task.id)
    return None


def _near(question: str, by_opening: Mapping[str, list[Task]]) -> list[Task]:
    """Tasks whose prompt may begin with `question`; a short question is looked for everywhere."""
    if len(question) >= _FIRST:
        return by_opening.get(question[:_FIRST], [])
    return [t for opening, tasks in by_opening.items() if opening.startswith(question) for t in tasks]


def _texts(responses: list[Any], path: Path) -> list[str]:
    """The texts in nested lists of responses (older versions nest them once more than newer ones)."""
    texts: list[str] = []
    for response in responses:
        if isinstance(response, str):
            texts.append(response)
        elif isinstance(response, list) and all(isinstance(r, str) for r in response):
            texts += response
        else:
            files.fail(path, "holds log-likelihoods, no text; give the log of a generative task")
    return texts
