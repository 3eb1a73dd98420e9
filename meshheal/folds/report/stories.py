"""The stories of tasks, down to prompts and replies, in blocks that a page opens one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from meshheal.errors import TraceError
from meshheal.events import AnyEvent
from meshheal.folds.story import BELIEFS, tell, text_ids
from meshheal.trace.reader import LogFile

_LONGEST = 60_000
"""Characters kept of one text; what a person reads is shorter."""
_AT_ONCE = 4_000
"""Tasks whose events and texts are held at a time: each time takes a pass over the log."""
_BLOCK = 200_000
"""Characters of a block, about: what is unpacked to show one task."""


class Line(Struct, array_like=True):
    """One line of a story: seconds, who, kind of event, what; quotes are (label, number of the text)."""

    at: float
    who: str
    kind: str
    what: str
    belief: bool
    quotes: list[tuple[str, int]]


class Block(Struct):
    """Stories by task id, with the texts they quote, each once."""

    texts: list[str] = field(default_factory=list)
    stories: dict[str, list[Line]] = field(default_factory=dict)


def story(log: LogFile, task: str) -> Block:
    """One task's story by itself. Empty where the log does not name the task."""
    telling = _Telling()
    telling.add(task, log.task(task), lambda id: _text(log, id))
    return telling.block


def blocks(log: LogFile, tasks: Sequence[str]) -> Iterator[Block]:
    """The stories of these tasks, in their order, in blocks of a size to be opened at once."""
    telling = _Telling()
    for start in range(0, len(tasks), _AT_ONCE):
        some = tasks[start : start + _AT_ONCE]
        events = log.tasks_together(some)
        texts = log.texts_together({id for of in events.values() for event in of for id in text_ids(event)})
        for task in some:
            telling.add(task, events[task], lambda id, known=texts: known.get(id, _missing(id)))  # type: ignore[misc]
            if telling.size >= _BLOCK:
                yield telling.block
                telling = _Telling()
    if telling.block.stories:
        yield telling.block


class _Telling:
    """A block being filled."""

    def __init__(self) -> None:
        self.block = Block()
        self.size = 0
        self._numbers: dict[str, int] = {}

    def add(self, task: str, events: Sequence[AnyEvent], text: Callable[[str], str]) -> None:
        lines = []
        for line in tell(events, text):
            quotes = [(label, self._number(quoted)) for label, quoted in line.quotes]
            self.size += 60 + len(line.what)
            lines.append(Line(round(line.at, 2), line.who, line.kind, line.what, line.kind in BELIEFS, quotes))
        if lines:
            self.block.stories[task] = lines

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.block.texts)
            kept = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n[cut here; it has {len(text):,} characters]"
            self.block.texts.append(kept)
            self.size += len(kept)
        return number


def _text(log: LogFile, id: str) -> str:
    try:
        return log.text(id)
    except TraceError:
        return _missing(id)


def _missing(id: str) -> str:
    """A story with a gap is better than none."""
    return f"({id}: not in the log)"
