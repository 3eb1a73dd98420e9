"""One task told from its events, a line each: who did what, and who came to believe what because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from meshheal import events as ev

BELIEFS = ("SuspicionMoved", "StateChanged", "ShadowAlarm", "ExclusionWithheld", "ReviewerSidelined",
           "ReviewersUninformative", "CorrelatedDegradation")  # fmt: skip
"""Kinds of events that say what an observer made of evidence, rather than what was done."""
_COMMON = frozenset(ev.Event.__struct_fields__)


class Line(NamedTuple):
    """`at` in seconds; `who` the node that wrote the event; `quotes` are (label, text) of texts it refers
    to."""

    at: float
    who: str
    kind: str
    what: str
    quotes: tuple[tuple[str, str], ...] = ()


def tell(events: Iterable[ev.AnyEvent], text: Callable[[str], str]) -> list[Line]:
    """The lines of a task's events, in the order written. `text` looks a text up by its id."""
    return [Line(e.t, _node(e.node), type(e).__name__, _what(e), tuple(_quotes(e, text))) for e in events]


def _node(node: int) -> str:
    return "world" if node == ev.WORLD else f"agent {node}"


def _what(event: ev.AnyEvent) -> str:
    match event:
        case ev.TaskArrived():
            kind = f", {event.task_kind}" if event.task_kind else ""
            return f"task {event.index} of the stream arrives at agent {event.entry} ({event.ability}{kind})"
        case ev.TaskGraded():
            return {True: "graded right", False: "graded wrong", None: "no answer to grade"}[event.correct]
        case ev.TaskForwarded():
            return f"forwards the task to agent {event.to} ({event.ttl} hops left)"
        case ev.ProducerAsked():
            mandated = ", though its exclusion was only withheld" if event.mandated else ""
            return f"asks agent {event.producer} ({event.state}{mandated}) to produce, as {event.ability}"
        case ev.ModelCalled():
            return _call(event)
        case ev.Answered():
            value = f"no answer ({event.fault or 'unreadable'})" if event.value is None else repr(event.value)
            return f"reads the output of agent {event.producer}: {value}"
        case ev.ProducerSilent():
            return f"got no reply from agent {event.producer}"
        case ev.TaskSettled():
            return _settled(event)
        case _:
            return _review(event)


def _review(event: ev.AnyEvent) -> str:
    match event:
        case ev.FirstLook():
            unscored = f", unscored: {', '.join(event.unscored)}" if event.unscored else ""
            why = f" ({event.why})" if event.why else ""
            scores = _scores(event.scores)
            return f"first look by agent {event.reviewer}: {scores}{unscored} → {event.decision}{why}"
        case ev.CommitteeMet():
            votes = ", ".join(f"agent {m} {_score(s)}" for m, s in zip(event.members, event.scores, strict=False))
            again = f"; after deliberating {_scores(event.deliberated)}" if event.deliberated else ""
            split = ", split" if event.split else ""
            return f"committee: {votes}{again} → verdict {_score(event.verdict)}{split}"
        case ev.TookOver():
            pairs = zip(event.members, event.values, strict=False)
            answers = ", ".join(f"agent {m} {v!r}" for m, v in pairs)
            kept = "replaced by" if event.replaced else "kept; chosen:"
            return f"takeover: {answers}; the answer of agent {event.producer} is {kept} agent {event.chosen}"
        case ev.EvidenceShared():
            r = event.record
            verdict = "" if r.committee is None else f", committee {_score(r.committee)}"
            to = ", ".join(map(str, event.to)) or "nobody"
            score = _score(r.score)
            return f"record {r.id}: agent {r.producer} scored {score} by {r.channel}{verdict} → agents {to}"
        case ev.Probed():
            score = "unanswered" if event.unanswered else f"scored {_score(event.score)}"
            return f"probes agent {event.agent} with {event.reference} ({event.motive}): {score}"
        case ev.ReferenceBanked():
            return f"the task becomes a reference for probes (settled by {', '.join(event.families)})"
        case ev.MessageLost():
            return f"{event.what} to agent {event.to} is lost ({event.why})"
        case ev.EvidenceUndelivered():
            return f"record {event.record} could not be delivered to agent {event.to}"
        case _:
            return _belief(event)


def _belief(event: ev.AnyEvent) -> str:
    match event:
        case ev.StateChanged():
            ability = f" in {event.ability}" if event.ability else ""
            because = "".join(f", {x}" for x in (event.reason, event.record and f"record {event.record}") if x)
            change = f"{event.before} → {event.to}"
            return f"agent {event.agent}{ability}: {change} (evidence {event.evidence:.3g}{because})"
        case ev.SuspicionMoved():
            return f"evidence against agent {event.agent} is now {event.evidence:.3g} ({event.detector})"
        case ev.ExclusionWithheld():
            return f"would exclude agent {event.agent} from {event.ability}; withheld by {event.guard}"
        case _:
            fields = msgspec.structs.asdict(event)
            return ", ".join(f"{name} {value}" for name, value in fields.items() if name not in _COMMON)


def _call(call: ev.ModelCalled) -> str:
    about = "" if call.subject == call.node else f" about agent {call.subject}"
    cost = f"{call.usage.prompt} + {call.usage.completion} tokens, {call.latency:.3g} s"
    if call.failure:
        why = f": {call.notes.detail}" if call.notes is not None and call.notes.detail else ""
        return f"{call.purpose}{about} on {call.model} failed: {call.failure}{why} ({cost})"
    finish = "" if call.finish == "stop" else f", finish {call.finish}"
    return f"{call.purpose}{about} on {call.model} ({cost}{finish})"


def _settled(event: ev.TaskSettled) -> str:
    cost = f"{event.calls} calls, {event.usage.total} tokens"
    if event.author is None:
        return f"settled as {event.outcome}, without an answer ({cost})"
    whose = f"agent {event.author}" if event.author != event.producer else f"its producer, agent {event.producer}"
    return f"settled as {event.outcome}: {event.value!r} by {whose} ({cost})"


def _quotes(event: ev.AnyEvent, text: Callable[[str], str]) -> Iterable[tuple[str, str]]:
    if isinstance(event, ev.TaskArrived) and event.prompt:
        yield "prompt", text(event.prompt)
    elif isinstance(event, ev.ModelCalled):
        yield from ((role, text(id)) for role, id in event.prompt)
        yield from (("reasoning", text(id)) for id in event.reasoning)
        yield from (("reply", text(id)) for id in event.replies)


def text_ids(event: ev.AnyEvent) -> Iterable[str]:
    """Ids of all texts that an event refers to."""
    if isinstance(event, ev.TaskArrived):
        ids: Sequence[str] = (event.prompt,)
    elif isinstance(event, ev.Answered):
        ids = (event.text,)
    elif isinstance(event, ev.ModelCalled):
        ids = (*(id for _, id in event.prompt), *event.reasoning, *event.replies)
    else:
        ids = ()
    return [id for id in ids if id]


def _score(score: float | None) -> str:
    return "none" if score is None else f"{score:.2f}"


def _scores(scores: Sequence[float | None]) -> str:
    return ", ".join(map(_score, scores)) or "no score"
