"""The event log: what is written is what is read, at little cost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_logs import call, recorded, write_run

from meshheal import events as ev
from meshheal.errors import InternalError, TraceError
from meshheal.model import text_id
from meshheal.trace.idset import IdSet
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import MemoryLog, Recorder
from meshheal.types import ReviewRecord

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=40)
FLOATS = st.floats(allow_nan=False)
TASKS = st.one_of(st.sampled_from(["", "math-1", "math-2", 'quote"d\\']), ANY_TEXT)
COMMON = {
    "node": st.integers(-1, 600),
    "incarnation": st.integers(0, 3),
    "seq": st.integers(0, 2**40),
    "t": FLOATS,
    "task": TASKS,
    "causes": st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 2), st.integers(0, 99)), max_size=2).map(tuple),
    "wall": st.none() | FLOATS,
}
EVENTS = st.one_of(
    st.builds(ev.Answered, **COMMON, producer=st.integers(0, 9), value=st.none() | ANY_TEXT, fault=ANY_TEXT),
    st.builds(ev.AgentFailed, **COMMON, error=ANY_TEXT),
    st.builds(ev.TaskGraded, **COMMON, correct=st.none() | st.booleans()),
    st.builds(ev.SuspicionMoved, **COMMON, agent=st.integers(0, 9), evidence=FLOATS, record=ANY_TEXT),
    st.builds(
        ev.FirstLook,
        **COMMON,
        producer=st.just(1),
        reviewer=st.just(2),
        scores=st.lists(FLOATS, max_size=3).map(tuple),
    ),
    st.builds(
        ev.Probed,
        **COMMON,
        agent=st.just(3),
        reference=TASKS,
        score=st.none() | FLOATS,
        motive=st.just("burst"),
    ),
)


@given(
    events=st.lists(EVENTS, max_size=30),
    texts=st.lists(ANY_TEXT, max_size=8),
    frame=st.sampled_from([1, 700, 1 << 18]),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_events_and_texts_come_back_as_they_were(
    tmp_path: Path, events: list[ev.AnyEvent], texts: list[str], frame: int
) -> None:
    with recorded(tmp_path / "log", events, texts, frame_bytes=frame) as log:
        assert log.complete
        assert list(log.events()) == events
        assert [log.text(text_id(text)) for text in texts] == texts
        assert log.tasks() == list(dict.fromkeys(e.task for e in events if e.task))
        for task in {e.task for e in events} - {""}:
            assert log.task(task) == [e for e in events if e.task == task]
        assert len(log) == len(events)
        assert log.footer is not None
        assert log.event_hash() == log.footer["hash"]


@pytest.mark.parametrize("evidence", [float("inf"), float("-inf"), 1e308, -0.0, 5e-324])
def test_a_float_that_json_cannot_hold_comes_back(tmp_path: Path, evidence: float) -> None:
    event = ev.SuspicionMoved(node=1, seq=1, t=0.0, agent=2, evidence=evidence)
    with recorded(tmp_path / "log", [event, event]) as log:
        assert list(log.events()) == [event, event]


def test_a_float_that_is_not_a_number_comes_back_as_one(tmp_path: Path) -> None:
    event = ev.FirstLook(node=1, seq=1, t=0.0, task="a", producer=2, reviewer=3, scores=(0.5, float("nan")))
    with recorded(tmp_path / "log", [event]) as log:
        [back] = log.task("a")
    assert isinstance(back, ev.FirstLook)
    assert back.scores[0] == 0.5
    assert back.scores[1] != back.scores[1]


def test_a_number_of_numpys_is_recorded_as_a_float(tmp_path: Path) -> None:
    import numpy as np

    event = ev.SuspicionMoved(node=1, seq=1, t=np.float64(0.5), agent=2, evidence=np.float64(3.0))
    with recorded(tmp_path / "log", [event]) as log:
        [back] = log.events()
    assert type(back.t) is float
    assert back == event


def test_a_field_that_is_no_value_is_our_bug_and_is_named(tmp_path: Path) -> None:
    event = ev.AgentFailed(node=1, seq=1, t=0.0, error=object())  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="AgentFailed"):
        recorded(tmp_path / "log", [event])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "\ud800",
        "\ud83d\ude00",
        "a\r\nb\u2028c",
        '{"kind":"Text","id":"0000000000000000"}',
        "x" * 3_000_000,
    ],
)
def test_a_text_comes_back_whatever_is_in_it(tmp_path: Path, text: str) -> None:
    with recorded(tmp_path / "log", [], ["before", text, "after", text]) as log:
        assert log.text(text_id(text)) == text
        assert log.text(text_id("after")) == "after"


def test_a_text_is_stored_once_however_often_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    rubric = "the rubric of every review " * 40
    with Recorder(path, {}, frame_bytes=2000) as log:
        for i in range(50):
            assert log.text(rubric) == text_id(rubric)
            log.text(f"reply {i}" * 30)
            log.write(call(i, "a"))
    lines = zstd_lines(path)
    assert sum(rubric in line for line in lines) == 1


def zstd_lines(path: Path) -> list[str]:
    """What `zstd -dc` makes of a log: all data frames, skippable ones skipped."""
    with path.open("rb") as file:
        content = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    return content.decode().splitlines()


def test_any_zstd_tool_reads_a_log_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Recorder(path, {"method": "meshheal"}, frame_bytes=1000) as log:
        write_run(log, 20)
    kinds = [msgspec.json.decode(line)["kind"] for line in zstd_lines(path)]
    assert kinds[0] == "Header"
    assert kinds[-1] == "Footer"
    assert kinds.count("ModelCalled") == 20
    assert kinds.count("Text") == 40


# --- a log being written ------------------------------------------------------------------------------------


def test_a_log_being_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Recorder(path, {"seed": 3}, frame_bytes=4000)
    with LogFile(path) as read:
        assert read.header == {"seed": 3}
        assert read.counts() == {}
        write_run(log, 30)
        log.flush()
        read.refresh()
        assert read.counts()["TaskSettled"] == 30
        assert not read.complete
        log.close(valid=True)
        read.refresh()
        assert read.complete
        assert read.footer is not None
        assert read.footer["valid"] is True
        assert read.footer["counts"] == read.counts()


def test_a_killed_process_leaves_what_it_flushed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    script = f"""
import os, signal
from pathlib import Path
from meshheal.events import AgentFailed
from meshheal.trace.recorder import Recorder
log = Recorder(Path({str(path)!r}), {{}}, frame_bytes=2000)
for i in range(500):
    log.write(AgentFailed(node=0, seq=i, t=0.0, task=str(i), error="x" * 50))
log.flush()
log.write(AgentFailed(node=0, seq=500, t=0.0, error="lost"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    with LogFile(path) as read:
        assert [event.seq for event in read.events()] == list(range(500))
        assert not read.complete


def test_after_an_exception_the_log_is_readable_and_not_complete(tmp_path: Path) -> None:
    def run() -> None:
        with Recorder(tmp_path / "log", {}) as log:
            log.write(call(1, "a"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    with LogFile(tmp_path / "log") as read:
        assert [event.seq for event in read.events()] == [1]
        assert not read.complete


def test_live_folds_see_every_event_in_order(tmp_path: Path) -> None:
    for log in (Recorder(tmp_path / "log", {}), MemoryLog(), MemoryLog(keep=False)):
        seen: list[int] = []
        log.subscribe(lambda event, seen=seen: seen.append(event.seq))  # type: ignore[misc]
        with log:
            for i in range(2000):
                log.write(call(i, "a"))
        assert seen == list(range(2000))


def test_an_existing_log_is_never_overwritten(tmp_path: Path) -> None:
    recorded(tmp_path / "log", [call(1, "a")]).close()
    with pytest.raises(TraceError, match="exists already"):
        Recorder(tmp_path / "log", {})


# --- the hash -----------------------------------------------------------------------------------------------


def test_equal_events_have_equal_hashes_on_disk_and_in_memory(tmp_path: Path) -> None:
    logs: list[Callable[[], Recorder | MemoryLog]] = [
        lambda: Recorder(tmp_path / "a", {}),
        lambda: Recorder(tmp_path / "b", {"other": "header"}, frame_bytes=900, level=5),
        MemoryLog,
        lambda: MemoryLog(keep=False),
    ]
    hashes = set()
    for make in logs:
        with make() as log:
            write_run(log, 300)
            before_closing = log.event_hash
            hashes |= {before_closing, log.close(), log.event_hash}
    assert len(hashes) == 1


def test_the_hash_leaves_out_the_wall_clock_and_nothing_else(tmp_path: Path) -> None:
    def hash_of(name: str, **changed: object) -> str:
        event = msgspec.structs.replace(call(1, "a", model="m\ud800"), **changed)
        plain = msgspec.structs.replace(call(2, "b"), wall=changed.get("wall"))
        with recorded(tmp_path / name, [event, plain]) as log:
            assert log.footer is not None
            assert log.event_hash() == log.footer["hash"]
            return log.event_hash()

    assert hash_of("a") == hash_of("b", wall=1234.5) == hash_of("c", wall=99.0)
    assert hash_of("a") != hash_of("d", t=1.5)
    assert hash_of("a") != hash_of("e", task="b")


# --- cost ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200,000 events of 40,000 tasks."""
    path = tmp_path_factory.mktemp("long") / "log"
    with Recorder(path, {"seed": 1}, frame_bytes=60_000) as log:
        write_run(log, 40_000)
    return path


def test_a_long_log_opens_without_being_read(long_log: Path) -> None:
    size = long_log.stat().st_size
    with LogFile(long_log) as log:
        assert log.complete
        assert log.header == {"seed": 1}
        assert log.counts()["TaskSettled"] == 40_000
        assert log.bytes_read < 30_000 < size / 100


def test_one_task_is_read_alone(long_log: Path) -> None:
    size = long_log.stat().st_size
    with LogFile(long_log) as log:
        log.tasks()
        indexes = log.bytes_read
        events = log.task("math-23456")
        assert [type(e).__name__ for e in events][:2] == ["TaskArrived", "ModelCalled"]
        assert len(events) == 5
        assert isinstance(events[1], ev.ModelCalled)
        assert log.text(events[1].replies[0]).startswith("It is 46912")
        assert log.bytes_read - indexes < 40_000
    assert indexes < size / 5


def test_a_long_log_that_was_cut_opens_without_being_read(long_log: Path, tmp_path: Path) -> None:
    data = long_log.read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) * 3 // 4])
    with LogFile(tmp_path / "cut") as log:
        assert not log.complete
        assert log.counts()["TaskArrived"] > 25_000
        assert log.bytes_read < len(data) / 8


def test_events_of_one_kind_can_be_had_alone(long_log: Path) -> None:
    with LogFile(long_log) as log:
        settled = list(log.events("TaskSettled", "NoSuchKind"))
    assert len(settled) == 40_000
    assert {type(e) for e in settled} == {ev.TaskSettled}


@given(ids=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 4), max_size=3000))
@settings(max_examples=30, deadline=None)
def test_an_id_set_tells_new_ids_from_old(ids: list[int]) -> None:
    seen, reference = IdSet(), set()
    for id in ids:
        new = (id or 1) not in reference
        reference.add(id or 1)
        assert seen.add(id) == new


def test_a_record_in_an_event_comes_back(tmp_path: Path) -> None:
    record = ReviewRecord(
        id="1.2", task="a", producer=2, ability="law", kind="", channel="probe", score=0.25, reviewers=(3,),
        coordinator=1, time=2.0, votes=((4, 0.5),),
    )  # fmt: skip
    event = ev.EvidenceShared(node=1, seq=1, t=2.0, task="a", record=record, to=(2, 3))
    with recorded(tmp_path / "log", [event]) as log:
        assert log.task("a") == [event]
