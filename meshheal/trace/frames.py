"""The bytes of an event log file: independent zstd frames, with indexes and a trailer in skippable frames
between them.

    header frame | data frame ... data frame | index | data frame ... | footer frame | last index | trailer

Data frames hold JSON lines, text records before event records. Indexes and the trailer are zstd *skippable*
frames, so that `zstd -dc` of a log gives JSON lines and nothing else. An index describes the data frames
since the one before it and holds that one's offset. Frame layout: RFC 8878, sections 3.1.1 (frames, blocks)
and 3.1.2 (skippable frames).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec
import zstandard
from msgspec import Struct

_ZSTD_MAGIC = 0xFD2FB528
_INDEX_MAGIC = 0x184D2A55
_TRAILER_MAGIC = 0x184D2A56
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_INDEX_SIGN = b"mhindex1"
_TRAILER_SIGN = b"mhtrail1"
_INDEX_HEAD = struct.Struct("<II8sQ8s")
_TRAILER = struct.Struct("<II8sQ8s")
TRAILER_SIZE = _TRAILER.size
LARGEST_FRAME = 1 << 31
"""Decompressed bytes that a frame may claim to hold; more is damage, not data."""

Read = Callable[[int, int], bytes]
"""(offset, length) -> that many bytes, fewer at the end of the file."""


class FrameEntry(Struct, frozen=True, array_like=True, gc=False):
    """Where a data frame lies and what is in it. Offsets and lengths in bytes."""

    offset: int
    length: int
    """Compressed."""
    raw: int
    """Decompressed."""
    split: int
    """Length of the text records, which come before the events."""
    kinds: dict[str, int]
    """Events by kind."""


class Index(Struct, frozen=True, array_like=True):
    """The data frames since the index before. Frames are numbered within the index."""

    previous: int
    """Offset of the index before, -1 in the first."""
    footer: int
    """Offset of the footer frame, -1 while there is none."""
    frames: list[FrameEntry]
    totals: dict[str, int]
    """Events by kind from the start of the file."""
    tasks: list[bytes]
    task_frames: list[list[int]]
    """For each of `tasks` the frames with its events."""
    texts: bytes
    """Ids of the texts, sorted, 8 bytes each."""
    text_frames: bytes
    """For each of `texts` its frame, 2 bytes each."""

    def frames_of_task(self, task: bytes) -> list[FrameEntry]:
        try:
            numbers = self.task_frames[self.tasks.index(task)]
        except ValueError:
            return []
        return [self.frames[i] for i in numbers]

    def frame_of_text(self, text: int) -> FrameEntry | None:
        ids = memoryview(self.texts).cast("Q")
        i = bisect_left(ids, text)
        if i == len(ids) or ids[i] != text:
            return None
        return self.frames[memoryview(self.text_frames).cast("H")[i]]


class IndexBuilder:
    """Collects what an `Index` says, one data frame at a time. Memory grows with the frames since the last
    index only."""

    def __init__(self, totals: dict[str, int] | None = None) -> None:
        self.totals: dict[str, int] = dict(totals or {})
        self._frames: list[FrameEntry] = []
        self._tasks: dict[bytes, list[int]] = {}
        self._texts: list[int] = []  # id and frame in one number, which sorts faster than a pair

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: FrameEntry, tasks: Iterable[str], texts: Iterable[int]) -> None:
        """One data frame, the tasks of its events, the ids of its texts."""
        number = len(self._frames)
        self._frames.append(frame)
        for kind, n in frame.kinds.items():
            self.totals[kind] = self.totals.get(kind, 0) + n
        for task in tasks:
            self._tasks.setdefault(task_bytes(task), []).append(number)
        self._texts += [text << 16 | number for text in texts]

    def build(self, previous: int, footer: int = -1) -> Index:
        self._texts.sort()
        return Index(
            previous=previous,
            footer=footer,
            frames=self._frames,
            totals=dict(self.totals),
            tasks=list(self._tasks),
            task_frames=list(self._tasks.values()),
            texts=array("Q", [text >> 16 for text in self._texts]).tobytes(),
            text_frames=array("H", [text & 0xFFFF for text in self._texts]).tobytes(),
        )


def task_bytes(task: str) -> bytes:
    """A task id as the index holds it; also ids that UTF-8 refuses."""
    return task.encode("utf-8", "surrogatepass")


def _checksum(offset: int, body: bytes) -> bytes:
    return blake2b(body, digest_size=8, key=offset.to_bytes(8, "little")).digest()


def pack_index(index: Index, offset: int) -> bytes:
    """The index as a skippable frame that knows its own offset, so that no copy of it elsewhere is mistaken
    for it."""
    body = zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(index))
    length = _INDEX_HEAD.size - 8 + len(body)
    return _INDEX_HEAD.pack(_INDEX_MAGIC, length, _INDEX_SIGN, offset, _checksum(offset, body)) + body


def unpack_index(read: Read, offset: int) -> Index | None:
    """The index at `offset`, or None where there is no whole and sound one."""
    head = read(offset, _INDEX_HEAD.size) if offset >= 0 else b""
    if len(head) < _INDEX_HEAD.size:
        return None
    magic, length, sign, own, checksum = _INDEX_HEAD.unpack(head)
    if magic != _INDEX_MAGIC or sign != _INDEX_SIGN or own != offset:
        return None
    body = read(offset + _INDEX_HEAD.size, length + 8 - _INDEX_HEAD.size)
    if _checksum(offset, body) != checksum:
        return None
    return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(body), type=Index)


def pack_trailer(index: int) -> bytes:
    """The last bytes of a complete file: where its last index is."""
    place = index.to_bytes(8, "little")
    return _TRAILER.pack(_TRAILER_MAGIC, _TRAILER.size - 8, _TRAILER_SIGN, index, _checksum(index, place))


def unpack_trailer(data: bytes) -> int | None:
    """Offset of the last index, or None where `data` is no trailer."""
    if len(data) != _TRAILER.size:
        return None
    magic, _, sign, index, checksum = _TRAILER.unpack(data)
    sound = magic == _TRAILER_MAGIC and sign == _TRAILER_SIGN
    return index if sound and checksum == _checksum(index, index.to_bytes(8, "little")) else None


def last_index(read: Read, size: int, chunk: int = 1 << 18) -> tuple[int, Index] | None:
    """The last whole index of a file without a trailer, looked for backwards from its end."""
    end = size
    while end > 0:
        start = max(0, end - chunk)
        # Overlap by a signature, so that one across the border is seen.
        data = read(start, end - start + len(_INDEX_SIGN))
        at = data.rfind(_INDEX_SIGN)
        while at >= 0:
            index = unpack_index(read, start + at - 8)
            if index is not None:
                return start + at - 8, index
            at = data.rfind(_INDEX_SIGN, 0, at + len(_INDEX_SIGN) - 1)
        end = start
    return None


class Frame(NamedTuple):
    """A whole frame of any sort in a file."""

    sort: Literal["data", "index", "other"]
    offset: int
    length: int


def next_frame(read: Read, offset: int, size: int) -> Frame | None:
    """The frame that starts at `offset`; None where it is not whole, or is none."""
    head = read(offset, 18)
    if len(head) < 8:
        return None
    magic, length = struct.unpack_from("<II", head)
    if magic in _SKIPPABLE:
        if offset + 8 + length > size:
            return None
        return Frame("index" if magic == _INDEX_MAGIC else "other", offset, 8 + length)
    if magic != _ZSTD_MAGIC:
        return None
    try:
        at = offset + zstandard.frame_header_size(head)
        checksum = zstandard.get_frame_parameters(head).has_checksum
    except zstandard.ZstdError:
        return None
    last = False
    while not last:
        block = int.from_bytes(read(at, 3).ljust(3, b"\0"), "little")
        last = bool(block & 1)
        # A run-length block (type 1) has one byte whatever its size says; type 3 does not exist.
        if block >> 1 & 3 == 3 or at + 3 > size:
            return None
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    at += 4 if checksum else 0
    return Frame("data", offset, at - offset) if at <= size else None


def decompress(data: bytes) -> bytes | None:
    """What a data frame holds, or None where it is damaged."""
    try:
        if zstandard.frame_content_size(data) > LARGEST_FRAME:
            return None
        return zstandard.ZstdDecompressor().decompress(data)
    except (zstandard.ZstdError, MemoryError):
        return None
