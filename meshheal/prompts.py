"""Every prompt, next to the parser of its reply.

What prompts share comes first (the task, then the answer, then the rubric) and what differs last, so that a
server's prefix cache serves it. Text written by models is data: it is passed on whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from meshheal import reply
from meshheal.types import Message, Review, Score, Task, Unscored

SCALE_MIN: Final = 0
SCALE_MAX: Final = 1
"""The scale of a review: the prompt names these bounds and the parser refuses what lies outside."""

EMPTY: Final = "(empty)"
"""Stands for an answer without visible text; servers refuse or mangle an empty turn."""

RUBRIC: Final = f"""\
Review the answer above. Work the task out yourself, compare the results, and check the steps for errors.
Judge only whether the final answer is right; style, length and confidence do not count. An answer that is
empty, cut off or without a final result is wrong.

Reply with one JSON object and nothing after it:
{{"score": <number from {SCALE_MIN} to {SCALE_MAX}>, "reason": "<one or two sentences>"}}
{SCALE_MAX} means certainly right, {SCALE_MIN} certainly wrong; values between: how likely it is right."""

RATING_MAX: Final = 9
"""The scale of a rating in one token, 0 to this: a digit is one token with every tokenizer."""

_RATING: Final = f"""\
Review the answer above. Judge only whether the final answer is right.
Reply with one digit and nothing else: {RATING_MAX} means certainly right, 0 certainly wrong; digits between: how likely it is right."""

_OTHERS: Final = "Other reviewers judged the same answer as follows. Each of them may be mistaken."
_AGAIN: Final = (
    "Check their reasons against the task, then give your own verdict: one JSON object of the same form and "
    "nothing after it."
)
_CRITICISM: Final = "Reviewers rejected the answer above, for these reasons. They may be mistaken too."
_REJECTED: Final = "Reviewers rejected the answer above."
_TAKE_OVER: Final = (
    "Solve the task yourself from the beginning. Give your final answer in the form that the task asks for."
)

_RUBRIC_MESSAGE: Final = Message("user", RUBRIC)
_RATING_MESSAGE: Final = Message("user", _RATING)

UNSCORED_REASONS: Final = ("empty", "truncated", "no_score", "unreadable", "not_a_number", "out_of_range")
"""Why a review has no verdict: a bounded set, fit for a metric label.

empty: no text, or none after the thought. truncated: cut inside a thought or inside the JSON. no_score: no
JSON object with a `score` at its top level. unreadable: the object with the score is not JSON. not_a_number:
the score is null, a boolean, a list, words. out_of_range: it is a number off the scale, or not finite.
"""


def produce(task: Task) -> tuple[Message, ...]:
    """Ask for an answer: the task's own messages, which say what form the final answer takes."""
    return task.messages


def probe(task: Task) -> tuple[Message, ...]:
    """Ask a reference task: the same messages as `produce`, so that a probe cannot be told from work."""
    return task.messages


def review(task: Task, answer_text: str) -> tuple[Message, ...]:
    """Ask for one independent score of an answer. Read the reply with `read_review`."""
    return (*task.messages, _turn(answer_text), _RUBRIC_MESSAGE)


def rate(task: Task, answer_text: str) -> tuple[Message, ...]:
    """Ask for a score in one token, to be read from its likelihoods with `meshheal.likelihood.read_rating`."""
    return (*task.messages, _turn(answer_text), _RATING_MESSAGE)


def deliberate(task: Task, answer_text: str, opinions: Sequence[Score]) -> tuple[Message, ...]:
    """Ask once more for a score, showing what the others thought (`opinions`, without the asked reviewer's
    own).

    Continues the prompt of `review`. Read the reply with `read_review`.
    """
    lines = [RUBRIC, "", _OTHERS]
    for i, opinion in enumerate(opinions, 1):
        lines.append(f"{i}. score {opinion.value:g}: {opinion.reason.strip() or 'no reason given'}")
    lines += ["", _AGAIN]
    return (*task.messages, _turn(answer_text), Message("user", "\n".join(lines)))


def takeover(task: Task, answer_text: str, criticisms: Sequence[str]) -> tuple[Message, ...]:
    """Ask a committee member to answer a task whose answer was rejected, showing the criticism."""
    reasons = [c.strip() for c in criticisms if c.strip()]
    lines = [_CRITICISM if reasons else _REJECTED]
    lines += [f"{i}. {reason}" for i, reason in enumerate(reasons, 1)]
    lines += ["", _TAKE_OVER]
    return (*task.messages, _turn(answer_text), Message("user", "\n".join(lines)))


def _turn(answer_text: str) -> Message:
    return Message("assistant", answer_text if answer_text and not answer_text.isspace() else EMPTY)


# --- reading a review ----------------------------------------------------------------------------


class _Verdict(msgspec.Struct, gc=False):
    score: Annotated[float, msgspec.Meta(ge=SCALE_MIN, le=SCALE_MAX)]
    reason: str = ""


_decode = msgspec.json.Decoder(_Verdict).decode
_BY_REASON: Final = {reason: Unscored(reason) for reason in UNSCORED_REASONS}


def read_review(text: str) -> Review:
    """The verdict in a reviewer's reply; `Unscored` with one of `UNSCORED_REASONS` where there is none.

    The verdict is the number under `score` at the top level of a JSON object, alone, fenced or amid prose.
    Of several such objects the last counts (a model that repeats the form, or corrects itself, ends with
    what it means), and where that one cannot be read no earlier one stands in. A string counts if it is a
    number and nothing else. Off the scale is unscored, never clamped. Text inside a thought is never a
    verdict. Raises nothing, whatever the text.
    """
    try:
        verdict = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _search(text)
    return Score(verdict.score + 0.0, verdict.reason)  # + 0.0: no negative zero


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# Where JSON may begin: LaTeX and prose have braces too, but not followed by a quote. A list is one value:
# the objects in it are not at the top level.
_OPENING = re.compile(r"""\{\s*["'}]|\[\s*\{""")
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*+"?|[][{}]', re.DOTALL)
_STRAY_BACKSLASH = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
# parse_int=float: an integer of any length is a number off the scale, not an error.
_JSON = json.JSONDecoder(strict=False, parse_int=float)


def _search(text: str) -> Review:
    """`read_review` for a reply that is not just the object asked for. Linear in the length of `text`."""
    said = reply.read(text)
    if said.cut:
        return _BY_REASON["truncated"]
    if not said.text.strip():
        return _BY_REASON["empty"]
    spans, cut = _top_level(said.text)
    if cut:
        return _BY_REASON["truncated"]
    for span in reversed(spans):
        if span.startswith("{") and "score" in span:
            verdict = _load(span)
            if verdict is None:
                return _BY_REASON["unreadable"]
            if "score" in verdict:
                return _judge(verdict)
    return _BY_REASON["no_score"]


def _top_level(text: str) -> tuple[list[str], bool]:
    """The balanced stretches of `text` that look like JSON, outermost only; and whether a last one is cut."""
    spans: list[str] = []
    at = 0
    while opening := _OPENING.search(text, at):
        start = opening.start()
        depth = 0
        for token in _TOKEN.finditer(text, start):
            mark = token.group()
            if mark in "{[":
                depth += 1
            elif mark in "}]":
                depth -= 1
                if depth == 0:
                    at = token.end()
                    spans.append(text[start:at])
                    break
        else:
            return spans, True
    return spans, False


def _load(span: str) -> dict[str, Any] | None:
    """The object in `span`, LaTeX in its strings forgiven; None where it is not JSON."""
    for attempt in (span, _STRAY_BACKSLASH.sub(lambda m: m.group() if m.group(1) else r"\\", span)):
        try:
            found = _JSON.decode(attempt)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _judge(verdict: dict[str, Any]) -> Review:
    value, reason = verdict["score"], verdict.get("reason", "")
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if not isinstance(value, float):
        return _BY_REASON["not_a_number"]
    if not SCALE_MIN <= value <= SCALE_MAX:
        return _BY_REASON["out_of_range"]
    # A lone surrogate cannot be sent or logged.
    words = reason.encode("utf-8", "replace").decode() if isinstance(reason, str) else ""
    return Score(value + 0.0, words)
