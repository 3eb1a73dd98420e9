"""Spans by the conventions for generative AI."""

from __future__ import annotations

import socket
from pathlib import Path

import observed
import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions
from opentelemetry.semconv.attributes import error_attributes
from tiny import command

from meshheal.cli.spans import send
from meshheal.errors import NetworkError
from meshheal.folds import spans
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import Arm, RunDir


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return observed.run(observed.slow(30), tmp_path_factory.mktemp("spans"))


def exported(run: RunDir) -> tuple:
    memory = InMemorySpanExporter()
    assert send(run, run.arms(), memory) == len(memory.get_finished_spans())
    return memory.get_finished_spans()


def test_names_are_those_of_the_conventions() -> None:
    ours = {value for name, value in vars(spans).items() if name.isupper() and isinstance(value, str)}
    modules = [*vars(conventions).values(), *vars(error_attributes).values()]
    theirs = {value for value in modules if isinstance(value, str)}
    assert len(ours) >= 12
    assert ours <= theirs


def test_each_task_is_a_trace_and_each_model_call_a_chat_inside_an_agent(run: RunDir) -> None:
    found = exported(run)
    by_id = {s.context.span_id: s for s in found}
    chats = [s for s in found if s.attributes[spans.OPERATION] == "chat"]
    with LogFile(run.log_path(*Arm("meshheal", 0))) as log:
        counts, calls = log.counts(), list(log.events("ModelCalled"))
    assert len(chats) == counts["ModelCalled"]
    assert sum(s.attributes[spans.INPUT] for s in chats) == sum(c.usage.prompt for c in calls)
    roots = [s for s in found if s.parent is None]
    probes = sum(c.probing for c in calls)
    assert len(roots) == counts["TaskArrived"] + probes
    for chat in chats:
        agent = by_id[chat.parent.span_id]
        assert agent.attributes[spans.OPERATION] == "invoke_agent"
        assert agent.name == f"invoke_agent agent {agent.attributes[spans.AGENT_ID]}"
        assert chat.name == f"chat {chat.attributes[spans.MODEL]}"
        assert agent.start_time <= chat.start_time <= chat.end_time <= agent.end_time


def test_a_failed_call_carries_the_boundary_as_its_error(run: RunDir) -> None:
    failed = [s for s in exported(run) if spans.ERROR in s.attributes and s.attributes[spans.OPERATION] == "chat"]
    assert failed
    assert all(s.attributes[spans.ERROR] == "timeout" and not s.status.is_ok for s in failed)


def test_spans_say_that_models_are_simulated_and_hold_no_text(run: RunDir) -> None:
    for span in exported(run):
        assert span.resource.attributes["meshheal.models"] == "simulated"
        assert not {"gen_ai.input.messages", "gen_ai.output.messages"} & set(span.attributes)


def test_exported_twice_they_are_the_same_spans(run: RunDir) -> None:
    first, second = exported(run), exported(run)
    assert [s.context.span_id for s in first] == [s.context.span_id for s in second]
    assert len({s.context.span_id for s in first}) == len(first)


def test_a_collector_that_refuses_is_an_error(run: RunDir) -> None:
    class Refusing(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:  # noqa: ARG002
            return SpanExportResult.FAILURE

    with pytest.raises(NetworkError, match="collector"):
        send(run, run.arms(), Refusing())


def test_a_run_that_is_not_there_ends_in_one_line(tmp_path: Path) -> None:
    done = command("spans", "nothing", "--runs", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_collector_that_is_not_there_ends_in_one_line(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        done = command("spans", run.path, "--otlp", f"http://127.0.0.1:{closed.getsockname()[1]}/v1/traces")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1, done.stderr
    assert "--otlp" in done.stderr
