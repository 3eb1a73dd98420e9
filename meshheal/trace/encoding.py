"""Events and texts as JSON lines, and back.

A line is what msgspec writes. What JSON cannot hold (a lone surrogate, a float that is not finite) must
neither end a run nor come back changed: such a record is wrapped, with its exact content in base64, in a line
of kind `Escaped`, or in a `Text` with `base64` set.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from meshheal.errors import InternalError, TraceError
from meshheal.events import AnyEvent, Event


def kind_prefix(kind: str) -> bytes:
    """How a line of a kind begins."""
    return b'{"kind":"' + kind.encode() + b'",'


TEXT_PREFIX = kind_prefix("Text")
_ESCAPED_PREFIX = kind_prefix("Escaped")
HAS_WALL = b'"wall":'
"""Stands in lines of which some may have a wall-clock reading."""
_USUAL_NULLS = (b'"committee":null', b'"value":null', b'"correct":null')
_UTF8 = ("utf-8", "surrogatepass")


class Text(Struct, frozen=True, tag_field="kind", tag="Text", omit_defaults=True, gc=False):
    """A text as a record of its own. With `base64`, `text` is the base64 of its UTF-8, surrogates passed."""

    id: str
    text: str
    base64: bool = False


class _Escaped(Struct, frozen=True, tag_field="kind", tag="Escaped", omit_defaults=True, gc=False):
    of: str
    base64: str
    wall: float | None = None
    """Shows that the event has a wall-clock reading, as `HAS_WALL` finds it in any line."""


class EventHead(Struct, frozen=True, gc=False):
    """What an index needs of an event line."""

    kind: str
    task: str = ""


def _plain(value: Any) -> Any:
    """numpy's float64 and the like are floats that msgspec does not take."""
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"cannot be recorded: {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(AnyEvent | _Escaped)
_event_decoder = msgspec.json.Decoder(AnyEvent)
_head_decoder = msgspec.json.Decoder(EventHead)
_text_decoder = msgspec.json.Decoder(Text)


def encode_events(events: Sequence[Event]) -> bytes:
    """One line an event, each with its end of line. Raises `InternalError` for a field that is no plain
    value."""
    try:
        lines = _encoder.encode_lines(events)
    except (UnicodeEncodeError, TypeError, OverflowError):
        return b"".join([encode_event(event) for event in events])
    # msgspec writes null for a float that is not finite. Nulls that mean None, as is usual, are counted off:
    # no other part of a line can look like these, since quotes inside a string are escaped.
    if lines.count(b"null") == sum([lines.count(usual) for usual in _USUAL_NULLS]):
        return lines
    each = zip(lines.splitlines(keepends=True), events, strict=True)
    return b"".join([encode_event(event) if b"null" in line else line for line, event in each])


def encode_event(event: Event) -> bytes:
    """One event as a line that `decode_lines` gives back as it was."""
    try:
        line = _encoder.encode(event)
        if b"null" not in line or _event_decoder.decode(line) == event:
            return line + b"\n"
    except (UnicodeEncodeError, msgspec.ValidationError):
        pass
    except (TypeError, OverflowError) as error:
        raise InternalError(f"an event has a field that cannot be recorded ({error}): {event!r:.300}") from error
    content = json.dumps(msgspec.to_builtins(event, enc_hook=_plain), ensure_ascii=False)
    wrapped = _Escaped(type(event).__name__, b64encode(content.encode(*_UTF8)).decode(), event.wall)
    return _encoder.encode(wrapped) + b"\n"


def encode_for_hash(events: Iterable[Event]) -> bytes:
    """The lines that the event hash is taken over: without wall-clock readings."""
    return encode_events([e if e.wall is None else msgspec.structs.replace(e, wall=None) for e in events])


class EventHash:
    """BLAKE2b over the lines of all events, wall-clock readings left out."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def update(self, events: list[Event], lines: bytes) -> None:
        """`lines` are those of `events`."""
        self._hash.update(encode_for_hash(events) if HAS_WALL in lines else lines)

    def hexdigest(self, pending: list[Event]) -> str:
        """The hash as if `pending` had been added."""
        whole = self._hash.copy()
        whole.update(encode_for_hash(pending))
        return whole.hexdigest()


def decode_lines(lines: bytes) -> list[AnyEvent]:
    """The events of whole lines. Raises `TraceError` for lines that are no events of this schema version."""
    try:
        records = _decoder.decode_lines(lines)
        return [_unwrap(record) if type(record) is _Escaped else record for record in records]
    except (msgspec.DecodeError, ValueError) as error:
        raise TraceError(f"a record cannot be read: {error}") from error


def _unwrap(escaped: _Escaped) -> AnyEvent:
    content = json.loads(b64decode(escaped.base64).decode(*_UTF8))
    event: AnyEvent = msgspec.convert(content, AnyEvent)
    return event


def event_head(line: bytes) -> EventHead:
    """Kind and task of an event line, without reading the rest of it. Raises `TraceError`."""
    if line.startswith(_ESCAPED_PREFIX):
        event = decode_lines(line)[0]
        return EventHead(type(event).__name__, event.task)
    try:
        return _head_decoder.decode(line)
    except msgspec.DecodeError as error:
        raise TraceError(f"a record cannot be read: {error}") from error


def encode_texts(texts: Sequence[Text]) -> bytes:
    """Text records as lines, each with its end of line."""
    try:
        return _encoder.encode_lines(texts)
    except UnicodeEncodeError:
        return b"".join([_encode_text(text) for text in texts])


def _encode_text(text: Text) -> bytes:
    try:
        return _encoder.encode(text) + b"\n"
    except UnicodeEncodeError:
        content = b64encode(text.text.encode(*_UTF8)).decode()
        return _encoder.encode(Text(text.id, content, base64=True)) + b"\n"


def text_id_of(line: bytes) -> str:
    """The id of a text record, without reading the text."""
    start = len(TEXT_PREFIX) + len(b'"id":"')
    return line[start : line.index(b'"', start)].decode()


def text_prefix(id: str) -> bytes:
    """How the line of a text begins; it begins so nowhere else, since quotes inside a string are escaped."""
    return TEXT_PREFIX + b'"id":"' + id.encode() + b'"'


def decode_text(line: bytes) -> str:
    """The text of a text record. Raises `TraceError`."""
    try:
        record = _text_decoder.decode(line)
        return b64decode(record.text).decode(*_UTF8) if record.base64 else record.text
    except (msgspec.DecodeError, ValueError) as error:
        raise TraceError(f"a text cannot be read: {error}") from error


def task_needles(task: str) -> list[bytes]:
    """Byte strings of which a line of the task's events holds at least one. Other lines may hold one too."""
    try:
        return [b'"task":' + _encoder.encode(task), _ESCAPED_PREFIX]
    except UnicodeEncodeError:
        return [_ESCAPED_PREFIX]
