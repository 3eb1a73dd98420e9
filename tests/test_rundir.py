"""The run directory: found wherever it is moved, written by one process at a time, never half written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from meshheal.errors import InternalError, TraceError, UsageError
from meshheal.events import AgentFailed
from meshheal.trace.recorder import Recorder
from meshheal.trace.rundir import Arm, RunDir, create, open_run

NOW = datetime(2026, 3, 1, 23, 30, 5, tzinfo=timezone(timedelta(hours=-2)))
EXPERIMENT = {"name": "staggered_math", "seeds": [0, 1]}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return create(tmp_path / "runs", "staggered_math", NOW, EXPERIMENT)


def record(run: RunDir, method: str, seed: int, events: int = 3, *, complete: bool = True) -> None:
    log = Recorder(run.log_path(method, seed), {"method": method})
    for i in range(events):
        log.write(AgentFailed(node=0, seq=i, t=0.0, task="a", error="e"))
    log.close() if complete else log.abort()


def test_a_run_is_named_by_its_experiment_the_time_in_utc_and_a_number(tmp_path: Path) -> None:
    names = [create(tmp_path, "e", NOW, {}).name for _ in range(3)]
    assert names == ["e-20260302T013005-1", "e-20260302T013005-2", "e-20260302T013005-3"]
    assert (tmp_path / "latest").read_text() == names[-1] + "\n"


def test_a_run_is_opened_by_path_by_name_and_as_the_latest(run: RunDir, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    for given in (run.path, str(run.path), run.name, "latest"):
        opened = open_run(given, out)
        assert opened.path.samefile(run.path)
        assert opened.experiment == EXPERIMENT


def test_a_moved_run_is_still_a_run(run: RunDir, tmp_path: Path) -> None:
    record(run, "meshheal", 0)
    run.write_results({"valid": True})
    shutil.move(run.path, tmp_path / "archive")
    moved = open_run(tmp_path / "archive", tmp_path / "runs")
    assert moved.complete_arms() == [Arm("meshheal", 0)]
    assert moved.results == {"valid": True}
    for file in moved.path.rglob("*.json"):
        assert str(tmp_path) not in file.read_text()


@pytest.mark.parametrize("given", ["absent", "latest", "/absent/run"])
def test_a_run_that_is_not_there_is_told_of_with_what_to_do(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_run(given, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_wrong_name_is_answered_with_the_runs_there_are(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=run.name):
        open_run("stagered", tmp_path / "runs")


@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", ".hidden", "x\n"])
def test_names_that_are_no_file_names_are_refused(run: RunDir, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name"):
        create(tmp_path, name, NOW, {})
    with pytest.raises(UsageError, match="cannot name"):
        run.log_path(name, 1)


def test_arms_are_read_from_the_names_of_their_logs(run: RunDir) -> None:
    for method, seed in [("meshheal-seed", 3), ("meshheal", 12), ("meshheal", 2), ("none", -1)]:
        record(run, method, seed, complete=seed != 12)
    (run.path / "events" / "notes.txt").write_text("")
    (run.path / "events" / "broken-1.jsonl.zst").write_bytes(b"not a log")
    assert run.complete_arms() == [Arm("meshheal", 2), Arm("meshheal-seed", 3), Arm("none", -1)]
    assert Arm("meshheal", 12) in run.arms()


def test_a_cut_log_is_set_aside_to_resume_from(run: RunDir) -> None:
    assert run.set_aside("meshheal", 0) is None
    record(run, "meshheal", 0, events=50, complete=False)
    kept = run.set_aside("meshheal", 0)
    assert kept is not None
    assert run.arms() == []
    record(run, "meshheal", 0, events=20, complete=False)  # killed while it was resumed
    assert run.set_aside("meshheal", 0) == kept
    record(run, "meshheal", 0, events=60)
    assert run.arms() == run.complete_arms() == [Arm("meshheal", 0)]
    from meshheal.trace.reader import LogFile

    with LogFile(kept) as log:
        assert len(log) == 50  # the longer one
    run.drop_set_aside("meshheal", 0)
    assert not kept.exists()


def test_an_unreadable_log_is_set_aside_as_nothing(run: RunDir) -> None:
    run.log_path("meshheal", 0).write_bytes(b"\0" * 100)
    assert run.set_aside("meshheal", 0) is None
    record(run, "meshheal", 0)


def test_the_lock_file_says_what_ran_and_not_where(run: RunDir) -> None:
    lock = json.loads((run.path / "lock.json").read_text())
    assert lock["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"meshheal", "msgspec", "zstandard", "numpy"} <= lock["packages"].keys()
    assert lock["git"] is None or len(lock["git"]["commit"]) == 40
    text = json.dumps(lock)
    assert os.uname().nodename not in text
    assert "/" not in text


def test_results_are_written_whole_or_not_at_all(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.results is None
    run.write_results({"a": 1})
    run.write_results({"a": 2, "text": "\ud800é"})
    assert run.results == {"a": 2, "text": "\ud800é"}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("meshheal.trace.rundir.os.replace", full)
    with pytest.raises(TraceError, match="No space left on device"):
        run.write_results({"a": 3})
    assert run.results == {"a": 2, "text": "\ud800é"}
    assert sorted(p.name for p in run.path.iterdir() if p.is_file()) == [
        "experiment.json",
        "lock.json",
        "results.json",
    ]


def test_results_that_are_no_json_are_a_bug_of_ours(run: RunDir) -> None:
    with pytest.raises(InternalError, match=r"results\.json"):
        run.write_results({"mean": float("nan")})
    assert run.results is None


def test_a_damaged_file_is_told_of_in_one_line(run: RunDir) -> None:
    (run.path / "results.json").write_text('{"schema_ver')
    with pytest.raises(TraceError, match=r"results\.json cannot be read"):
        _ = run.results


def test_a_place_that_cannot_be_written_is_told_of_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="choose another with --out") as caught:
        create(tmp_path / "file" / "runs", "e", NOW, {})
    assert "\n" not in str(caught.value)


_HOLD = """
import sys
from pathlib import Path
from meshheal.trace.rundir import RunDir
with RunDir(Path(sys.argv[1])).exclusive():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_write_to_one_run_and_a_killed_one_holds_nothing(run: RunDir) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="being written by another process"), run.exclusive():
            pass
        other.kill()
    with run.exclusive():
        pass
    with run.exclusive():
        pass


def test_a_run_is_copied_to_anywhere_results_last(run: RunDir) -> None:
    fsspec = pytest.importorskip("fsspec")
    record(run, "meshheal", 0, events=40)
    record(run, "none", 0, events=40, complete=False)
    cut = run.log_path("none", 0)
    whole = cut.read_bytes()
    cut.write_bytes(whole + whole[-40:-5])  # half a frame
    run.write_results({"valid": True})
    with run.exclusive():
        copied = run.copy_to("memory://bucket/runs")
    assert copied[-1] == "results.json"
    assert set(copied) == {
        "experiment.json", "lock.json", "results.json",
        "events/meshheal-0.jsonl.zst", "events/none-0.jsonl.zst",
    }  # fmt: skip
    there = fsspec.filesystem("memory")
    root = f"/bucket/runs/{run.name}/events"
    assert there.cat(f"{root}/meshheal-0.jsonl.zst") == run.log_path("meshheal", 0).read_bytes()
    assert there.cat(f"{root}/none-0.jsonl.zst") == whole
    assert "events/meshheal-0.jsonl.zst" not in run.copy_to("memory://bucket/runs")


def test_a_copy_goes_to_a_local_directory_too(run: RunDir, tmp_path: Path) -> None:
    record(run, "meshheal", 0)
    run.copy_to(str(tmp_path / "backup"))
    assert open_run(run.name, tmp_path / "backup").complete_arms() == [Arm("meshheal", 0)]


@pytest.mark.parametrize("url", ["nosuch://bucket", "file/runs"])
def test_a_copy_that_cannot_be_made_is_told_of_in_one_line(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises((UsageError, TraceError), match="cannot copy") as caught:
        run.copy_to(url)
    assert "\n" not in str(caught.value)


def test_a_utc_time_is_taken_as_it_is(tmp_path: Path) -> None:
    assert create(tmp_path, "e", datetime(2026, 1, 2, tzinfo=UTC), {}).name == "e-20260102T000000-1"
