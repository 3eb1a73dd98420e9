"""Completions from a log: found by key and prompt, and never mistaken for another call's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from meshheal.errors import ModelError, ReplayDivergence
from meshheal.events import ModelCalled, TaskArrived
from meshheal.model import CallKey, Completion, Request, Sampling, prompt_id
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import MemoryLog, Recorder
from meshheal.trace.replay import Mode, Replay
from meshheal.types import Message, Usage

MODEL = "live/a"


def request(item: str = "t1", prompt: str = "What is 1 + 1?", **key: object) -> Request:
    usual = {"agent": 2, "purpose": "review", "subject": 1}
    messages = (Message("user", prompt), Message("user", "Score it."))
    return Request(messages, Sampling(), CallKey(item=item, **{**usual, **key}))  # type: ignore[arg-type]


def record(log: Recorder | MemoryLog, asked: Request, *texts: str, **fields: object) -> Completion:
    """Write the call as an agent does, and return what replay is to give back."""
    k = asked.key
    completion = Completion(
        texts, Usage(30, len(texts), 8), latency=1.5, finish="length", reasoning=("hm",) * len(texts)
    )
    event = ModelCalled(
        node=k.agent, seq=1, t=0.0, task=k.item, model=MODEL, purpose=k.purpose, subject=k.subject, n=k.n,
        branch=k.branch, prompt=tuple((m.role, log.text(m.content)) for m in asked.messages),
        prompt_hash=prompt_id(asked.messages), replies=tuple(log.text(t) for t in texts),
        usage=completion.usage, latency=1.5, finish="length",
        reasoning=tuple(log.text(t) for t in completion.reasoning),
    )  # fmt: skip
    log.write(msgspec.structs.replace(event, **fields))
    return completion


Written = Callable[[Recorder | MemoryLog], object]


@pytest.fixture(params=["file", "cut file", "memory"])
def replay(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Replay]:
    def make(write: Written, mode: Mode, **options: int) -> Replay:
        if request.param == "memory":
            log = MemoryLog()
            write(log)
            return Replay(log, mode, **options)
        path = tmp_path / "log"
        recorder = Recorder(path, {}, frame_bytes=800)
        write(recorder)
        recorder.close() if request.param == "file" else recorder.flush()
        return Replay(LogFile(path), mode, **options)

    return make


def test_a_recorded_completion_comes_back_whole(replay: Callable[..., Replay]) -> None:
    given: list[Completion] = []
    again = replay(lambda log: given.append(record(log, request(), '{"score": 1}', "\ud800")), "never")
    assert again.find(request(), MODEL) == given[0]


@pytest.mark.parametrize(
    "other",
    [
        {"item": "t2"}, {"agent": 3}, {"purpose": "deliberate"}, {"subject": 0}, {"n": 1}, {"branch": 1},
        {"prompt": "What is 1 + 2?"},
    ],
)  # fmt: skip
def test_a_call_that_differs_in_any_part_is_not_found(replay: Callable[..., Replay], other: dict[str, object]) -> None:
    again = replay(lambda log: record(log, request(), "x"), "resume")
    assert again.find(request(**other), MODEL) is None  # type: ignore[arg-type]
    assert again.find(request(), "live/b") is None
    assert again.find(request(), MODEL) is not None


def test_a_recorded_failure_is_the_same_failure(replay: Callable[..., Replay]) -> None:
    again = replay(lambda log: record(log, request(), failure="deadline of 600 s passed"), "never")
    with pytest.raises(ModelError, match="deadline of 600 s passed"):
        again.find(request(), MODEL)


def test_calls_alike_in_everything_come_in_the_order_recorded_and_once_each(
    replay: Callable[..., Replay],
) -> None:
    def write(log: Recorder | MemoryLog) -> None:
        for text in ("first", "second", "third"):
            record(log, request(), text)

    again = replay(write, "resume")
    found = [again.find(request(), MODEL) for _ in range(4)]
    assert [c and c.texts[0] for c in found] == ["first", "second", "third", None]
    assert (again.found, len(again)) == (3, 0)


def test_resuming_goes_on_live_where_the_record_ends(replay: Callable[..., Replay]) -> None:
    def write(log: Recorder | MemoryLog) -> None:
        for i in range(20):
            record(log, request(f"t{i}"), f"reply {i}" * 9)

    again = replay(write, "resume")
    for i in range(20):
        found = again.find(request(f"t{i}"), MODEL)
        assert found is not None
        assert found.texts == (f"reply {i}" * 9,)
    assert again.find(request("t20"), MODEL) is None


def test_a_replay_names_the_first_difference_of_a_prompt(replay: Callable[..., Replay]) -> None:
    again = replay(lambda log: record(log, request(prompt="What is 1 + 1? " * 9), "x"), "never")
    with pytest.raises(ReplayDivergence) as caught:
        again.find(request(prompt="What is 1 + 1? " * 8 + "What is 1 + 7? "), MODEL)
    message = str(caught.value)
    assert "review call 0 of agent 2 on t1 (subject 1, live/a)" in message
    assert "message 0 (user) differs at character 132" in message
    assert "+ 7?" in message
    assert "+ 1?" in message
    assert "\n" not in message


def test_a_replay_says_what_the_record_holds_instead(replay: Callable[..., Replay]) -> None:
    again = replay(lambda log: record(log, request(), "x"), "never")
    with pytest.raises(ReplayDivergence, match="for this task review 0 by 2 on 1"):
        again.find(request(agent=5), MODEL)
    with pytest.raises(ReplayDivergence, match="no call for this task at all"):
        again.find(request("t9"), MODEL)
    again.find(request(), MODEL)
    with pytest.raises(ReplayDivergence, match="asked for again"):
        again.find(request(), MODEL)


def test_a_prompt_with_more_messages_is_told_apart() -> None:
    log = MemoryLog()
    record(log, request(), "x")
    longer = msgspec.structs.replace(request(), messages=(*request().messages, Message("user", "Again.")))
    with pytest.raises(ReplayDivergence, match="3 messages, recorded 2"):
        Replay(log, "never").find(longer, MODEL)


def test_a_fork_keeps_its_prefix_frozen_and_goes_on_live_under_another_branch(
    replay: Callable[..., Replay],
) -> None:
    def write(log: Recorder | MemoryLog) -> None:
        for i in range(4):
            log.write(TaskArrived(node=-1, seq=i, t=0.0, task=f"t{i}", index=i, entry=0, ability="any"))
            record(log, request(f"t{i}"), f"reply {i}")

    fork = replay(write, "fork", until=1)
    assert fork.find(request("t1"), MODEL) is not None
    assert fork.find(request("t2", branch=1), MODEL) is None
    with pytest.raises(ReplayDivergence):
        fork.find(request("t1", prompt="another"), MODEL)
    with pytest.raises(ReplayDivergence):
        fork.find(request("t2"), MODEL)


def test_a_replay_that_finds_nothing_in_a_cut_log_says_that_it_is_cut(tmp_path: Path) -> None:
    log = Recorder(tmp_path / "log", {})
    record(log, request(), "x")
    log.flush()
    with pytest.raises(ReplayDivergence, match="cut before its end"):
        Replay(LogFile(tmp_path / "log"), "never").find(request("t9"), MODEL)
    log.abort()
