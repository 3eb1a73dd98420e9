"""An experiment: what its declaration unfolds into, what is refused, and that a log folds to the run's results."""

from __future__ import annotations

import json

import msgspec
import pytest
import tiny
from msgspec.structs import replace
from tiny import write_outputs

from meshheal.errors import TraceError, UsageError
from meshheal.experiment import Arm, fold_arm, prepare, run_arm, world
from meshheal.trace.reader import LogFile
from sim.faults import Crash, Partition, swap
from sim.links import LinkProfile
from sim.world import Closed, Poisson
from topologies import complete, parse, ring


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_outputs(tmp_path_factory.mktemp("data"), 60)


@pytest.fixture(scope="module")
def experiment(made):
    return tiny.simulated(made, 40)


# --- arms ---


def test_arms_are_every_method_and_seed_with_a_twin_each(experiment):
    arms = experiment.arms()
    assert len(arms) == len(set(map(repr, arms))) == 2 * 2 * 2
    assert {a.label for a in arms} == {"meshheal", "meshheal+twin", "unprotected", "unprotected+twin"}


def test_seeds_count_from_the_first(experiment):
    assert {a.seed for a in replace(experiment, first_seed=7, seeds=3).arms()} == {7, 8, 9}


def test_there_is_no_twin_where_nothing_degrades_or_none_is_wanted(experiment):
    assert not [a for a in replace(experiment, faults=()).arms() if a.twin]
    assert not [a for a in replace(experiment, twin=False).arms() if a.twin]
    placebo = replace(experiment, faults=(swap(0, "synthetic/gpt-oss-120b", 5, 9, degraded=False),))
    assert not [a for a in placebo.arms() if a.twin]


def test_the_degraded_phase_is_from_the_first_onset_to_the_last_recovery(experiment):
    assert experiment.phase() == (40 // 6, 2 * 40 // 3)
    assert replace(experiment, faults=()).phase() is None
    assert replace(experiment, faults=(Crash(0, 3, 5),)).phase() is None


def test_models_are_given_out_in_turn(experiment):
    assert replace(experiment, healthy=("a", "b", "c")).healthy_of(5) == ["a", "b", "c", "a", "b"]
    assert replace(experiment, healthy="a").healthy_of(3) == ["a", "a", "a"]


def test_a_declaration_is_plain_json_with_all_that_was_declared(experiment):
    varied = replace(
        experiment,
        faults=(*experiment.faults, Crash(1, 2, 3, 0.5), Partition(((0, 1), (2,)), 4, 5)),
        links=LinkProfile(loss=0.1),
        stream=Poisson(0.5),
        settings={"recovery": {"burst": 2}},
    )
    plain = json.loads(json.dumps(varied.declaration(), allow_nan=False))
    assert {f["type"] for f in plain["faults"]} == {"swap", "crash", "partition"}
    assert plain["links"]["loss"] == 0.1
    assert plain["stream"] == {"type": "poisson", "rate": 0.5}
    assert plain["settings"] == {"recovery": {"burst": 2}}
    assert set(plain) == set(varied.__struct_fields__) - {"topology"}


# --- what is refused ---


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": 0}, "--seeds 0"),
        ({"methods": ("magic",)}, "unknown method"),
        ({"healthy": "synthetic/magic"}, "synthetic/magic"),
        ({"outside": "magic"}, "'magic'"),
        ({"faults": (swap(6, "synthetic/gpt-oss-20b", 1, 5),)}, "agents 0 to 5"),
        ({"faults": (swap(0, "synthetic/gpt-oss-20b", 40, 50),)}, "never comes"),
        ({"faults": (swap(0, "synthetic/gpt-oss-20b", 1, 9), swap(0, "synthetic/gpt-oss-20b", 5, 12))}, "overlap"),
        ({"settings": {"detector": {"drop": 3}}}, "detector.drop"),
        ({"settings": {"magic": {}}}, "no such setting"),
        ({"settings": {"detector": {"clear_at": 2.0, "suspect_at": 2.0}}}, "must be below suspect_at"),
        ({"methods": ()}, "method"),
        ({"healthy": ()}, "healthy"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(experiment, change, says):
    with pytest.raises(UsageError, match=says) as refused:
        prepare(replace(experiment, **change))
    assert "\n" not in str(refused.value)


def test_a_model_of_a_later_fault_is_checked_before_anything_runs(experiment):
    late = (swap(0, "synthetic/magic", 30, 35),)
    with pytest.raises(UsageError, match="synthetic/magic"):
        prepare(replace(experiment, faults=late))


def test_a_network_named_by_its_text_is_made_for_the_workloads_abilities(experiment):
    prepared = prepare(replace(experiment, topology=parse("complete:8"), seeds=1))
    assert len(prepared.topology) == 8
    assert set(prepared.topology.ability_names) == set(prepared.workload.abilities)


def test_each_ability_is_held_by_four_of_six(experiment):
    topology = prepare(experiment).topology
    for ability in topology.ability_names:
        assert sum(ability in topology.held(a) for a in range(6)) == 4


def test_experiments_on_other_networks_run_to_their_end(experiment):
    for network in (ring(9, 2), complete(7)):
        prepared = prepare(replace(experiment, topology=network))
        assert run_arm(prepared, Arm("meshheal", 0), None).tasks == 40


@pytest.mark.parametrize("stream", [Closed(3), Poisson(0.2)])
def test_experiments_with_many_in_flight_run_to_their_end(experiment, stream):
    result = run_arm(prepare(replace(experiment, stream=stream)), Arm("meshheal", 0), None)
    assert sum(result.outcomes.values()) == 40


def test_a_stream_of_impossible_shape_is_refused(experiment):
    for stream in (Closed(0), Closed(-1), Poisson(0.0), Poisson(-1.0)):
        with pytest.raises(UsageError, match="stream"):
            prepare(replace(experiment, stream=stream))


def test_links_of_impossible_shape_are_refused(experiment):
    for links in (LinkProfile(loss=1.5), LinkProfile(latency=-1.0), LinkProfile(duplicate=-0.1)):
        with pytest.raises(UsageError, match="links"):
            prepare(replace(experiment, links=links))


# --- runs ---


def test_a_run_with_a_log_and_one_without_give_the_same(experiment, tmp_path):
    prepared = prepare(experiment)
    logged = run_arm(prepared, Arm("meshheal", 0), tmp_path / "a.jsonl.zst")
    assert msgspec.to_builtins(run_arm(prepared, Arm("meshheal", 0), None)) == msgspec.to_builtins(logged)


@pytest.mark.parametrize("arm", [Arm("meshheal", 0), Arm("meshheal", 1, twin=True), Arm("unprotected", 0)])
def test_a_log_folds_to_the_results_of_its_run(experiment, tmp_path, arm):
    prepared = prepare(experiment)
    result = run_arm(prepared, arm, tmp_path / "a.jsonl.zst")
    assert msgspec.to_builtins(fold_arm(prepared, arm, tmp_path / "a.jsonl.zst")) == msgspec.to_builtins(result)


def test_a_log_says_what_it_is_of(experiment, tmp_path):
    run_arm(prepare(experiment), Arm("meshheal", 1, twin=True), tmp_path / "a.jsonl.zst")
    with LogFile(tmp_path / "a.jsonl.zst") as log:
        header, footer = log.header, log.footer
    assert (header["experiment"], header["method"], header["seed"], header["twin"]) == ("tiny", "meshheal", 1, True)
    assert header["topology"]["agents"] == 6
    assert header["topology"]["hash"]
    assert header["workload"]["source"]
    assert footer["complete"] is True
    assert footer["virtual_seconds"] > 0


def test_an_existing_log_is_not_written_over(experiment, tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"precious")
    with pytest.raises(TraceError, match="exists already"):
        run_arm(prepare(experiment), Arm("meshheal", 0), path)
    assert path.read_bytes() == b"precious"


def test_a_twin_has_no_faults_and_the_phase_of_its_run(experiment):
    prepared = prepare(experiment)
    assert not world(prepared, Arm("meshheal", 0, twin=True)).faults
    twin = run_arm(prepared, Arm("meshheal", 0, twin=True), None)
    assert twin.accuracy_degraded is not None
    assert twin.detection == []


def test_a_progress_report_comes_with_every_task(experiment):
    told = []
    run_arm(prepare(experiment), Arm("meshheal", 0), None, report=lambda p: told.append((p.tasks, p.calls)))
    assert [t for t, _ in told] == list(range(1, 41))
    assert [c for _, c in told] == sorted(c for _, c in told)


def test_runs_of_recorded_models_say_so(made):
    assert prepare(tiny.recorded(made, 40)).natures() == {"recorded"}
    assert prepare(tiny.simulated(made, 40)).natures() == {"simulated"}
    assert prepare(replace(tiny.recorded(made, 40), outside="synthetic/llama-3.1-8b")).natures() == {
        "recorded",
        "simulated",
    }
