"""Reviewers are watched too: losers of votes, and reviews that tell nothing."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.events import EvidenceShared, ReviewersUninformative
from meshheal.experiment import Arm, Experiment, prepare, world
from meshheal.reviewers import Calibration, ReviewerWatch
from meshheal.rng import Stream
from meshheal.trace.recorder import Recorder
from meshheal.types import ReviewRecord
from sim.faults import swap
from sim.local import LocalRun
from sim.workloads import gym
from topologies import complete

CUT = 0.5


def committee(votes, verdict=0.5):
    return ReviewRecord(
        id="r",
        task="t",
        producer=9,
        ability="algebra",
        kind="",
        channel="first_look",
        score=0.2,
        reviewers=(),
        coordinator=0,
        time=0.0,
        committee=verdict,
        votes=tuple(votes.items()),
    )


def meet(watch, n, wrong, *name, beat=0):
    """`n` committees of three; every member votes rightly but with the chance `wrong` gives it."""
    draw, found = Stream("reviewers", *name), []
    for i in range(n):
        truth = draw.uniform() < 0.5
        votes = {a: (0.9 if truth != (draw.uniform() < p) else 0.1) for a, p in wrong.items()}
        found += watch.observe(committee(votes), beat + i)
    return found


def test_a_reviewer_that_always_loses_is_no_longer_asked():
    watch = ReviewerWatch(5, CUT)
    found = meet(watch, 100, {1: 0.05, 2: 0.05, 3: 0.95})
    assert [(f.agent, f.active) for f in found][:1] == [(3, False)]
    assert not watch.trusted(3)
    assert watch.trusted(1)
    assert watch.trusted(2)


@pytest.mark.parametrize("seed", range(5))
def test_reviewers_that_err_alike_are_all_kept(seed):
    watch = ReviewerWatch(5, CUT)
    assert not meet(watch, 200, {1: 0.15, 2: 0.15, 3: 0.15}, seed)


def test_losing_a_few_votes_costs_nothing():
    watch = ReviewerWatch(5, CUT)
    watch.observe(committee({1: 0.9, 2: 0.9, 3: 0.1}), 0)
    watch.observe(committee({1: 0.9, 2: 0.9, 3: 0.1}), 1)
    assert watch.trusted(3)


def test_one_that_was_set_aside_is_tried_again_after_its_rest():
    watch = ReviewerWatch(5, CUT, rest=50)
    meet(watch, 60, {1: 0.0, 2: 0.0, 3: 1.0}, beat=0)
    assert not watch.trusted(3)
    found = meet(watch, 1, {1: 0.0, 2: 0.0}, beat=500)
    assert [(f.agent, f.active) for f in found] == [(3, True)]
    assert watch.trusted(3)


def test_an_output_without_a_committee_says_nothing_about_reviewers():
    watch = ReviewerWatch(5, CUT)
    for i in range(100):
        assert not watch.observe(committee({}, None), i)
        assert not watch.observe(committee({3: 0.1}), i)
    assert watch.trusted(3)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=60), st.integers(0, 60))
def test_the_watch_goes_on_from_its_state(votes, cut):
    one, other = ReviewerWatch(1, CUT, at=5.0, rest=7), ReviewerWatch(1, CUT, at=5.0, rest=7)
    records = [committee({a: 0.9 if v else 0.1 for a, v in enumerate(row)}) for row in votes]
    for beat, record in enumerate(records[:cut]):
        one.observe(record, beat)
    other.restore(pickle.loads(pickle.dumps(one.state())))
    for beat, record in enumerate(records[cut:], cut):
        assert other.observe(record, beat) == one.observe(record, beat)
    assert other.state() == one.state()


# --- whether reviews tell anything ---


def calibrate(n, agreed, disputed):
    made, found = Calibration(), []
    for _ in range(n):
        found += [made.observe(True, agreed), made.observe(False, disputed)]
    return made, [f for f in found if f is not None]


def test_judges_that_like_everything_are_named_once():
    made, found = calibrate(100, 0.96, 0.75)
    assert len(found) == 1
    assert made.raised
    assert found[0].agreed_mean == pytest.approx(0.96)
    assert found[0].disputed_mean == pytest.approx(0.75)


def test_judges_that_tell_right_from_wrong_raise_nothing():
    assert not calibrate(100, 0.95, 0.1)[1]


def test_a_handful_of_reviews_proves_nothing():
    assert not calibrate(5, 0.9, 0.9)[1]


def test_reviews_are_spent_evenly_on_agreed_and_disputed_answers():
    made = Calibration()
    for _ in range(10):
        made.observe(True, 0.9)
    assert not made.wants("agreed")
    assert made.wants("disputed")


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=80), st.integers(0, 80))
def test_the_calibration_goes_on_from_its_state(seen, cut):
    one, other = Calibration(), Calibration()
    for agreed, score in seen[:cut]:
        one.observe(agreed, score)
    other.restore(pickle.loads(pickle.dumps(one.state())))
    for agreed, score in seen[cut:]:
        assert other.observe(agreed, score) == one.observe(agreed, score)
    assert other.state() == one.state()


# --- in a network ---


@pytest.mark.parametrize("agreeable", [0.9, None])
def test_a_network_says_whether_its_reviews_tell_right_from_wrong(tmp_path, agreeable):
    declared = Experiment(
        name="judged",
        topology=complete(6),
        workload=gym("math", tasks=450),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        faults=tuple(swap(a, "synthetic/llama-3.2-1b", at=60, back=400) for a in (0, 3)),
        methods=("meshheal",),
        agreeable=agreeable,
    )
    alarms, checked = [], []

    def fold(event):
        if isinstance(event, ReviewersUninformative):
            alarms.append(event.node)
        elif isinstance(event, EvidenceShared) and event.record.checked is not None:
            checked.append(event.node)

    with Recorder(tmp_path / "log.jsonl.zst", {"seed": 1}) as log:
        log.subscribe(fold)
        LocalRun(world(prepare(declared), Arm("meshheal", 1)), log).run()
    assert len(set(checked)) > 1
    # What one of them had reviewed all of them know, but the one that was probed.
    assert len(set(alarms)) >= 4 if agreeable else not alarms
