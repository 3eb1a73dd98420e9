"""The same experiment and seed give the same events: in any process, under any hash seed, whatever the gold answers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tiny
from conftest import data_folder
from msgspec.structs import replace
from scripted import Played, make_world
from tiny import environment, write_outputs

from meshheal.experiment import Arm, prepare, run_arm, world
from meshheal.model import CallKey, Completion, Request
from meshheal.trace.recorder import MemoryLog
from meshheal.types import Answer, ReviewRecord, Task
from sim.links import LinkProfile
from sim.local import LocalRun
from sim.workloads import gym, mmlu_pro

HASH = """
import sys
from pathlib import Path
import tiny
from meshheal.experiment import Arm, prepare, run_arm
from sim.links import LinkProfile
e = getattr(tiny, sys.argv[1])(Path(sys.argv[2]), 60)
rough = tiny.simulated(Path(sys.argv[2]), 60, links=LinkProfile(latency=.2, latency_sigma=.5, loss=.05, duplicate=.1))
for experiment, method in ((e, "meshheal"), (e, "meshheal-seed"), (rough, "meshheal")):
    print(run_arm(prepare(experiment), Arm(method, 0), None).event_hash)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_outputs(tmp_path_factory.mktemp("data"), 60)


def hashes(kind, folder, hash_seed):
    done = subprocess.run(
        [sys.executable, "-c", HASH, kind, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment(PYTHONHASHSEED=hash_seed),
    )
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simulated", "recorded"])
def test_the_event_hash_is_the_same_under_any_hash_seed(made, kind):
    one, other = (hashes(kind, made, seed) for seed in ("1", "4242"))
    assert one == other
    assert len(set(one)) == 3


def test_another_seed_gives_another_run(made):
    prepared = prepare(tiny.simulated(made, 40))
    assert len({run_arm(prepared, Arm("meshheal", seed), None).event_hash for seed in (0, 1, 2)}) == 3


def test_an_arm_does_not_depend_on_what_ran_before_it_in_the_process(made):
    shared = prepare(tiny.simulated(made, 40))
    run_arm(shared, Arm("unprotected", 1), None)
    run_arm(shared, Arm("meshheal", 1), None)
    later = run_arm(shared, Arm("meshheal", 0), None).event_hash
    assert later == run_arm(prepare(tiny.simulated(made, 40)), Arm("meshheal", 0), None).event_hash


def test_methods_and_twins_see_the_same_tasks_at_the_same_agents(made):
    prepared = prepare(tiny.simulated(made, 40))

    def arrivals(arm):
        log = MemoryLog()
        LocalRun(world(prepared, arm), log).run()
        return [(e.task, e.entry, e.ability) for e in log.events if type(e).__name__ == "TaskArrived"]

    first = arrivals(Arm("meshheal", 0))
    assert arrivals(Arm("meshheal", 0, twin=True)) == first == arrivals(Arm("unprotected", 0))


def test_before_the_first_fault_a_run_and_its_twin_are_one(made):
    prepared = prepare(tiny.simulated(made, 60))

    def before(arm):
        log = MemoryLog()
        LocalRun(world(prepared, arm), log).run()
        told = [e for e in log.events if type(e).__name__ != "Swapped"]
        start = next(i for i, e in enumerate(told) if type(e).__name__ == "TaskArrived" and e.index == 10)
        return [repr(e) for e in told[:start]]

    assert before(Arm("meshheal", 0)) == before(Arm("meshheal", 0, twin=True))


# --- gold answers ---


GOLDEN = ("gold", "answer", "correct", "solution", "target", "label")


def test_tasks_requests_and_records_have_no_place_for_a_gold_answer():
    for kind in (Task, Request, CallKey, Completion, ReviewRecord):
        assert not [f for f in kind.__struct_fields__ if f in GOLDEN]
    assert set(Task.__struct_fields__) == {"id", "messages", "form", "ability", "kind", "cloze"}
    assert set(Answer.__struct_fields__) == {"task", "producer", "text", "value", "fault"}


def test_the_tasks_of_a_workload_do_not_spell_their_gold_answers_out_for_the_model(made):
    """A planted gold that no prompt, id or kind could hold by chance."""
    workload = mmlu_pro(20, str(made)).load()
    planted = workload.sheet.with_golds(dict.fromkeys(workload.sheet.ids(), "XYZZY"))
    held = json.dumps([repr(t) for t in replace(workload, sheet=planted).tasks(20, 0)])
    assert "XYZZY" not in held


def test_a_generated_task_does_not_carry_its_metadata():
    for task in gym("math", 20).load().tasks(20, 0):
        assert "metadata" not in repr(task)
        assert len(task.messages) >= 1


def log_with_golds(prepared, method, turn):
    """Everything in the log but grades, with the gold answers of all items moved on by `turn` items."""
    sheet = prepared.workload.sheet
    ids = sheet.ids()
    moved = sheet.with_golds({a: sheet.gold(b) for a, b in zip(ids, ids[turn:] + ids[:turn], strict=True)})
    changed = replace(prepared.workload, sheet=moved)
    log = MemoryLog()
    prepared.workload = changed
    LocalRun(world(prepared, Arm(method, 0)), log).run()
    grades = [e.correct for e in log.events if type(e).__name__ == "TaskGraded"]
    return [repr(e) for e in log.events if type(e).__name__ != "TaskGraded"], grades


@pytest.mark.parametrize("method", ["meshheal", "meshheal-seed", "unprotected"])
def test_other_gold_answers_change_nothing_but_the_grades_of_a_recorded_run(made, method):
    experiment = tiny.recorded(made, 90)
    one, grades = log_with_golds(prepare(experiment), method, 0)
    other, regraded = log_with_golds(prepare(experiment), method, 3)
    assert one == other
    assert grades != regraded


@pytest.mark.data
@pytest.mark.slow
def test_other_gold_answers_change_nothing_but_the_grades_of_a_run_on_published_answers():
    folder = data_folder() / "mmlu_pro"
    experiment = replace(
        tiny.recorded(folder, 150),
        workload=mmlu_pro(150, str(folder)),
        healthy=(
            "recorded/gemini-1.5-pro-002",
            "recorded/gemini-1.5-flash-002",
            "recorded/Meta-Llama-3_1-70B-Instruct",
        ),
        outside="recorded/Meta-Llama-3_1-8B-Instruct",
        faults=tuple(replace(f, to="recorded/Llama-2-7b-hf") for f in tiny.recorded(folder, 150).faults),
    )
    prepared = prepare(experiment)
    one, grades = log_with_golds(prepared, "meshheal", 0)
    other, regraded = log_with_golds(prepared, "meshheal", 1001)
    assert one == other
    assert sum(g is True for g in grades) > 2 * sum(g is True for g in regraded)


# --- the harness keeps what it knows to itself ---


def test_no_request_tells_a_model_that_it_is_swapped_probed_or_suspected(script):
    from sim.faults import swap

    Played(
        make_world(
            120,
            script=script,
            faults=[swap(2, "foul-z", 10, 100)],
            settings={"recovery": {"burst": 4, "budget": 0.5}},
        )
    )
    texts = {m.content for r in script.asked for m in r.messages}
    for word in ("probe", "suspect", "swap", "excluded", "degraded", "foul"):
        assert not [t for t in texts if word in t.lower()], word


def test_links_draw_from_a_stream_of_their_own():
    """The same tasks, entries and producers of first choice, whatever the links do."""
    plain = Played(make_world(20))
    slow = Played(make_world(20, links=LinkProfile(latency=0.1)))
    for kind in ("TaskArrived", "ProducerAsked"):
        one, other = (
            [
                (e.task, getattr(e, "producer", getattr(e, "entry", None)))
                for e in p.log.events
                if type(e).__name__ == kind
            ]
            for p in (plain, slow)
        )
        assert one == other
