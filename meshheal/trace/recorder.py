"""Writes events: to a log file, or to memory."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import zstandard

from meshheal.errors import InternalError, TraceError
from meshheal.events import SCHEMA_VERSION, Event
from meshheal.model import text_id
from meshheal.trace.encoding import EventHash, Text, encode_events, encode_texts
from meshheal.trace.frames import FrameEntry, IndexBuilder, pack_index, pack_trailer
from meshheal.trace.idset import IdSet

Fold = Callable[[Event], None]
FRAME_BYTES = 1 << 18
"""Decompressed size at which a data frame ends. Larger compresses better; smaller loses less to `kill -9` and
makes one task cheaper to read."""
INDEX_EVERY = 64
"""Data frames between indexes: what a reader of a cut file may have to index itself."""
_EVENT_BYTES = 300
"""Usual length of an event's line; encoding waits for the end of the frame, so sizes are guessed until
then."""
_BATCH = 512


class Recorder:
    """One event log file being written.

    Events and texts are encoded and compressed a frame at a time, so `write` costs little; `flush` ends the
    frame early. As a context manager it ends with `close` after success and with `abort` after an exception.
    """

    def __init__(self, path: Path, header: dict[str, Any], *, level: int = 1, frame_bytes: int = FRAME_BYTES) -> None:
        """`header` says what the log is of (experiment, method, seed, arm), as JSON values.

        `level` is zstd's: higher makes smaller files and slower runs. Raises `TraceError` where the file
        exists or cannot be written.
        """
        self._path = path
        self._frame_bytes = frame_bytes
        self._compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
        self._events: list[Event] = []
        self._texts: list[Text] = []
        self._text_ids: list[int] = []
        self._size = 0
        self._seen = IdSet()
        self._recent: dict[str, str] = {}  # ids of this frame's texts: most are asked for again at once
        self._folds: list[Fold] = []
        self._hash = EventHash()
        self._builder = IndexBuilder()
        self._index = -1
        self._offset = 0
        first = _record("Header", {"schema": SCHEMA_VERSION, **header}, self._compressor)
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError as error:
            raise TraceError(f"event log {path} exists already: resume the run, or choose another directory") from error
        except OSError as error:
            raise self._trouble(error) from error
        self._append(first)

    def write(self, event: Event) -> None:
        """Append an event, and show it to the folds. Raises `TraceError` where the disk is full."""
        self._events.append(event)
        self._size += _EVENT_BYTES
        if self._size >= self._frame_bytes:
            self._end_frame()
        for fold in self._folds:
            fold(event)

    def text(self, text: str) -> str:
        """The text's id; the text itself is recorded the first time it is seen."""
        id = self._recent.get(text)
        if id is None:
            id = self._recent[text] = text_id(text)
            number = int(id, 16)
            if self._seen.add(number):
                self._texts.append(Text(id, text))
                self._text_ids.append(number)
                self._size += len(text)
        return id

    def subscribe(self, fold: Fold) -> None:
        """Have `fold` called with every event from now on, after it was taken up."""
        self._folds.append(fold)

    @property
    def event_hash(self) -> str:
        """Hash of all events so far, in hex: equal for equal events whatever the texts, the wall clock and
        the frames."""
        return self._hash.hexdigest(self._events)

    def flush(self) -> None:
        """Hand everything so far to the operating system: it survives `kill -9`."""
        self._end_frame()

    def close(self, **footer: Any) -> str:
        """End a finished log, with `footer` in its last record; return the event hash. Closing again does
        nothing."""
        if self._fd >= 0:
            self._end_frame()
            place = self._offset
            totals = self._builder.totals
            last = {
                **footer,
                "counts": totals,
                "events": sum(totals.values()),
                "hash": self.event_hash,
                "complete": True,
            }
            self._append(_record("Footer", last, self._compressor))
            self._append_index(footer=place)
            self._append(pack_trailer(self._index))
            self._release()
        return self.event_hash

    def abort(self) -> None:
        """Close the file of a run that did not finish: readable, but not complete."""
        if self._fd >= 0:
            try:
                self._end_frame()
                if len(self._builder):
                    self._append_index()
            finally:
                if self._fd >= 0:
                    self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with suppress(TraceError):  # the error under way says more, and is often this one
            self.abort()

    def _end_frame(self) -> None:
        if not self._events and not self._texts:
            return
        events, texts, ids = self._events, self._texts, self._text_ids
        self._events, self._texts, self._text_ids, self._recent, self._size = [], [], [], {}, 0
        try:
            head, lines = encode_texts(texts), encode_events(events)
        except InternalError:
            self._release()  # with a frame missing the log must not come to be complete
            raise
        self._hash.update(events, lines)
        data = self._compressor.compress(head + lines)
        kinds = {kind.__name__: n for kind, n in Counter(map(type, events)).items()}
        frame = FrameEntry(self._offset, len(data), len(head) + len(lines), len(head), kinds)
        self._append(data)
        self._builder.add(frame, dict.fromkeys([event.task for event in events if event.task]), ids)
        if len(self._builder) >= INDEX_EVERY:
            self._append_index()

    def _append_index(self, footer: int = -1) -> None:
        place = self._offset
        self._append(pack_index(self._builder.build(self._index, footer), place))
        self._index = place
        self._builder = IndexBuilder(self._builder.totals)

    def _append(self, data: bytes) -> None:
        """Write all of `data`, or leave the file as it was before and close it."""
        if self._fd < 0:
            raise TraceError(f"event log {self._path} is closed")
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._take_back()
            self._release()
            raise self._trouble(error) from error
        self._offset += len(data)

    def _take_back(self) -> None:
        with suppress(OSError):  # a reader stops at the last whole frame anyway
            os.ftruncate(self._fd, self._offset)

    def _release(self) -> None:
        os.close(self._fd)
        self._fd = -1

    def _trouble(self, error: OSError) -> TraceError:
        why = error.strerror or str(error)
        return TraceError(
            f"event log {self._path}: cannot write: {why}. Make room, or choose a directory that "
            "can be written; what is in the log so far stays readable"
        )


def _record(kind: str, content: dict[str, Any], compressor: zstandard.ZstdCompressor) -> bytes:
    """A frame with a single record of the log itself."""
    line = json.dumps({"kind": kind, **msgspec.to_builtins(content)}) + "\n"
    return compressor.compress(line.encode())


class MemoryLog:
    """A log without a file, for runs that keep no directory and for tests: what `Recorder` has, plus what it
    took.

    With `keep=False` neither events nor texts are held: only the hash is, and the folds see everything.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.events: list[Event] = []
        self.texts: dict[str, str] = {}
        """By id."""
        self._keep = keep
        self._folds: list[Fold] = []
        self._hash = EventHash()
        self._pending: list[Event] = []

    def write(self, event: Event) -> None:
        if self._keep:
            self.events.append(event)
        self._pending.append(event)
        if len(self._pending) >= _BATCH:
            self.flush()
        for fold in self._folds:
            fold(event)

    def text(self, text: str) -> str:
        id = text_id(text)
        if self._keep:
            self.texts.setdefault(id, text)
        return id

    def subscribe(self, fold: Fold) -> None:
        self._folds.append(fold)

    @property
    def event_hash(self) -> str:
        return self._hash.hexdigest(self._pending)

    def flush(self) -> None:
        self._hash.update(self._pending, encode_events(self._pending))
        self._pending = []

    def close(self, **footer: Any) -> str:  # noqa: ARG002
        return self.event_hash

    def abort(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
