"""Questions to an event log file: its events, one task, a text, the calls of models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from meshheal.errors import TraceError
from meshheal.events import AnyEvent, ModelCalled, TaskArrived
from meshheal.trace.encoding import (
    HAS_WALL,
    TEXT_PREFIX,
    decode_lines,
    decode_text,
    encode_for_hash,
    kind_prefix,
    task_needles,
    text_id_of,
    text_prefix,
)
from meshheal.trace.file import FrameFile
from meshheal.trace.frames import FrameEntry, task_bytes

_CALLS_AND_ARRIVALS = ("ModelCalled", "TaskArrived")
_CALL_STARTS = (*(kind_prefix(kind) for kind in _CALLS_AND_ARRIVALS), kind_prefix("Escaped"))


Position = int
"""Where a call stands in a log: the number of its frame and, in the lower half, the offset of its line in
that."""
_LINE_BITS = 32


class LogFile:
    """An event log, read on demand: opening takes the header and the last index, one task only its own
    frames.

    A file without its end (`kill -9`, or a run still going on) is read to its last whole frame, and
    `complete` is False. What was appended after opening is seen after `refresh()`.
    """

    def __init__(self, path: Path) -> None:
        """Raises `TraceError` where the file cannot be read or is no event log."""
        self.path = path
        self._file = FrameFile(path)
        self._near = 0
        self._last_text: dict[int, int] = {}
        self._entries: list[FrameEntry] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def refresh(self) -> None:
        """Take in what was written since the last look."""
        self._file.refresh()
        self._entries = None

    @property
    def header(self) -> dict[str, Any]:
        """What the run said at its start."""
        return self._file.header

    @property
    def complete(self) -> bool:
        """Whether the run ended this log itself."""
        return self._file.complete

    @property
    def footer(self) -> dict[str, Any] | None:
        """What the run said at its end, with `counts`, `events` and `hash`; None while it has not ended."""
        return self._file.footer

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the file so far."""
        return self._file.bytes_read

    def whole_bytes(self) -> int:
        """Length of the file up to the end of its last whole frame."""
        self._file.totals()
        return self._file.end

    def counts(self) -> dict[str, int]:
        """Events by kind; of a whole file, from its last index alone."""
        return dict(self._file.totals())

    def __len__(self) -> int:
        """Number of events."""
        return sum(self._file.totals().values())

    def tasks(self) -> list[str]:
        """Ids of all tasks that events name, in the order in which they first do; from indexes alone."""
        ids = dict.fromkeys(task for index in self._file.sections() for task in index.tasks)
        return [id.decode("utf-8", "surrogatepass") for id in ids]

    def events(self, *kinds: str) -> Iterator[AnyEvent]:
        """All events in the order written, or those of some kinds (class names)."""
        wanted = frozenset(kinds)
        for entry in self._file.entries():
            if not wanted:
                yield from self._decode(self._file.raw(entry)[entry.split :])
            elif not wanted.isdisjoint(entry.kinds):
                yield from self._of_kinds(entry, wanted)

    def frames(self) -> int:
        """Number of whole frames: a reader that has taken in so many goes on with `frame` from there."""
        return len(self._frames())

    def frame(self, number: int) -> list[AnyEvent]:
        """The events of one frame, in the order written; frames are numbered from 0."""
        entry = self._frames()[number]
        return self._decode(self._file.raw(entry)[entry.split :])

    def _frames(self) -> list[FrameEntry]:
        if self._entries is None:
            self._entries = list(self._file.entries())
        return self._entries

    def task(self, task: str) -> list[AnyEvent]:
        """The events of one task in the order written; only frames that hold any are read."""
        key, needles = task_bytes(task), task_needles(task)
        found: list[AnyEvent] = []
        for index in self._file.sections():
            for entry in index.frames_of_task(key):
                lines = self._file.raw(entry)[entry.split :].splitlines(keepends=True)
                some = b"".join([line for line in lines if any(needle in line for needle in needles)])
                found += [event for event in self._decode(some) if event.task == task]
        return found

    def tasks_together(self, tasks: Collection[str]) -> dict[str, list[AnyEvent]]:
        """What `task` gives, for many tasks in one pass over the log."""
        found: dict[str, list[AnyEvent]] = {task: [] for task in tasks}
        for event in self.events():
            if event.task in found:
                found[event.task].append(event)
        return found

    def texts_together(self, ids: Iterable[str]) -> dict[str, str]:
        """Texts by their ids, as far as the log holds them; each frame is read once."""
        frames: dict[int, tuple[FrameEntry, list[bytes]]] = {}
        sections = self._file.sections()
        for id in ids:
            number = int(id, 16)
            for section in sections:
                entry = section.frame_of_text(number)
                if entry is not None:
                    frames.setdefault(entry.offset, (entry, []))[1].append(id.encode())
                    break
        texts: dict[str, str] = {}
        for _, (entry, wanted) in sorted(frames.items()):
            lines = self._file.raw(entry)[: entry.split].splitlines()
            by_id = {text_id_of(line).encode(): line for line in lines if line.startswith(TEXT_PREFIX)}
            texts |= {id.decode(): decode_text(by_id[id]) for id in wanted if id in by_id}
        return texts

    def text(self, id: str) -> str:
        """A text by its id. Raises `TraceError` where the log does not hold it."""
        number = int(id, 16)
        sections = self._file.sections()
        # Texts asked for one after another mostly stand one after another.
        for i in [min(self._near, len(sections) - 1), *range(len(sections))]:
            entry = sections[i].frame_of_text(number)
            if entry is not None:
                raw = self._file.raw(entry)
                prefix = text_prefix(id)
                start = raw.find(prefix, self._last_text.get(entry.offset, 0), entry.split)
                if start < 0:
                    start = raw.find(prefix, 0, entry.split)
                if start < 0:
                    continue
                self._near, self._last_text = i, {entry.offset: start}
                return decode_text(raw[start : raw.index(b"\n", start)])
        raise TraceError(f"event log {self.path} holds no text {id}")

    def calls(self, until: int | None = None) -> Iterator[tuple[Position, ModelCalled]]:
        """The model calls in the order written, with positions for `call_at`.

        With `until`, those before the arrival that comes after the one of that index.
        """
        for number, entry in enumerate(self._file.entries()):
            if entry.kinds.keys().isdisjoint(_CALLS_AND_ARRIVALS):
                continue
            at = entry.split
            for line in self._file.raw(entry)[at:].splitlines(keepends=True):
                if line.startswith(_CALL_STARTS):
                    [event] = self._decode(line)
                    if isinstance(event, ModelCalled):
                        yield number << _LINE_BITS | at, event
                    elif isinstance(event, TaskArrived) and until is not None and event.index > until:
                        return
                at += len(line)

    def call_at(self, position: Position) -> ModelCalled:
        """The model call at a position that `calls` gave."""
        raw = self._file.raw(self._frames()[position >> _LINE_BITS])
        start = position & ((1 << _LINE_BITS) - 1)
        [event] = self._decode(raw[start : raw.index(b"\n", start) + 1])
        assert isinstance(event, ModelCalled)
        return event

    def event_hash(self) -> str:
        """The hash of the events, computed anew from what is in the file: see `Recorder.event_hash`."""
        hash = blake2b(digest_size=16)
        for entry in self._file.entries():
            lines = self._file.raw(entry)[entry.split :]
            hash.update(encode_for_hash(self._decode(lines)) if HAS_WALL in lines else lines)
        return hash.hexdigest()

    def _of_kinds(self, entry: FrameEntry, wanted: frozenset[str]) -> list[AnyEvent]:
        starts = tuple(kind_prefix(kind) for kind in (*wanted, "Escaped"))
        lines = self._file.raw(entry)[entry.split :].splitlines(keepends=True)
        some = b"".join([line for line in lines if line.startswith(starts)])
        return [event for event in self._decode(some) if type(event).__name__ in wanted]

    def _decode(self, lines: bytes) -> list[AnyEvent]:
        try:
            return decode_lines(lines)
        except TraceError as error:
            raise TraceError(f"event log {self.path}: {error}") from error
