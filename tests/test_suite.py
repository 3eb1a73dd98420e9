"""Several experiments as one study: one directory, one progress, the same results however it is run."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import tiny
from msgspec.structs import replace
from tiny import command, write_outputs

from meshheal.compare import between, within
from meshheal.errors import UsageError
from meshheal.suite import Suite, SuiteStudy, real
from meshheal.trace.rundir import find_run, open_run, suite_runs
from sim.workloads import gym

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def quiet(_arm, _value):
    pass


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_outputs(tmp_path_factory.mktemp("data"))


def two(data, **fields):
    return Suite(
        name="two",
        experiments={
            "short": tiny.simulated(data, 30, name="short", seeds=1),
            "long": tiny.simulated(data, 42, name="long", seeds=2, methods=("unprotected", "meshheal")),
        },
        **fields,
    )


def ran(suite, out, parallel=0):
    study = SuiteStudy.start(suite, out, NOW)
    return study, study.run(parallel, [quiet] * len(suite.experiments))


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return out, *ran(two(data), out)


def test_every_experiment_has_a_run_directory_of_its_own(done):
    out, study, content = done
    assert list(content["experiments"]) == ["short", "long"]
    for label, run in suite_runs(study.path).items():
        assert run.results == content["experiments"][label]
    assert open_run("latest/long", out).results == content["experiments"]["long"]
    assert find_run("latest", out) == study.path


@pytest.mark.slow
def test_the_results_do_not_depend_on_how_many_run_at_a_time(done, data, tmp_path):
    _, _, content = done
    assert json.dumps(ran(two(data), tmp_path, parallel=2)[1]) == json.dumps(content)


def test_a_study_cut_off_is_completed_to_the_same_results(done, data, tmp_path):
    _, _, content = done
    study = SuiteStudy.start(two(data), tmp_path, NOW)
    first = next(iter(study.studies.values()))
    first.run(0, quiet)
    resumed = SuiteStudy.resume(study.name, tmp_path, two(data))
    assert resumed.run(0, [quiet, quiet]) == content


def test_a_study_of_other_experiments_is_not_resumed(done, data):
    out, study, _ = done
    other = two(data)
    other = replace(other, experiments={"short": other.experiments["short"]})
    with pytest.raises(UsageError, match="has other experiments"):
        SuiteStudy.resume(study.name, out, other)
    with pytest.raises(UsageError, match="run of one experiment"):
        SuiteStudy.resume(f"{study.name}/short", out, other)


def test_a_study_is_not_mistaken_for_a_run(done):
    out, _, _ = done
    with pytest.raises(UsageError, match=r"latest/short"):
        open_run("latest", out)


def test_generated_tasks_give_way_to_the_benchmarks_own_items(tmp_path):
    (tmp_path / "bbh").mkdir()
    spec = real(gym("math", tasks=50, benchmark="BBH"), tmp_path)
    assert (spec.name, spec.tasks, spec.benchmark, spec.data) == ("bbh", 50, None, str(tmp_path / "bbh"))
    assert real(gym("math"), tmp_path) == gym("math")
    with pytest.raises(UsageError, match=r"no math/test\.jsonl"):
        real(gym("math", benchmark="MATH"), tmp_path)


def test_generated_tasks_may_stand_for_another_benchmark():
    workload = gym("math", tasks=5, benchmark="MMLU-Pro").load()
    assert workload.benchmark == "MMLU-Pro"
    assert "proxy" in workload.source
    assert "MATH is" not in workload.source


def test_runs_on_the_same_tasks_are_paired_by_seed_and_others_are_not(done):
    out, _, _ = done
    run, other = open_run("latest/long", out), open_run("latest/short", out)
    same = between(run, run)
    assert same.seeds.startswith("paired by seed: 2 in common")
    assert all(c["difference"]["mean"] == 0 and c["p"] in (1, None) for c in same.comparisons)
    assert "differ in tasks" in between(run, other).seeds


def test_the_methods_of_one_run_are_compared_and_only_the_declared_is_adjusted(done):
    out, _, _ = done
    found = within(open_run("latest/long", out)).comparisons
    declared = [c for c in found if c["family"] == "declared"]
    assert [(c["method"], c["against"], c["measure"]) for c in declared] == [
        ("meshheal", "unprotected", "accuracy_degraded")
    ]
    assert all(c["p_holm"] is None for c in found if c["family"] == "exploratory")


def test_the_command_shows_compares_and_writes_tables(done, tmp_path):
    out, study, _ = done
    shown = command("tables", study.name, "--out", out, "--format", "md")
    assert "two: simulated models" in shown.stdout
    assert "declared comparisons, a family for each experiment, simulated models" in shown.stdout
    assert command("tables", study.name, "--out", out, "--format", "latex", "-o", tmp_path / "t.tex").returncode == 0
    assert r"\begin{tabular}" in (tmp_path / "t.tex").read_text()
    costs = command("tables", study.name, "--out", out, "--costs", "--format", "md").stdout
    assert "100.00 %" in costs
    assert "processor ms a task" in costs
    compared = command("compare", "latest/long", "latest/short", "--out", out, "--json")
    assert json.loads(compared.stdout)["mode"] == "simulated"
    nowhere = command("tables", study.name, "--out", out, "-o", tmp_path / "t.txt")
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (2, 1)
    assert "add --format" in nowhere.stderr
    wrong = command("tables", study.name, "--out", out, "--format", "word")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_script_of_a_suite_takes_the_options_of_an_experiment(data, tmp_path):
    script = tmp_path / "grid.py"
    script.write_text(
        "import tiny\nfrom meshheal.suite import Suite, main\n"
        f"SUITE = Suite(name='grid', experiments={{'one': tiny.simulated({str(data)!r}, 60)}})\n"
    )
    ran = command(
        "run", script, "--out", tmp_path / "r", "--seeds", 1, "--tasks", 30, "--methods", "unprotected",
        "--parallel", 0, "--json",
    )  # fmt: skip
    content = json.loads(ran.stdout)
    assert list(content["experiments"]["one"]["arms"]) == ["unprotected"]
    assert content["experiments"]["one"]["seeds"] == [0]
    refused = command("run", script, "--workload", "bbh")
    assert "workloads of its own" in refused.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_as_tasks_of_a_ray_cluster_the_results_are_the_same(done, data, tmp_path):
    ray = pytest.importorskip("ray", reason="needs the extra `ray`")
    _, _, content = done
    try:
        assert json.dumps(ran(two(data), tmp_path, parallel="ray")[1]) == json.dumps(content)
    finally:
        ray.shutdown()


def test_what_is_no_number_of_runs_is_refused_in_one_line(data, tmp_path):
    script = tmp_path / "one.py"
    script.write_text(f"import tiny\nEXPERIMENT = tiny.simulated({str(data)!r}, 60)\n")
    refused = command("run", script, "--parallel", "many", "--out", tmp_path)
    assert (refused.returncode, refused.stderr) == (
        2,
        "meshheal: --parallel many: give a number of runs at a time, or ray\n",
    )
