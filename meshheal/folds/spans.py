"""A run's tasks and model calls as OpenTelemetry spans, by the semantic conventions for generative AI. Extra `otel`.

A task is a trace: `invoke_agent` at its entry agent, from arrival to settled answer; inside it an `invoke_agent` for each
agent that worked on it, with the `chat` that agent had with its model. A probe is a trace of its own. Texts of prompts
and replies are not exported. Identifiers follow from run, arm and order: exported twice, spans are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from meshheal import events as ev
from meshheal.errors import UsageError
from meshheal.folds.layout import Layout

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
AGENT_ID, AGENT_NAME = "gen_ai.agent.id", "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
MODEL, CHOICES = "gen_ai.request.model", "gen_ai.request.choice.count"
FINISH = "gen_ai.response.finish_reasons"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED = "gen_ai.usage.cache_read.input_tokens"
ERROR = "error.type"
_NS = 1_000_000_000


def spans(events: Iterable[ev.AnyEvent], layout: Layout, epoch: float) -> Iterator[ReadableSpan]:
    """The spans of one arm's events as they end. `epoch` is the timestamp of second 0 of the run's clock.

    Raises `UsageError` where the extra is missing.
    """
    writer = _Writer(layout, epoch)
    for event in events:
        match event:
            case ev.TaskArrived():
                writer.arrived(event)
            case ev.ModelCalled():
                writer.called(event)
            case ev.TaskSettled():
                writer.settled(event)
            case _:
                continue
        yield from writer.taken()


class _Writer:
    def __init__(self, layout: Layout, epoch: float) -> None:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
            from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        except ImportError:
            raise UsageError("spans need OpenTelemetry: install the extra, pip install 'meshheal[otel]'") from None
        ended: list[ReadableSpan] = []

        class Keep(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                ended.append(span)

        self._ended = ended
        self._epoch = epoch
        self._layout = layout
        self._open: dict[str, Any] = {}
        run, method, twin, seed = layout.labels
        about: dict[str, Any] = {
            "service.name": "meshheal",
            "service.instance.id": "/".join(layout.labels),
            "meshheal.run": run,
            "meshheal.method": method,
            "meshheal.twin": twin == "true",
            "meshheal.seed": int(seed),
            "meshheal.clock": layout.clock,
            "meshheal.models": layout.info[2],
        }
        provider = TracerProvider(
            resource=Resource(about), id_generator=_ids("/".join(layout.labels)), shutdown_on_exit=False
        )
        provider.add_span_processor(Keep())
        self._tracer: Any = provider.get_tracer("meshheal")
        self._client, self._internal, self._inside = SpanKind.CLIENT, SpanKind.INTERNAL, set_span_in_context
        error: Any = Status
        self._failed: Callable[[str], Any] = lambda why: error(StatusCode.ERROR, why)

    def taken(self) -> list[ReadableSpan]:
        """Spans that ended since the last time."""
        found = self._ended[:]
        self._ended.clear()
        return found

    def arrived(self, e: ev.TaskArrived) -> None:
        self._open[e.task] = self._agent(e.entry, e.task, e.t, None, {"meshheal.ability": e.ability})

    def settled(self, e: ev.TaskSettled) -> None:
        span = self._open.pop(e.task, None)
        if span is None:
            return
        span.set_attribute("meshheal.outcome", e.outcome)
        if e.outcome in ("failed", "unanswered", "unroutable"):
            span.set_attribute(ERROR, e.outcome)
            span.set_status(self._failed(e.outcome))
        span.end(self._ns(e.t))

    def called(self, e: ev.ModelCalled) -> None:
        began = e.t - e.latency
        parent = None if e.probing else self._open.get(e.task)
        about = {"meshheal.purpose": e.purpose, "meshheal.subject": e.subject, "meshheal.probe": e.probing}
        outer = self._agent(e.node, e.task, began, parent, about)
        nature = self._layout.natures.get(e.model, "simulated")
        attributes: dict[str, Any] = {
            OPERATION: "chat",
            PROVIDER: "openai" if nature == "live" else f"meshheal.{nature}",
            MODEL: e.model,
            CONVERSATION: e.task,
            FINISH: [e.finish],
            INPUT: e.usage.prompt,
            OUTPUT: e.usage.completion,
            "meshheal.purpose": e.purpose,
        }
        if e.usage.cached:
            attributes[CACHED] = e.usage.cached
        if len(e.replies) > 1:
            attributes[CHOICES] = len(e.replies)
        chat = self._tracer.start_span(
            f"chat {e.model}", self._inside(outer), self._client, attributes, start_time=self._ns(began)
        )
        if e.failure:
            for span in (chat, outer):
                span.set_attribute(ERROR, e.failure)
                span.set_status(self._failed(e.failure))
        chat.end(self._ns(e.t))
        outer.end(self._ns(e.t))

    def _agent(self, agent: int, task: str, t: float, parent: Any, more: dict[str, Any]) -> Any:
        attributes = {
            OPERATION: "invoke_agent",
            PROVIDER: "meshheal",
            AGENT_ID: str(agent),
            AGENT_NAME: f"agent {agent}",
            CONVERSATION: task,
            **more,
        }
        # An empty context, not none: none would take whatever span the caller happens to be in.
        inside = self._inside(parent) if parent is not None else _nowhere()
        name = f"invoke_agent agent {agent}"
        return self._tracer.start_span(name, inside, self._internal, attributes, start_time=self._ns(t))

    def _ns(self, t: float) -> int:
        return round((self._epoch + t) * _NS)


def _nowhere() -> Any:
    from opentelemetry.context import Context

    return Context()


def _ids(run: str) -> Any:
    """Identifiers that follow from the run's name and their number."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Numbered(IdGenerator):
        def __init__(self) -> None:
            self._n = 0

        def _next(self, size: int) -> int:
            self._n += 1
            digest = blake2b(f"{run}/{self._n}".encode(), digest_size=size).digest()
            return int.from_bytes(digest) or 1

        def generate_span_id(self) -> int:
            return self._next(8)

        def generate_trace_id(self) -> int:
            return self._next(16)

    return Numbered()
