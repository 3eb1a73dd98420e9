"""One event log file as header, frames and indexes, whether it is whole, cut, or still being written."""

from __future__ import annotations

import json
import os
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshheal.errors import TraceError
from meshheal.events import SCHEMA_VERSION
from meshheal.trace.encoding import TEXT_PREFIX, event_head, text_id_of
from meshheal.trace.frames import (
    TRAILER_SIZE,
    FrameEntry,
    Index,
    IndexBuilder,
    decompress,
    last_index,
    next_frame,
    unpack_index,
    unpack_trailer,
)

_KEPT_FRAMES = 16
"""Decompressed frames held, so that neighbouring texts and events are not read again."""
_FOOTER_PREFIX = b'{"kind": "Footer"'


class FrameFile:
    """The frames of a log. Reads the header and the last index at first, all else when asked for."""

    def __init__(self, path: Path) -> None:
        """Raises `TraceError` where the file cannot be read or is no event log."""
        self.path = path
        self.bytes_read = 0
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        try:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise TraceError(f"event log {path}: cannot read: {error.strerror}") from error
        try:
            self._size = os.fstat(self._fd).st_size
            self.header, self._start = self._read_header()
            self.refresh()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def refresh(self) -> None:
        """Take in what was written since the last look."""
        self._size = os.fstat(self._fd).st_size
        trailer = unpack_trailer(self._read(max(0, self._size - TRAILER_SIZE), TRAILER_SIZE))
        place = -1 if trailer is None else trailer
        last = unpack_index(self._read, place)
        if last is None:
            place, last = last_index(self._read, self._size) or (-1, None)
        self._last = last
        self._sections: list[Index] | None = None
        self._tail: Index | None = None
        frame = next_frame(self._read, place, self._size) if last else None
        self.end = frame.offset + frame.length if frame else self._start
        """Where the last whole frame ends that `sections` or `totals` have seen."""
        self.complete: bool = trailer is not None and last is not None and last.footer >= 0
        self.footer = self._read_footer(last.footer) if last and self.complete else None
        if self.complete:
            self.end = self._size

    def totals(self) -> dict[str, int]:
        """Events by kind, without reading more than the frames that no index covers."""
        return self._newest().totals

    def sections(self) -> list[Index]:
        """All indexes from the start of the file on, the last of them made here for frames that none covers
        yet."""
        if self._sections is None:
            tail = self._newest()
            chain = [] if tail is self._last else [tail]
            index = self._last
            while index is not None:
                chain.append(index)
                earlier = unpack_index(self._read, index.previous)
                if earlier is None and index.previous >= 0:
                    return self._rescan()
                index = earlier
            self._sections = chain[::-1]
        return self._sections

    def entries(self) -> Iterator[FrameEntry]:
        """All data frames in order."""
        for index in self.sections():
            yield from index.frames

    def raw(self, entry: FrameEntry) -> bytes:
        """The lines of a data frame. Raises `TraceError` where it is damaged."""
        raw = self._kept.get(entry.offset)
        if raw is None:
            raw = decompress(self._read(entry.offset, entry.length))
            if raw is None or len(raw) != entry.raw:
                raise TraceError(f"event log {self.path} is damaged at byte {entry.offset}")
            self._kept[entry.offset] = raw
            if len(self._kept) > _KEPT_FRAMES:
                self._kept.popitem(last=False)
        return raw

    def _newest(self) -> Index:
        """The last index, or the tail that comes after it."""
        if self._tail is None:
            if self.complete and self._last is not None:
                self._tail = self._last
            else:
                self._tail = self._scan(self.end, self._last.totals if self._last else {})
        return self._tail

    def _rescan(self) -> list[Index]:
        """An index in the middle is damaged: make one of the frames themselves, as far as they are whole."""
        self.complete = False
        self._tail = self._scan(self._start, {})
        self._sections = [self._tail]
        return self._sections

    def _scan(self, offset: int, totals: dict[str, int]) -> Index:
        """An index of the whole frames from `offset` on, made by reading them."""
        builder = IndexBuilder(totals)
        while frame := next_frame(self._read, offset, self._size):
            if frame.sort == "data":
                raw = decompress(self._read(offset, frame.length))
                if raw is None:
                    break
                if not raw.startswith(_FOOTER_PREFIX):
                    self._add(builder, offset, frame.length, raw)
            offset += frame.length
        self.end = offset
        return builder.build(previous=-1)

    def _add(self, builder: IndexBuilder, offset: int, length: int, raw: bytes) -> None:
        lines = raw.splitlines(keepends=True)
        texts = [line for line in lines if line.startswith(TEXT_PREFIX)]
        heads = [event_head(line) for line in lines[len(texts) :]]
        kinds = dict(Counter([head.kind for head in heads]))
        tasks = dict.fromkeys([head.task for head in heads if head.task])
        frame = FrameEntry(offset, length, len(raw), sum(map(len, texts)), kinds)
        builder.add(frame, tasks, [int(text_id_of(line), 16) for line in texts])

    def _read_header(self) -> tuple[dict[str, Any], int]:
        frame = next_frame(self._read, 0, self._size)
        raw = decompress(self._read(0, frame.length)) if frame and frame.sort == "data" else None
        record = _record(raw, "Header")
        if frame is None or record is None:
            raise TraceError(f"{self.path} is no event log, or was cut before its first record")
        schema = record.pop("schema", None)
        if schema != SCHEMA_VERSION:
            raise TraceError(f"event log {self.path} has schema version {schema}; this meshheal reads {SCHEMA_VERSION}")
        return record, frame.length

    def _read_footer(self, offset: int) -> dict[str, Any] | None:
        frame = next_frame(self._read, offset, self._size)
        return _record(decompress(self._read(offset, frame.length)), "Footer") if frame else None

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, offset)
        except OSError as error:
            raise TraceError(f"event log {self.path}: cannot read: {error.strerror}") from error
        self.bytes_read += len(data)
        return data


def _record(raw: bytes | None, kind: str) -> dict[str, Any] | None:
    """A record of the log itself, or None where `raw` holds no record of that kind."""
    try:
        record = json.loads(raw or b"")
    except ValueError:
        return None
    if not isinstance(record, dict) or record.pop("kind", None) != kind:
        return None
    return record
