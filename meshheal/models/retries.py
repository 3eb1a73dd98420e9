"""What is tried again, and when: the one retry policy. Values in, values out; no clock, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from meshheal.types import Usage

BOUNDARIES = (
    "timeout",
    "deadline",
    "connection",
    "rate_limited",
    "server_error",
    "conflict",
    "bad_reply",
    "bad_request",
    "context_length",
    "unauthorized",
    "not_found",
    "quota",
    "redirected",
    "no_likelihoods",
)
"""How a call can fail: a bounded set, fit for a metric label.

timeout: no reply in time. deadline: the call's whole time was used up in queueing and backoff. connection: refused, reset, cut
off. rate_limited: 429. server_error: 5xx. conflict: 409. bad_reply: a reply that is no completion. bad_request: 400, 422 and
other 4xx. context_length: the prompt left no room for output. unauthorized: 401, 403. not_found: 404. quota: paid usage is used
up. redirected: 3xx. no_likelihoods: the server gives no token likelihoods.
"""


class Failure(Struct, frozen=True):
    """One attempt that failed. `retry`: trying again may help. `blames` the endpoint, rather than the request.

    `after`: seconds the server asked to wait. `room`: output tokens that would have fitted, where the request asked for more (0:
    fewer than `limit`, the server does not say how many). `limit` is the model's context in tokens.
    """

    boundary: str
    detail: str = ""
    retry: bool = False
    blames: bool = False
    after: float | None = None
    room: int | None = None
    limit: int = 0
    usage: Usage = Usage()


def of_status(status: int, message: str, code: str, headers: Mapping[str, str], usage: Usage) -> Failure:
    """What a reply with a status other than 2xx means. `message` and `code` are those of the error in its body."""
    detail = f"HTTP {status}" + (f": {message}" if message else "")
    after = retry_after(headers)
    if status == 429:
        if code in ("insufficient_quota", "billing_hard_limit_reached"):
            return Failure("quota", detail, usage=usage)
        return Failure("rate_limited", detail, retry=True, after=after, usage=usage)
    if status == 408:
        return Failure("timeout", detail, retry=True, blames=True, after=after, usage=usage)
    if status == 409:
        return Failure("conflict", detail, retry=True, after=after, usage=usage)
    if status >= 500:
        return Failure("server_error", detail, retry=True, blames=True, after=after, usage=usage)
    if status in (400, 413, 422):
        limit, room = _context(message, code)
        if limit is not None:
            told = f"the prompt leaves no room for output: the model's limit is {limit} tokens" if limit else detail
            return Failure("context_length", told, room=room, limit=limit, usage=usage)
    named = {401: "unauthorized", 403: "unauthorized", 404: "not_found"}.get(status)
    return Failure(named or ("redirected" if 300 <= status < 400 else "bad_request"), detail, usage=usage)


_LIMIT = re.compile(
    r"(?:context[ _](?:length|size|window)|max_model_len|n_ctx)\D{0,40}?(\d{2,9})|(\d{2,9})[ -]tokens? context",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|maximum model length|max_model_len|prompt is too long", re.IGNORECASE
)
_INPUTS = (
    re.compile(r"(\d{1,9}) (?:tokens )?in the messages", re.IGNORECASE),
    re.compile(r"(\d{1,9}) (?:input|prompt) tokens", re.IGNORECASE),
    re.compile(r"(?:prompt|input|messages)\D{0,30}?(\d{1,9})\D{0,3}tokens", re.IGNORECASE),
)
_OUTPUT_TOO_LARGE = re.compile(
    r"max_(?:completion_)?tokens\b.{0,60}\b(?:too large|cannot be greater)|in the completion", re.IGNORECASE
)


def _context(message: str, code: str) -> tuple[int | None, int | None]:
    """(the model's limit, the output that would fit) where a message is about too long a request: (None, None) where it is
    not, limit 0 where it does not say.
    """
    if not (_TOO_LONG.search(message) or code in ("context_length_exceeded", "exceed_context_size_error")):
        return None, None
    said = _LIMIT.search(message)
    limit = int(said.group(1) or said.group(2)) if said else 0
    prompt = next((found for pattern in _INPUTS if (found := pattern.search(message))), None)
    if not limit or not _OUTPUT_TOO_LARGE.search(message):
        return limit, None
    if prompt is None:
        return limit, 0
    room = limit - int(prompt.group(1))
    return limit, room if room > 0 else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from a Retry-After header: a number, or a date, which is read against the server's own Date, so that no clock of
    ours is compared with one of theirs. None where there is none, or none that makes sense.
    """
    given = headers.get("retry-after", "").strip()
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            until, now = parsedate_to_datetime(given), parsedate_to_datetime(headers.get("date", ""))
            seconds = (until - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if seconds == seconds and seconds < 1e9 else None


def backoff(attempt: int, base: float, most: float, draw: float) -> float:
    """Seconds before attempt `attempt` + 1 (the first is 1): full jitter, `draw` uniform in [0, 1), below a doubling ceiling."""
    return float(draw * min(most, base * 2.0 ** min(attempt, 60)))


def error_of(body: Any) -> tuple[str, str]:
    """(message, code) of the error in a reply's JSON, whatever dialect; empty where there is none."""
    if not isinstance(body, dict):
        return "", ""
    inner = body.get("error", body)
    if isinstance(inner, str):
        return inner, ""
    if not isinstance(inner, dict):
        return "", ""
    message = inner.get("message") or inner.get("detail") or body.get("detail") or ""
    code = inner.get("code") or inner.get("type") or ""
    return (message if isinstance(message, str) else str(message)), (code if isinstance(code, str) else str(code))
