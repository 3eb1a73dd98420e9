"""`meshheal run` and an experiment's own script: what bad input ends in, and what goes where."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys

import pytest
from tiny import MAIN, command, environment, write_outputs, write_script

from meshheal.cli.app import build, guarded
from meshheal.cli.run import overrides
from meshheal.errors import UsageError
from meshheal.trace.rundir import open_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a script of simulated models and one of recorded ones, and their data."""
    folder = tmp_path_factory.mktemp("made")
    write_script(folder / "simulated")
    write_script(folder / "recorded", "recorded")
    return folder


@pytest.fixture
def script(made):
    return made / "simulated" / "tiny_experiment.py"


@pytest.fixture
def recorded_script(made):
    return made / "recorded" / "tiny_experiment.py"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command in this process: `run(*arguments)` gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments, out="runs"):
        given = ["run", *map(str, arguments), "--parallel", "0", "--display", "none", "--out", str(out)]
        monkeypatch.setattr(sys, "argv", ["meshheal", *given])
        capsys.readouterr()
        code = 0
        try:
            guarded(build())
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return invoke


def assert_one_line(found, code, *says):
    """An error is one line that says what, ends with its exit code, and shows no traceback."""
    exit_code, out, err = found
    assert exit_code == code, err
    assert out == ""
    assert "Traceback" not in err
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("meshheal: ")
    for said in says:
        assert said in lines[0], lines[0]


QUICK = ("--seeds", "1", "--methods", "unprotected")


# --- what it does ---


def test_a_run_ends_with_a_table_that_says_what_is_simulated_and_where_everything_is(run, script, tmp_path):
    code, out, _ = run(script)
    assert code == 0
    for said in (
        "accuracy, degraded phase",
        "meshheal",
        "unprotected",
        "false exclusions",
        "simulated",
        "[95 % interval]",
    ):
        assert said in out.replace("mean [95 % interval]", "[95 % interval]")
    (directory,) = [line for line in out.splitlines() if line.startswith("run directory: ")]
    assert (tmp_path / directory.removeprefix("run directory: ") / "results.json").is_file()


def test_json_alone_is_on_standard_output_and_is_what_the_file_holds(run, script, tmp_path):
    code, out, err = run(script, "--json", *QUICK)
    assert code == 0
    assert json.loads(out) == open_run("latest", tmp_path / "runs").results
    assert "accuracy" in err


def test_recorded_models_are_called_recorded(run, recorded_script):
    code, out, _ = run(recorded_script, *QUICK)
    assert code == 0
    assert "recorded" in out
    assert "simulated models" not in out


def test_options_change_what_is_run(run, script, tmp_path):
    code, out, _ = run(
        script,
        "--json",
        "--seeds",
        1,
        "--methods",
        "unprotected,meshheal",
        "--tasks",
        90,
        "--degraded",
        "synthetic/llama-3.2-3b",
        "--healthy",
        "synthetic/gpt-oss-20b,synthetic/qwen3-30b-a3b",
        "--set",
        "recovery.burst=2",
    )
    assert code == 0
    found = json.loads(out)
    assert list(found["arms"]) == ["unprotected", "meshheal"]
    assert found["seeds"] == [0]
    assert found["arms"]["meshheal"]["per_seed"][0]["tasks"] == 90
    declared = open_run("latest", tmp_path / "runs").experiment
    assert declared["settings"]["recovery"]["burst"] == 2
    assert {f["to"] for f in declared["declaration"]["faults"]} == {"synthetic/llama-3.2-3b"}
    assert declared["declaration"]["healthy"] == ["synthetic/gpt-oss-20b", "synthetic/qwen3-30b-a3b"]


def test_the_runs_without_faults_can_be_left_out(run, script):
    with_them, without = (json.loads(run(script, "--json", *QUICK, twin)[1]) for twin in ("--twin", "--no-twin"))
    assert with_them["arms"]["unprotected"]["per_seed"][0]["accuracy_twin"] is not None
    assert without["arms"]["unprotected"]["per_seed"][0]["accuracy_twin"] is None


def test_settings_of_a_file_are_overridden_by_the_command_line(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text("[recovery]\nburst = 3\nbudget = 0.2\n[detector]\nkind = 'ewma'\n")
    found = overrides(
        {"recovery": {"burst": 1, "probation": 5}}, ["recovery.burst=2", "detector.shadow=['e-sr']"], file
    )
    assert found == {
        "recovery": {"burst": 2, "probation": 5, "budget": 0.2},
        "detector": {"kind": "ewma", "shadow": ["e-sr"]},
    }


@pytest.mark.slow
def test_an_experiments_own_script_takes_the_same_options(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(script), "--json", "--out", str(tmp_path), "--display", "plain", *QUICK],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["experiment"] == "tiny"
    assert "tasks" in done.stderr
    assert "tokens" in done.stderr


# --- bad input ---


def test_an_unknown_experiment_is_named(run):
    assert_one_line(run("nonesuch"), 2, "unknown experiment 'nonesuch'", "experiments/nonesuch.py")


def test_the_experiments_there_are_are_listed(run, tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "known.py").write_text("")
    assert_one_line(run("nonesuch"), 2, "there are: known")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("EXPERIMENT = 3", "declares no EXPERIMENT"),
        ("", "declares no EXPERIMENT"),
        ("def", "cannot be loaded: SyntaxError"),
        ("import nonesuch_module", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("from sim.faults import swap\nswap(0, 'm', 9, 3)", "at < back"),
    ],
)
def test_a_script_that_declares_nothing_usable(run, tmp_path, text, says):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert_one_line(run(path), 2, says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[detector\ndrop = 1", "not TOML"),
        ("drop = 0.1", "outside a section"),
        ("\xff", "not TOML"),
        ("[detektor]\ndrop = 0.1", "detektor"),
        ("[detector]\ndropp = 0.1", "detector.dropp"),
        ("[detector]\ndrop = 'much'", "detector.drop"),
        ("[detector]\ndrop = 1.5", "detector.drop"),
    ],
)
def test_a_settings_file_that_cannot_be_taken(run, script, tmp_path, text, says):
    path = tmp_path / "s.toml"
    path.write_bytes(text.encode("latin-1"))
    assert_one_line(run(script, "--config", path), 2, says)


def test_a_settings_file_that_is_not_there(run, script, tmp_path):
    assert_one_line(run(script, "--config", tmp_path / "none.toml"), 2, "none.toml", "No such file")
    assert_one_line(run(script, "--config", tmp_path), 2, "Is a directory")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("detector.drop=2", "detector.drop"),
        ("detector.drop=-0.1", "detector.drop"),
        ("detector.drop=x", "detector.drop"),
        ("recovery.burst=1.5", "recovery.burst"),
        ("review.verdict=coin", "review.verdict"),
        ("detector.dropp=0.2", "there is no such setting; choose one of kind, shadow"),
        ("detektor.drop=0.2", "there is no such setting; choose one of routing"),
        ("detector.drop=nan", "detector.drop"),
        ("detector.exclude_at=inf", "detector.exclude_at"),
        ("detector.kind=magic", "detector.kind"),
        ("detector.nonesuch=1", "detector.nonesuch"),
        ("nonesuch.drop=1", "nonesuch"),
        ("drop=1", "SECTION.NAME=VALUE"),
        ("detector.drop", "SECTION.NAME=VALUE"),
        ("detector.=1", "SECTION.NAME=VALUE"),
        ("detector.shadow=['magic']", "magic"),
        ("detector.clear_at=5", "clear_at"),
        ("detector.bets=[]", "detector.bets"),
        ("detector.bets=[-1.0]", "bets"),
    ],
)
def test_a_setting_that_cannot_be(run, script, setting, says):
    assert_one_line(run(script, "--set", setting), 2, says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--methods", "magic"], "unknown method 'magic'; there are: meshheal"),
        (["--methods", ","], "--methods"),
        (["--healthy", "synthetic/magic"], "synthetic/magic"),
        (["--healthy", ","], "--healthy"),
        (["--degraded", "magic"], "magic"),
        (["--workload", "magic"], "unknown name 'magic'; choose one of"),
        (["--seeds", "0"], "--seeds 0"),
        (["--seeds", "-3"], "--seeds -3"),
        (["--tasks", "0"], "0 tasks"),
        (["--tasks", "15"], "never comes"),
        (["--data", "nowhere"], "nowhere"),
        (["--resume", "nonesuch"], "no run 'nonesuch'"),
        (["--resume", "latest"], "no latest run"),
        (["--healthy", "recorded/nonesuch"], "recorded/nonesuch"),
    ],
)
def test_options_that_cannot_be(run, script, arguments, says):
    assert_one_line(run(script, *arguments), 2, says)


def test_an_unknown_display(tmp_path, script, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["meshheal", "run", str(script), "--display", "loud"])
    with pytest.raises(SystemExit) as end:
        guarded(build())
    assert_one_line((end.value.code, *capsys.readouterr()), 2, "choose none, plain or full")
    assert not (tmp_path / "runs").exists()


def test_a_topology_that_lacks_coverage_says_which_agent_lacks_what(run, made, tmp_path):
    text = (made / "simulated" / "tiny_experiment.py").read_text()
    path = tmp_path / "line.py"
    path.write_text(
        text.replace(
            "EXPERIMENT =", "from topologies import from_edges\nfrom msgspec.structs import replace\nEXPERIMENT ="
        ).replace(
            "if __name__",
            "LINE = from_edges(6, [(a, a + 1) for a in range(5)])\n"
            "EXPERIMENT = replace(EXPERIMENT, topology=LINE)\n\nif __name__",
        )
    )
    assert_one_line(run(path), 2, "agent 0 reaches", "producer", "Add edges")


def test_a_recorded_model_without_the_asked_items(run, made, tmp_path):
    """One model answered fewer questions than the workload's file has."""
    data = write_outputs(tmp_path / "data", 40)
    write_outputs(data, 10, {"weak": 0.5})
    script = tmp_path / "gaps.py"
    script.write_text(
        (made / "recorded" / "tiny_experiment.py")
        .read_text()
        .replace(str(made / "recorded" / "data"), str(data / "model_outputs_strong-a_5shots.json"))
    )
    found = run(script)
    assert found[0] == 2
    assert_one_line(found, 2, "recorded/")


def test_a_data_file_cut_in_the_middle(run, script, tmp_path):
    data = write_outputs(tmp_path / "data", 40)
    file = data / "model_outputs_strong-b_5shots.json"
    file.write_bytes(file.read_bytes()[:3000])
    assert_one_line(run(script, "--data", data), 2, "model_outputs_strong-b_5shots.json")


def test_a_data_file_of_another_kind(run, script, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "model_outputs_x_5shots.json").write_text('{"a": 1}')
    assert_one_line(run(script, "--data", tmp_path / "data"), 2, "model_outputs_x_5shots.json")
    (tmp_path / "data" / "model_outputs_x_5shots.json").write_bytes(b"\x00\xff\x00")
    assert_one_line(run(script, "--data", tmp_path / "data"), 2, "model_outputs_x_5shots.json")


# --- what the harness suffers ---


def test_a_run_directory_that_cannot_be_made(run, script, tmp_path):
    (tmp_path / "file").write_text("")
    assert_one_line(run(script, out=tmp_path / "file" / "runs"), 4, "cannot make a run directory", "--out")
    assert_one_line(run(script, out="/dev/null/runs"), 4, "cannot make a run directory", "--out")


def limited(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [0, 2])
def test_a_full_disk_is_one_line_and_what_was_written_stays_readable(tmp_path, parallel):
    script = write_script(tmp_path, tasks=600)
    done = command(
        "run",
        script,
        "--out",
        tmp_path / "runs",
        "--parallel",
        parallel,
        "--display",
        "none",
        "--methods",
        "meshheal",
        cwd=tmp_path,
        preexec_fn=limited(60_000),
    )
    assert_one_line((done.returncode, done.stdout, done.stderr), 4, "cannot write", "Make room")
    directory = open_run("latest", tmp_path / "runs")
    assert directory.results is None
    shown = command("log", directory.path, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.slow
def test_a_disk_too_full_for_the_declaration_is_one_line_too(tmp_path, script):
    done = command(
        "run",
        script,
        "--out",
        tmp_path / "runs",
        "--parallel",
        0,
        "--display",
        "none",
        cwd=tmp_path,
        preexec_fn=limited(100),
    )
    assert_one_line((done.returncode, done.stdout, done.stderr), 4, "cannot write")


def test_an_interrupt_before_anything_runs_is_130_too(run, script, monkeypatch):
    import meshheal.experiment

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(meshheal.experiment.WorkloadSpec, "load", lambda *_: interrupted(None))
    code, out, err = run(script)
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_an_exception_in_an_agent_makes_the_run_invalid_and_ends_with_1(run, script, monkeypatch):
    from meshheal.service import Service

    async def broken(_self, _ask):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Service, "produce", broken)
    code, out, _ = run(script, "--json", *QUICK)
    assert code == 1
    assert json.loads(out)["valid"] is False


def interrupted(tmp_path, wait):
    """A run in two worker processes that a terminal's Ctrl-C ends once `wait(process)` returns; gives its stderr."""
    script = write_script(tmp_path, tasks=3000)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", str(script), "--out", "runs", "--display", "plain", "--parallel", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        wait(process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.slow
def test_an_interrupt_is_130_and_says_how_to_go_on(tmp_path):
    err = interrupted(tmp_path, lambda process: process.stderr.readline())  # its first line of progress
    assert "--resume" in err


@pytest.mark.slow
def test_an_interrupt_while_the_workers_are_still_starting_shows_no_traceback_of_theirs(tmp_path):
    def directory_made(process):
        while process.poll() is None and not (tmp_path / "runs" / "latest").exists():
            pass

    assert "Traceback" not in interrupted(tmp_path, directory_made)


def test_an_interrupt_while_the_command_is_still_being_loaded_shows_no_traceback(tmp_path):
    code = "import sys, types\nclass Typer(types.ModuleType):\n    def __getattr__(self, _): raise KeyboardInterrupt\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}sys.modules['typer'] = Typer('typer')\n{MAIN}", "run", "x"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (130, "meshheal: interrupted\n")


def test_no_arguments_show_help_and_unknown_options_say_so(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["meshheal", "run", "--nonesuch"])
    with pytest.raises(SystemExit) as end:
        guarded(build())
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_value_of_the_wrong_kind_in_base_settings_is_a_usage_error():
    with pytest.raises(UsageError, match=r"SECTION\.NAME=VALUE"):
        overrides({}, ["x"], None)
