"""What is done to a stream of tasks: orders, wrong labels, agents that come and go, judges that like everything."""

from __future__ import annotations

from collections import Counter

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from meshheal.errors import UsageError
from meshheal.experiment import Arm, prepare, run_arm, world
from meshheal.trace.recorder import MemoryLog
from sim.faults import join, leave
from sim.local import LocalRun
from sim.models.profiles import PROFILES
from sim.workloads import gym
from sim.workloads.stream import ORDERS, arranged, mislabelled

WORKLOAD = gym("math").load()
TASKS = WORKLOAD.tasks(120, 0)


@given(st.sampled_from([o for o in ORDERS if o != "harder"]), st.integers(0, 50))
def test_an_order_keeps_every_task_once(order, seed):
    assert sorted(t.id for t in arranged(TASKS, WORKLOAD, order, seed)) == sorted(t.id for t in TASKS)


def test_a_changing_mix_goes_from_the_first_ability_to_the_last_and_never_loses_one():
    made = arranged(WORKLOAD.tasks(600, 1), WORKLOAD, "abilities", 1)
    first, last = (Counter(t.ability for t in part) for part in (made[:200], made[-200:]))
    assert first["algebra"] > 2 * last["algebra"]
    assert last["geometry"] > 2 * first["geometry"]


def test_ever_harder_needs_levels():
    with pytest.raises(UsageError, match="does not say how hard"):
        arranged(TASKS, WORKLOAD, "harder", 0)


@pytest.mark.data
def test_ever_harder_raises_the_mean_level(data):
    from sim.workloads import math

    workload = math(data=str(data / "math" / "test.jsonl")).load()
    made = [workload.difficulty(t.id) for t in arranged(workload.tasks(600, 0), workload, "harder", 0)]
    assert sum(made[-200:]) / 200 > sum(made[:200]) / 200 + 0.2


@given(st.floats(0.05, 0.9), st.integers(0, 20))
def test_a_mislabelled_task_needs_what_it_was_drawn_for(rate, seed):
    found = mislabelled(TASKS, WORKLOAD.abilities, rate, seed)
    for before, after in zip(TASKS, found.tasks, strict=True):
        assert found.needs.get(before.id, after.ability) == before.ability
        assert (before.ability != after.ability) == (before.id in found.needs)


def test_a_higher_rate_mislabels_what_a_lower_one_does_and_more():
    few, many = (mislabelled(TASKS, WORKLOAD.abilities, rate, 3).needs for rate in (0.1, 0.3))
    assert set(few) < set(many)
    assert not mislabelled(TASKS, WORKLOAD.abilities, 0.0, 3).needs


def experiment(tmp_path, **fields):
    fields = {"methods": ("unprotected",), "faults": (), **fields}
    return tiny.simulated(tiny.write_outputs(tmp_path / "data"), 60, **fields)


def played(prepared, method="unprotected"):
    log = MemoryLog()
    LocalRun(world(prepared, Arm(method, 0)), log).run()
    return log.events


def test_a_mislabelled_task_runs_on_the_model_for_what_it_needs(tmp_path):
    prepared = prepare(experiment(tmp_path, misrouting=0.4))
    needs = world(prepared, Arm("unprotected", 0)).needs
    calls = [e for e in played(prepared) if type(e).__name__ == "ModelCalled"]
    held = [set(prepared.topology.held(a)) for a in range(6)]
    for call in calls:
        needed = needs.get(call.task)
        if needed is not None:
            assert (call.model == "synthetic/llama-3.1-8b") == (needed not in held[call.node])
    assert any(c.model == "synthetic/llama-3.1-8b" for c in calls)


def test_misrouting_costs_accuracy_only_where_models_are_bound_to_abilities(tmp_path):
    def accuracy(**fields):
        return run_arm(prepare(experiment(tmp_path, **fields)), Arm("unprotected", 0), None).accuracy_healthy

    strong = "synthetic/gpt-oss-120b"
    assert accuracy(misrouting=0.6) < accuracy()
    assert accuracy(misrouting=0.6, outside=strong) == accuracy(outside=strong)


def test_who_has_not_joined_or_has_left_does_nothing_and_no_task_enters_there(tmp_path):
    prepared = prepare(experiment(tmp_path, faults=(join(1, 20), leave(4, 40)), methods=("meshheal",)))
    index, before = -1, {1: 20, 4: None}
    for event in played(prepared, "meshheal"):
        if type(event).__name__ == "TaskArrived":
            index = event.index
            assert not (event.entry == 1 and index < 20)
            assert not (event.entry == 4 and index >= 40)
        if type(event).__name__ == "ModelCalled":
            assert not (event.node == 1 and index < 20)
            assert not (event.node == 4 and index > 40)
            before[event.node] = index
    assert before[1] > 20
    assert before[4] is not None


def test_nobody_joins_at_the_first_arrival():
    with pytest.raises(UsageError, match="must be 1 or more"):
        join(0, 0)


def test_an_agreeable_judge_accepts_wrong_answers_at_the_declared_rate_and_right_ones_no_less():
    profile = PROFILES["gpt-oss-120b"].agreeable(0.9)
    assert (profile.accept_wrong_solved.value, profile.accept_wrong_unsolved.value) == (0.9, 0.9)
    assert (profile.accept_right_solved.value, profile.accept_right_unsolved.value) == (0.97, 0.9)


@pytest.mark.parametrize("wrong", [{"order": "sideways"}, {"misrouting": 1.0}, {"agreeable": 2.0}])
def test_what_cannot_be_is_refused_in_one_line(tmp_path, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        prepare(experiment(tmp_path, **wrong))
