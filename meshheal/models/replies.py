"""What a server said: its JSON, whatever dialect and however damaged, as texts, tokens and likelihoods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal

import msgspec
from msgspec import Struct

from meshheal.models.retries import Failure, error_of, of_status
from meshheal.types import Message, Usage

_CHARACTERS = 4
"""Characters a token, where a server does not count (an estimate, marked as such)."""
_TEMPLATE = 4096
"""Tokens that a chat template may add to a prompt, at most: a count above bytes plus this is no count."""
_SHOWN = 200


class BadReply(Exception):
    """A reply that is no completion. `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class Counted(Struct, frozen=True):
    """The tokens of one reply. `estimated`: not by the server. `cache_told`: it counted cached prompt tokens."""

    usage: Usage
    estimated: bool = False
    cache_told: bool = False


class Reply(Struct, frozen=True):
    """One reply of the chat API. `texts` and `reasoning` have one entry a choice; `top` is the first token's, per choice."""

    texts: tuple[str, ...]
    reasoning: tuple[str, ...]
    finish: Literal["stop", "length"]
    counted: Counted
    model: str
    top: tuple[dict[str, float], ...] = ()


class Asked(Struct, frozen=True):
    """What bounds a count of tokens: the prompt's bytes, and the output that was allowed in all."""

    prompt_bytes: int
    prompt_messages: int
    most_output: int


def asked(messages: Sequence[Message], samples: int, max_tokens: int) -> Asked:
    size = sum([len(m.content.encode("utf-8", "replace")) for m in messages])
    return Asked(size, len(messages), samples * max_tokens)


def parse(body: bytes) -> Any:
    """The JSON of a body. Raises `BadReply` where it is none: a page, half a reply, nothing."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:  # lone surrogates, control characters and a byte order mark, which msgspec refuses
        return json.loads(body.decode("utf-8-sig", "replace"), strict=False)
    except (ValueError, RecursionError):
        start = body[:_SHOWN].decode("utf-8", "replace").strip()
        what = "nothing" if not start else "a page" if start[:1] == "<" else "no JSON, or half of it"
        raise BadReply(Failure("bad_reply", f"{what} ({len(body)} bytes)", retry=True, blames=True)) from None


def read_chat(data: Any, bounds: Asked, want_top: bool = False) -> Reply:
    """A chat completion. Raises `BadReply` where there is none; tokens that were spent all the same are in its failure."""
    counted = count(data, bounds)
    choices = _choices(data, counted)
    texts: list[str] = []
    reasoning: list[str] = []
    cut = False
    for choice in choices:
        message = choice.get("message")
        if not isinstance(message, dict):
            message = {"content": choice.get("text")} if "text" in choice else {}
        content = _content(message, counted)
        texts.append(content)
        reasoning.append(_thought(message))
        finish = choice.get("finish_reason")
        if finish in ("abort", "error"):
            raise _bad(f"the server gave up (finish reason {finish})", counted)
        cut = cut or finish == "length"
    if counted.estimated or (counted.usage.completion == 0 and any((*texts, *reasoning))):
        written = sum([len(t) for t in (*texts, *reasoning)])
        estimate = Usage(counted.usage.prompt, _tokens(written), counted.usage.cached)
        counted = Counted(estimate, True, counted.cache_told)
    thoughts = tuple(reasoning) if any(reasoning) else ()
    top = tuple([_top(c) for c in choices]) if want_top else ()
    return Reply(tuple(texts), thoughts, "length" if cut else "stop", counted, _name(data), top)


def count(data: Any, bounds: Asked) -> Counted:
    """The tokens of a reply: the server's count where it can be one, else an estimate of the prompt's, marked."""
    usage = data.get("usage") if isinstance(data, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    prompt, completion = _whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    cached = _whole(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached is None:
        cached = _whole(usage.get("prompt_cache_hit_tokens"))
    likely_prompt = prompt is not None and 0 < prompt <= bounds.prompt_bytes + _TEMPLATE
    likely_output = completion is not None and completion <= bounds.most_output + 64
    if prompt is None or completion is None or not likely_prompt or not likely_output:
        return Counted(Usage(_tokens(bounds.prompt_bytes) + 4 * bounds.prompt_messages, 0), True)
    told = cached is not None and cached <= prompt
    return Counted(Usage(prompt, completion, cached if told and cached is not None else 0), False, told)


def told(data: Any) -> Usage:
    """The tokens that a failed attempt took, as far as the server says so believably; none otherwise."""
    usage = data.get("usage") if isinstance(data, dict) else None
    if not isinstance(usage, dict):
        return Usage()
    prompt, completion = _whole(usage.get("prompt_tokens")) or 0, _whole(usage.get("completion_tokens")) or 0
    return Usage(prompt, completion) if max(prompt, completion) < 10_000_000 else Usage()


def read_loglik(
    data: Any, prompts: Sequence[str], endings: Sequence[str], bounds: Asked
) -> tuple[list[float], Counted]:
    """Mean log-likelihood per token of the ending of each echoed prompt. Raises `BadReply`."""
    counted = count(data, bounds)
    choices = _choices(data, counted)
    if len(choices) != len(prompts):
        raise _bad(f"{len(choices)} choices for {len(prompts)} prompts", counted)
    return [_mean(c, p, e, counted) for c, p, e in zip(choices, prompts, endings, strict=True)], counted


def _mean(choice: dict[str, Any], prompt: str, ending: str, counted: Counted) -> float:
    """Mean over the tokens that reach into the ending. Where those begin is counted from the end of the prompt, since a
    server may show a token of its own before it.
    """
    given = choice.get("logprobs")
    given = given if isinstance(given, dict) else {}
    tokens, logprobs, offsets = (given.get(k) for k in ("tokens", "token_logprobs", "text_offset"))
    if not (isinstance(tokens, list) and isinstance(logprobs, list) and isinstance(offsets, list)):
        raise BadReply(
            Failure("no_likelihoods", "the reply holds no log-likelihoods of the prompt", usage=counted.usage)
        )
    if (
        not tokens
        or not len(tokens) == len(logprobs) == len(offsets)
        or not all(_whole(o) is not None for o in offsets)
    ):
        raise _bad("log-likelihoods that do not fit their tokens", counted)
    ends = [*offsets[1:], offsets[-1] + len(str(tokens[-1]))]
    start = ends[-1] - len(ending)
    inside = [lp for lp, end in zip(logprobs, ends, strict=True) if end > start]
    numbers = [float(lp) for lp in inside if isinstance(lp, int | float) and isfinite(lp)]
    if len(numbers) < len(inside) and len(numbers) < len(inside) - (len(inside) == len(tokens)):
        raise _bad("log-likelihoods that are no numbers", counted)
    if not numbers:
        raise _bad(f"no log-likelihood of the ending {ending[:40]!r} of {len(prompt)} characters", counted)
    return sum(numbers) / len(numbers)


def failure_of(status: int, body: bytes, headers: dict[str, str]) -> Failure:
    """What a reply with a status other than 200 means."""
    try:
        data = parse(body)
    except BadReply:
        data = None
    message, code = error_of(data)
    return of_status(status, clean(message)[:_SHOWN], code, headers, told(data))


def clean(text: str) -> str:
    """`text` without lone surrogates, which can be neither sent nor logged; pairs of them are the character they mean."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _choices(data: Any, counted: Counted) -> list[dict[str, Any]]:
    if not isinstance(data, dict):
        raise BadReply(
            Failure("bad_reply", f"JSON that is no object but {type(data).__name__}", retry=True, blames=True)
        )
    if data.get("error") and not data.get("choices"):
        message, code = error_of(data)
        status = int(code) if code.isdigit() and 400 <= int(code) <= 599 else 500
        raise BadReply(of_status(status, clean(message)[:_SHOWN], code, {}, told(data)))
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _bad("no choices", counted)
    if not all(isinstance(c, dict) for c in choices):
        raise _bad("choices that are no objects", counted)
    indices = [c.get("index") for c in choices]
    if all(isinstance(i, int) for i in indices) and len(set(indices)) == len(indices):
        return sorted(choices, key=lambda c: c["index"])
    return choices


def _content(message: dict[str, Any], counted: Counted) -> str:
    content = message.get("content")
    if content is None:
        refusal = message.get("refusal")
        return clean(refusal) if isinstance(refusal, str) else ""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):
        parts = [p.get("text") if isinstance(p, dict) and p.get("type", "text") == "text" else "" for p in content]
        if all(isinstance(p, str) for p in parts):
            return clean("".join([p for p in parts if isinstance(p, str)]))
    raise _bad(f"content that is no text but {type(content).__name__}", counted)


def _thought(message: dict[str, Any]) -> str:
    for name in ("reasoning_content", "reasoning"):
        thought = message.get(name)
        if isinstance(thought, str) and thought:
            return clean(thought)
    return ""


def _top(choice: dict[str, Any]) -> dict[str, float]:
    """Likeliest first tokens that are more than blanks, with their log-probabilities."""
    given = choice.get("logprobs")
    content = given.get("content") if isinstance(given, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    listed = first.get("top_logprobs") if isinstance(first, dict) else None
    found: dict[str, float] = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("token"), str):
            logprob = entry.get("logprob")
            if isinstance(logprob, int | float) and isfinite(logprob):
                found[clean(entry["token"])] = float(logprob)
    return found


def _name(data: dict[str, Any]) -> str:
    name = data.get("model")
    return clean(name)[:_SHOWN] if isinstance(name, str) else ""


def _whole(value: Any) -> int | None:
    """A count; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isfinite(value) and value >= 0 and value == int(value) else None


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS)


def _bad(what: str, counted: Counted) -> BadReply:
    usage = Usage() if counted.estimated else counted.usage
    return BadReply(Failure("bad_reply", what, retry=True, blames=True, usage=usage))
