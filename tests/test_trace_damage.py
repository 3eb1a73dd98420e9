"""The event log where the file is cut or damaged, or the disk is full: what stands before is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from trace_logs import call, recorded, write_run

from meshheal import events as ev
from meshheal.errors import TraceError
from meshheal.rng import Stream
from meshheal.trace.frames import next_frame
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import Recorder

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
