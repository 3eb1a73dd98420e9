"""Tuning: the same number of configurations for every method, one rule, development seeds, and runs that say so."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from meshheal.cli.run import Changes, adapt, chosen, load
from meshheal.cli.table import all_tables
from meshheal.config import Settings
from meshheal.errors import UsageError
from meshheal.experiment import Arm, prepare, world
from meshheal.methods import METHODS
from meshheal.output.tables import tables
from meshheal.stats import mean_interval
from meshheal.suite import Suite, SuiteStudy, also_tuned
from meshheal.trace.rundir import open_run, read_json
from meshheal.tuning import CHOSEN, SCORES, TIE, Tried, Tuned, best, read, write

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WITH_GRID = [name for name, method in METHODS.items() if method.grid]
MILD = {"meshheal": {"detector": {"drop": 0.08}}}


def quiet(_arm, _value):
    pass


def tried(accuracy, tokens, name=""):
    return Tried({"review": {name: 0}}, mean_interval([accuracy]), mean_interval([tokens]))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_outputs(tmp_path_factory.mktemp("data"))


# --- the budget ---


@pytest.mark.parametrize("name", WITH_GRID)
def test_each_grid_has_eight_configurations_that_differ_the_published_one_first(name):
    method = METHODS[name]
    made = [method.settings(Settings.model_validate(configuration)) for configuration in method.grid]
    assert len(made) == len({repr(settings) for settings in made}) == 8
    assert made[0] == method.settings(Settings())


def test_the_methods_without_a_grid_are_bounds_parts_of_meshheal_or_have_nothing_to_tune():
    parts = {n for n in METHODS if n.startswith("meshheal-")} - {"meshheal-seed", "meshheal-central"}
    without = {n for n in METHODS if n not in WITH_GRID and not METHODS[n].oracle}
    assert without == parts | {"unprotected", "vote"}


def test_the_study_gives_every_method_every_configuration_on_every_benchmark_on_seeds_no_table_uses():
    suite = load(str(EXPERIMENTS / "tuning.py"))
    for name in WITH_GRID:
        given = [e.by_method[name] for e in suite.experiments.values() if name in e.methods]
        assert [given.count(configuration) for configuration in METHODS[name].grid] == [3] * 8
    development = {a.seed for e in suite.experiments.values() for a in e.arms()}
    for script in EXPERIMENTS.glob("*.py"):
        declared = load(str(script))
        every = declared.experiments.values() if isinstance(declared, Suite) else [declared]
        if script.stem != "tuning":
            assert all(development.isdisjoint(a.seed for a in e.arms()) for e in every), script


# --- the rule ---


def test_the_highest_accuracy_is_chosen_whatever_it_costs():
    assert best([tried(0.90, 100), tried(0.93, 900), tried(0.92, 1)]).accuracy.mean == 0.93


def test_among_nearly_equal_ones_the_cheapest_is_chosen_and_among_equal_ones_the_first():
    near = [tried(0.930, 900, "dear"), tried(0.926, 300, "cheap"), tried(0.926, 300, "same"), tried(0.92, 1, "worse")]
    assert best(near).settings == {"review": {"cheap": 0}}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1, 1e6)), min_size=1, max_size=8))
def test_nothing_as_good_as_the_best_is_cheaper_than_what_is_chosen(pairs):
    of = [tried(a, t) for a, t in pairs]
    found = best(of)
    top = max(a for a, _ in pairs)
    assert found.accuracy.mean >= top - TIE
    assert all(t >= found.tokens.mean for a, t in pairs if a >= top - TIE)


# --- settings of single methods ---


def test_a_methods_own_settings_are_its_alone_and_what_is_asked_for_of_all_wins(data):
    e = tiny.simulated(data, 40, by_method=MILD)
    made = prepare(e)
    assert world(made, Arm("meshheal", 0)).settings.detector.drop == 0.08
    assert world(made, Arm("unprotected", 0)).settings == Settings()
    asked = prepare(replace(e, settings={"detector": {"drop": 0.3}}))
    assert world(asked, Arm("meshheal", 0)).settings.detector.drop == 0.3


def test_what_makes_a_method_wins_over_its_own_settings(data):
    e = tiny.simulated(
        data, 40, methods=("canary-threshold",), by_method={"canary-threshold": {"detector": {"kind": "ewma"}}}
    )
    assert world(prepare(e), Arm("canary-threshold", 0)).settings.detector.kind == "fixed-threshold"


def test_settings_that_cannot_be_are_refused_in_one_line(data):
    with pytest.raises(UsageError, match=r"detector\.drop"):
        prepare(tiny.simulated(data, 40, by_method={"meshheal": {"detector": {"drop": 3}}}))


def test_a_seed_that_settings_were_tuned_on_is_refused(data):
    e = tiny.simulated(data, 40, by_method=MILD, tuned_on=(5, 6), seeds=5)
    prepare(e)
    with pytest.raises(UsageError, match="seed 5: the settings were tuned on it"):
        prepare(replace(e, seeds=6))


# --- a study from tuning to a tuned run ---


@pytest.fixture(scope="module")
def tuned(data, tmp_path_factory):
    """A study of two configurations of two methods, run to its end: its directory and its results."""
    grids = {"meshheal": METHODS["meshheal"].grid, "canary-ecusum": METHODS["canary-ecusum"].grid}
    suite = Suite(
        name="tuning",
        experiments={
            f"tiny-{n}": tiny.simulated(
                data,
                60,
                name=f"tiny_{n}",
                methods=(*grids, "unprotected"),
                by_method={m: g[n] for m, g in grids.items()},
                first_seed=1000,
                twin=False,
            )
            for n in range(2)
        },
        after=write,
    )
    study = SuiteStudy.start(suite, tmp_path_factory.mktemp("runs"), NOW)
    return study.path, study.run(0, [quiet] * 2)


def test_tuning_writes_what_it_chose_as_the_rule_says(tuned):
    path, content = tuned
    scores, made = read_json(path / SCORES), read(path / CHOSEN)
    assert made.seeds == tuple(scores["seeds"]) == (1000, 1001)
    assert set(made.settings) == {"meshheal", "canary-ecusum"}
    for method, rows in scores["methods"].items():
        for n, row in enumerate(rows):
            arm = content["experiments"][f"tiny-{n}"]["arms"][method]["summary"]
            for measure in ("accuracy_degraded", "tokens_per_task"):
                assert row[measure]["mean"] == pytest.approx(arm[measure]["mean"])
                assert row[measure]["ci95"] == pytest.approx(arm[measure]["ci95"])
        a, b = ((r["accuracy_degraded"]["mean"], r["tokens_per_task"]["mean"]) for r in rows)
        first = a[0] > b[0] + TIE or (abs(a[0] - b[0]) <= TIE and a[1] <= b[1])
        assert [r["chosen"] for r in rows] == [first, not first]
        assert [r["published"] for r in rows] == [True, False]
        assert made.settings[method] == METHODS[method].grid[0 if first else 1]


def test_its_table_has_each_method_at_both_settings_with_intervals(tuned):
    path, content = tuned
    (table,) = all_tables(content, path)
    assert "simulated models, 2 development seeds (1000 to 1001)" in table.title
    assert {row[0] for row in table.rows} == {"meshheal", "canary-ecusum"}
    assert all("[" in cell for row in table.rows for cell in row[table.labels :])


def test_a_tuned_study_runs_both_ways_says_so_and_writes_down_the_settings(tuned, data, tmp_path):
    path, _ = tuned
    suite = also_tuned(tiny.simulated(data, 30, seeds=1, twin=False), replace(read(path / CHOSEN), settings=MILD))
    study = SuiteStudy.start(suite, tmp_path, NOW)
    content = study.run(0, [quiet] * 2)
    assert [content["experiments"][label].get("tuned_on") for label in suite.experiments] == [None, [1000, 1001]]
    declared = open_run("latest/tuned", tmp_path).experiment["declaration"]
    assert (declared["by_method"], declared["tuned_on"]) == (MILD, [1000, 1001])
    for table in tables(content):
        assert "simulated models, methods tuned on development seeds 1000 to 1001 in tuned" in table.title
    assert "tuned on development seeds 1000 to 1001" in tables(content["experiments"]["tuned"])[0].title


def test_every_experiment_of_a_study_gets_its_tuned_form_and_either_can_be_taken_alone(data):
    suite = Suite(name="s", experiments={"a": tiny.simulated(data), "b": tiny.simulated(data)}, columns=("detected",))
    both = also_tuned(suite, Tuned((1000,), MILD))
    assert list(both.experiments) == ["a", "a-tuned", "b", "b-tuned"]
    assert (both.name, both.columns) == ("s-tuned", suite.columns)
    assert list(chosen(both, "b-tuned", False).experiments) == ["b-tuned"]


def test_a_configuration_that_lacks_a_workload_is_not_compared(data, tmp_path):
    other = {"name": "other", "methods": ("meshheal",), "twin": False, "seeds": 1, "by_method": MILD}
    suite = Suite(
        name="uneven",
        experiments={
            "one": tiny.simulated(data, 30, **{**other, "by_method": {"meshheal": METHODS["meshheal"].grid[0]}}),
            "two": replace(
                tiny.simulated(data, 30, **other),
                workload=load(str(EXPERIMENTS / "tuning.py")).experiments["bbh-0"].workload,
            ),
        },
        after=write,
    )
    suite = adapt(suite, Changes(tasks=30))
    with pytest.raises(UsageError, match="not every configuration ran on every workload"):
        SuiteStudy.start(suite, tmp_path, NOW).run(0, [quiet] * 2)


def test_a_study_without_a_degraded_phase_chooses_nothing(data, tmp_path):
    e = tiny.simulated(data, 20, methods=("meshheal",), faults=(), twin=False, by_method=MILD)
    with pytest.raises(UsageError, match="no degraded phase"):
        SuiteStudy.start(Suite(name="well", experiments={"a": e}, after=write), tmp_path, NOW).run(0, [quiet])


# --- the file ---


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seeds = [", "not TOML"),
        ("seeds = 3", "needs seeds"),
        ("seeds = [1]", "needs seeds"),
        ("seeds = [1]\nsettings.meshheal = 3", r"settings\.meshheal"),
        ("seeds = [1]\n[settings.magic]\nreview.accept_at = 0.5", "unknown method 'magic'"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, text, says):
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(UsageError, match=says) as refused:
        read(tmp_path / "t.toml")
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    done = tiny.command("run", tiny.write_script(tmp_path), "--tuned", tmp_path / "no.toml")
    assert done.returncode == 2
    assert "no.toml: No such file" in done.stderr


def test_the_committed_choice_is_of_the_declared_configurations_for_exactly_the_methods_that_have_any():
    made = read(EXPERIMENTS / "tuned.toml")
    assert set(made.settings) == set(WITH_GRID)
    for name, settings in made.settings.items():
        assert settings in METHODS[name].grid
    assert made.seeds == tuple(range(1000, 1003))
