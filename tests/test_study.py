"""Whole runs into a directory: stopped, killed, resumed, and always the same results in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import tiny
from msgspec.structs import replace
from tiny import MAIN, environment, write_outputs

from meshheal.errors import UsageError
from meshheal.folds.summary import SeedResult
from meshheal.study import Study
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import open_run
from sim.models import Recorded, Synthetic

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TASKS = 90
KINDS = pytest.mark.parametrize("kind", ["simulated", "recorded"])

STOPPED = """
import os, signal, sys
import meshheal.experiment as x
from meshheal.cli.app import run
seen, original = [0], x.Progress.__call__
def counting(self, event):
    original(self, event)
    seen[0] += 1
    if seen[0] == {at}:
        os.kill(os.getpid(), signal.{how})
x.Progress.__call__ = counting
from meshheal.trace import recorder
recorder.Recorder.__init__.__kwdefaults__["frame_bytes"] = 20_000
run()
"""


def quiet(_arm, _value):
    pass


def start(experiment, out):
    return Study.start(experiment, out, NOW)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_outputs(tmp_path_factory.mktemp("data"), 60)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """Results of uninterrupted runs, by kind."""
    return {
        kind: start(getattr(tiny, kind)(data, TASKS), tmp_path_factory.mktemp(kind)).run(0, quiet)
        for kind in ("simulated", "recorded")
    }


def stopped(tmp_path, data, kind, at, how, *options):
    """Run a script until it has seen `at` events, then let a signal end it; gives (exit code, script)."""
    script = tmp_path / "tiny_experiment.py"
    script.write_text(tiny.SCRIPT.format(kind=kind, data=str(data), tasks=TASKS))
    arguments = ["run", str(script), "--out", "runs", "--parallel", "0", "--display", "none", *options]
    done = subprocess.run(
        [sys.executable, "-c", STOPPED.format(at=at, how=how), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(),
        cwd=tmp_path,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, script


def resumed(tmp_path, data, kind, **fields):
    out = tmp_path / "runs"
    return Study.resume("latest", out, getattr(tiny, kind)(data, TASKS, **fields))


def counting_calls(monkeypatch):
    """Counts what the models are really asked."""
    calls = [0]
    for cls in (Synthetic, Recorded):
        original = cls.complete

        async def complete(self, request, original=original):
            calls[0] += 1
            return await original(self, request)

        monkeypatch.setattr(cls, "complete", complete)
    return calls


# --- in one go ---


def test_results_do_not_depend_on_how_many_processes_work(tmp_path, data, whole):
    found = start(tiny.simulated(data, TASKS), tmp_path).run(2, quiet)
    assert found == whole["simulated"]


def test_what_is_returned_is_what_the_file_holds(tmp_path, data):
    study = start(tiny.simulated(data, 40), tmp_path)
    assert study.directory.results is None
    assert (
        study.run(0, quiet)
        == study.directory.results
        == json.loads((study.directory.path / "results.json").read_text())
    )


def test_each_arm_and_its_twin_has_a_log(tmp_path, data):
    study = start(tiny.simulated(data, 40), tmp_path)
    study.run(0, quiet)
    labels = {(m + t, s) for m in ("meshheal", "unprotected") for t in ("", "+twin") for s in (0, 1)}
    assert {(a.method, a.seed) for a in study.directory.complete_arms()} == labels


def test_the_hash_in_the_results_is_that_of_the_log(tmp_path, data):
    study = start(tiny.simulated(data, 40), tmp_path)
    found = study.run(0, quiet)
    for method, arm in found["arms"].items():
        for seed in arm["per_seed"]:
            with LogFile(study.directory.log_path(method, seed["seed"])) as log:
                assert log.footer["hash"] == seed["event_hash"]


def test_the_watch_sees_every_arm_end_once(tmp_path, data):
    ended = []
    study = start(tiny.simulated(data, 40), tmp_path)
    study.run(0, lambda arm, value: ended.append(arm) if isinstance(value, SeedResult) else None)
    assert sorted(map(repr, ended)) == sorted(map(repr, study.experiment.arms()))


def test_a_complete_run_is_resumed_by_reading_it(tmp_path, data, monkeypatch):
    first = start(tiny.simulated(data, 40), tmp_path).run(0, quiet)
    calls = counting_calls(monkeypatch)
    assert Study.resume("latest", tmp_path, tiny.simulated(data, 40)).run(0, quiet) == first
    assert calls == [0]


# --- stopped and resumed ---


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize(("how", "code"), [("SIGKILL", -signal.SIGKILL), ("SIGINT", 130)])
def test_a_stopped_run_is_completed_to_what_an_uninterrupted_one_gives(
    tmp_path, data, whole, monkeypatch, kind, how, code
):
    exit_code, _ = stopped(tmp_path, data, kind, 2500, how)
    assert exit_code == code
    calls = counting_calls(monkeypatch)
    study = resumed(tmp_path, data, kind)
    assert study.directory.results is None
    complete = len(study.directory.complete_arms())
    held = sum(_calls(study.directory.log_path(*arm)) for arm in study.directory.arms())
    assert held > 0, "the cut log holds nothing, so nothing is tested"
    found = study.run(0, quiet)
    assert found == whole[kind]
    total = sum(_calls(study.directory.log_path(*arm)) for arm in study.directory.arms())
    assert calls[0] == total - held, "completions of the cut log are used, and no more than those are asked for"
    assert len(study.directory.complete_arms()) == 8 > complete
    assert not list((study.directory.path / "events").glob("*.cut*"))


def _calls(log):
    with LogFile(log) as file:
        return sum(1 for _ in file.calls(None))


@pytest.mark.slow
def test_a_run_may_be_killed_again_and_again(tmp_path, data, whole):
    stopped(tmp_path, data, "simulated", 2000, "SIGKILL")
    for at in (900, 3000):
        code, _ = stopped(tmp_path, data, "simulated", at, "SIGKILL", "--resume", "latest")
        assert code == -signal.SIGKILL
    assert resumed(tmp_path, data, "simulated").run(0, quiet) == whole["simulated"]


@pytest.mark.slow
def test_a_run_with_timeouts_and_failing_calls_is_resumed_to_the_same(tmp_path, data):
    """Some simulated replies take longer than the deadline: a recorded timeout is a timeout again."""
    slow = {"settings": {"limits": {"call_timeout": 8.0}}}
    straight = start(tiny.simulated(data, TASKS, **slow), tmp_path / "straight").run(0, quiet)
    with LogFile(open_run("latest", tmp_path / "straight").log_path("meshheal", 0)) as log:
        assert any(call.failure == "timeout" and call.usage.total for _, call in log.calls(None))
    stopped(tmp_path, data, "simulated", 2000, "SIGKILL", "--set", "limits.call_timeout=8.0")
    assert resumed(tmp_path, data, "simulated", **slow).run(0, quiet) == straight


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_run_and_it_says_how_to_go_on(tmp_path, data):
    script = tmp_path / "tiny_experiment.py"
    script.write_text(tiny.SCRIPT.format(kind="simulated", data=str(data), tasks=TASKS))
    (tmp_path / "sitecustomize.py").write_text(
        "import multiprocessing, os, signal, sys\n"
        "if multiprocessing.parent_process() is not None or '--multiprocessing-fork' in sys.argv:\n"
        "    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))\n"
        "    signal.setitimer(signal.ITIMER_REAL, 3.0)\n"
    )
    environment_ = environment()
    environment_["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment_["PYTHONPATH"]])
    arguments = [
        "run",
        str(script),
        "--out",
        "runs",
        "--parallel",
        "2",
        "--display",
        "none",
        "--tasks",
        str(20 * TASKS),
    ]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment_,
        cwd=tmp_path,
    )
    assert done.returncode == 4, done.stderr
    assert "worker process died" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.data
@pytest.mark.slow
def test_a_run_on_published_answers_is_resumed_to_the_same(tmp_path, request):
    from sim.workloads import mmlu_pro

    folder = request.getfixturevalue("published")
    experiment = replace(
        tiny.recorded(folder, TASKS),
        workload=mmlu_pro(TASKS, str(folder)),
        seeds=1,
        twin=False,
        methods=("meshheal",),
        healthy=(
            "recorded/gemini-1.5-pro-002",
            "recorded/gemini-1.5-flash-002",
            "recorded/Meta-Llama-3_1-70B-Instruct",
        ),
        outside="recorded/Meta-Llama-3_1-8B-Instruct",
        faults=tuple(replace(f, to="recorded/Llama-2-7b-hf") for f in tiny.recorded(folder, TASKS).faults),
    )
    straight = start(experiment, tmp_path / "a").run(0, quiet)
    study = start(experiment, tmp_path / "b")
    source = open_run("latest", tmp_path / "a").log_path("meshheal", 0)
    whole = source.read_bytes()
    study.directory.log_path("meshheal", 0).write_bytes(whole[: len(whole) // 2])
    assert Study.resume("latest", tmp_path / "b", experiment).run(0, quiet) == straight


@pytest.fixture
def published():
    """The published MMLU-Pro outputs, under the rule of the `data` fixture, which this file shadows."""
    from conftest import data_folder

    return data_folder() / "mmlu_pro"


def test_a_run_of_other_options_is_not_resumed_and_the_difference_is_named(tmp_path, data):
    start(tiny.simulated(data, 40), tmp_path)
    for changed, says in (
        ({"settings": {"detector": {"drop": 0.2}}}, "declaration, settings"),
        ({"seeds": 3}, "declaration"),
    ):
        with pytest.raises(UsageError, match=f"differs in {says}"):
            Study.resume("latest", tmp_path, tiny.simulated(data, 40, **changed))


def test_two_processes_do_not_write_one_run(tmp_path, data):
    study = start(tiny.simulated(data, 40), tmp_path)
    other = Study.resume("latest", tmp_path, tiny.simulated(data, 40))
    with study.directory.exclusive(), pytest.raises(UsageError, match="written by another process"):
        other.run(0, quiet)


@pytest.mark.slow
def test_a_script_resumes_by_name(tmp_path, data):
    code, script = stopped(tmp_path, data, "simulated", 500, "SIGKILL")
    name = open_run("latest", tmp_path / "runs").name
    done = tiny.command(
        "run", script, "--out", "runs", "--resume", name, "--parallel", 0, "--display", "none", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert name in done.stdout
    assert code == -signal.SIGKILL
