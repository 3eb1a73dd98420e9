"""The event log: what is written is what is read, also where the file is cut, and at little cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshheal import events as ev
from meshheal.errors import InternalError, TraceError
from meshheal.model import text_id
from meshheal.rng import Stream
from meshheal.trace.frames import next_frame
from meshheal.trace.idset import IdSet
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import MemoryLog, Recorder
from meshheal.types import ReviewRecord, Usage

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


def call(seq: int, task: str, **fields: object) -> ev.ModelCalled:
    usual = {
        "model": "synthetic/a",
        "purpose": "produce",
        "subject": 0,
        "n": 0,
        "prompt": (),
        "prompt_hash": "00",
    }
    return ev.ModelCalled(node=0, seq=seq, t=float(seq), task=task, **{**usual, **fields})  # type: ignore[arg-type]


def write_run(log: Recorder | MemoryLog, tasks: int) -> None:
    """A run of five events and two texts a task, as like as can be to a real one."""
    draws = Stream("test-run")
    for i in range(tasks):
        task = f"math-{i}"
        prompt = log.text(f"What is {i} + {i}? " + "Reason step by step. " * 8)
        log.write(ev.TaskArrived(node=ev.WORLD, seq=i, t=i / 4, task=task, index=i, entry=i % 6, ability="algebra"))
        reply = log.text(f"It is {2 * i}, since {draws.uniform()} says so.")
        log.write(call(i, task, prompt=(("user", prompt),), replies=(reply,), usage=Usage(40, 12)))
        log.write(ev.FirstLook(node=1, seq=i, t=i / 4, task=task, producer=0, reviewer=2, scores=(draws.uniform(),)))
        log.write(ev.TaskSettled(node=1, seq=i, t=i / 4, task=task, outcome="accepted", value=str(2 * i)))
        log.write(ev.TaskGraded(node=ev.WORLD, seq=i, t=i / 4, task=task, correct=True))


def recorded(path: Path, events: Sequence[ev.Event], texts: Sequence[str] = (), **options: int) -> LogFile:
    path.unlink(missing_ok=True)
    with Recorder(path, {"seed": 1}, **options) as log:
        for text in texts:
            log.text(text)
        for event in events:
            log.write(event)
    return LogFile(path)


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


# --- cut files ----------------------------------------------------------------------------------------------


def assert_prefix(path: Path, whole: list[ev.AnyEvent], size: int) -> int:
    """The number of events read from a cut file, after checking that they are the first ones."""
    with LogFile(path) as log:
        events = list(log.events())
        assert events == whole[: len(events)]
        assert log.complete == (path.stat().st_size == size)
        assert sum(log.counts().values()) == len(events) == len(log)
        assert log.tasks() == list(dict.fromkeys(e.task for e in events))
        if events:
            assert log.task(events[-1].task) == [e for e in events if e.task == events[-1].task]
        for event in events:
            if isinstance(event, ev.ModelCalled):
                assert log.text(event.replies[0]).startswith("It is ")
    return len(events)


@pytest.fixture
def short_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index after every third frame."""
    monkeypatch.setattr("meshheal.trace.recorder.INDEX_EVERY", 3)


@pytest.mark.usefixtures("short_indexes")
def test_a_log_cut_at_any_byte_is_read_to_its_last_whole_frame(tmp_path: Path) -> None:
    path, cut = tmp_path / "log", tmp_path / "cut"
    with Recorder(path, {}, frame_bytes=1500) as recorder:
        write_run(recorder, 9)
    data = path.read_bytes()
    header = next_frame(lambda at, n: data[at : at + n], 0, len(data))
    assert header is not None
    whole = list(LogFile(path).events())
    read: list[int] = []
    with cut.open("wb", buffering=0) as file:  # grown byte by byte
        for size in range(len(data) + 1):
            if size < header.length:
                with pytest.raises(TraceError, match="cut before its first record"):
                    LogFile(cut)
            else:
                with LogFile(cut) as log:
                    n = len(list(log.events()))
                # All else stays the same as long as no further frame is whole, but for the last bytes.
                if n not in read or size > len(data) - 50:
                    assert assert_prefix(cut, whole, len(data)) == n
                read.append(n)
            file.write(data[size : size + 1])
    assert read == sorted(read)
    assert set(read) >= {0, len(whole)}
    assert len(set(read)) > 4


@pytest.mark.usefixtures("short_indexes")
def test_a_large_log_cut_anywhere_is_read_to_its_last_whole_frame(tmp_path: Path) -> None:
    path, cut = tmp_path / "log", tmp_path / "cut"
    with Recorder(path, {}, frame_bytes=20_000) as log:
        write_run(log, 400)
    data = path.read_bytes()
    whole = list(LogFile(path).events())
    draws = Stream("cuts")
    for _ in range(25):
        size = 500 + draws.index(len(data) - 500)
        cut.write_bytes(data[:size])
        assert assert_prefix(cut, whole, len(data)) > (size / len(data) - 0.3) * len(whole)


@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"\x28\xb5\x2f\xfd" + b"\xff" * 300, b"mhindex1" * 100])
def test_what_stands_after_the_last_whole_frame_does_no_harm(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "log"
    log = Recorder(path, {}, frame_bytes=5000)
    write_run(log, 50)
    log.abort()
    before = path.stat().st_size
    with path.open("ab") as file:
        file.write(garbage)
    with LogFile(path) as read:
        assert len(list(read.events())) == 250
        assert read.whole_bytes() == before
        assert not read.complete


@pytest.mark.usefixtures("short_indexes")
def test_no_flipped_byte_is_taken_for_data(tmp_path: Path) -> None:
    path, bad = tmp_path / "log", tmp_path / "bad"
    with Recorder(path, {}, frame_bytes=3000) as log:
        write_run(log, 30)
    data = path.read_bytes()
    whole = list(LogFile(path).events())
    draws = Stream("flips")
    noticed = 0
    for _ in range(150):
        at = draws.index(len(data))
        bad.write_bytes(data[:at] + bytes([data[at] ^ (1 + draws.index(255))]) + data[at + 1 :])
        try:
            with LogFile(bad) as read:
                events = list(read.events())
                assert events == whole[: len(events)]
                noticed += not read.complete
        except TraceError:
            noticed += 1
    assert noticed > 100


def test_a_file_that_is_no_log_is_refused_in_one_line(tmp_path: Path) -> None:
    for name, content in {
        "empty": b"",
        "text": b"hello" * 50,
        "zstd": zstandard.compress(b'{"kind":"Other"}'),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TraceError, match="is no event log") as caught:
            LogFile(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(TraceError, match="cannot read"):
        LogFile(tmp_path / "absent")


def test_a_log_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "log", []).close()
    line = b'{"kind": "Header", "schema": 99}\n'
    (tmp_path / "log").write_bytes(zstandard.compress(line))
    with pytest.raises(TraceError, match="schema version 99"):
        LogFile(tmp_path / "log")


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


# --- full disks ---------------------------------------------------------------------------------------------


def test_a_full_disk_ends_in_one_line_and_what_was_written_stays_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, 30_000

    def limited(fd: int, data: bytes) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(28, "No space left on device")
        n = real(fd, bytes(data[:room]))
        room -= n
        return n

    monkeypatch.setattr("meshheal.trace.recorder.os.write", limited)
    path = tmp_path / "log"
    with (
        pytest.raises(TraceError, match="No space left on device") as caught,
        Recorder(path, {}, frame_bytes=5000) as log,
    ):
        write_run(log, 5000)
    assert "\n" not in str(caught.value)
    with LogFile(path) as read:
        assert len(list(read.events())) > 500
        assert not read.complete
        assert read.whole_bytes() == path.stat().st_size  # no half frame is left


def test_a_log_that_lost_a_frame_is_never_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = Recorder(path, {})
    log.write(call(1, "a"))
    log.flush()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("meshheal.trace.recorder.os.write", full)
        log.write(call(2, "a"))
        with pytest.raises(TraceError):
            log.flush()
    log.write(call(3, "a"))
    with pytest.raises(TraceError, match="closed"):
        log.flush()
    log.close()
    with LogFile(path) as read:
        assert not read.complete
        assert [event.seq for event in read.events()] == [1]


def test_a_limit_on_file_size_ends_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    script = f"""
import resource, signal, sys
from pathlib import Path
from meshheal.errors import TraceError
from meshheal.events import AgentFailed
from meshheal.trace.recorder import Recorder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    with Recorder(Path({str(path)!r}), {{}}, frame_bytes=4000) as log:
        for i in range(100_000):
            log.write(AgentFailed(node=i, seq=i * 7919, t=i / 7, error=str(hash(i))))
except TraceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("\n") == 1
    assert "Make room" in done.stdout
    with LogFile(path) as read:
        assert len(list(read.events())) > 100


@pytest.mark.parametrize("place", ["absent/log", "file/log"])
def test_a_place_that_cannot_be_written_is_told_of_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot write") as caught:
        Recorder(tmp_path / place, {})
    assert "\n" not in str(caught.value)


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
