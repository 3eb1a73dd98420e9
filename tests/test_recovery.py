"""The way back: references, whose turn it is to probe, when, and the alarm for a group that falls together."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import LETTERS

from meshheal.config import Recovery
from meshheal.recovery import Bank, GroupWatch, Reference, Schedule, on_duty
from meshheal.rng import Stream
from meshheal.types import Message, ReviewRecord, Task

ids = st.integers(0, 1000)


def reference(n, families=("one", "two"), answered=(), beat=0, ability="algebra"):
    task = Task(f"t{n}", (Message("user", f"Question {n}"),), LETTERS, ability)
    return Reference(task, "A", tuple(families), tuple(answered), beat)


def bank(mixed=True, **settings):
    return Bank(Recovery(**{"tranche": 4, **settings}), lambda _ability, _family: mixed)


def live(made, n, **how):
    """Fill the tranche with what nobody may be asked, then add `n` references."""
    for i in range(4):
        made.add(reference(1000 + i, ability="never"))
    for i in range(n):
        made.add(reference(i, **how))
    return made


def picks(made, agent=5, family="three", abilities=("algebra",), beat=0, tranche=False, n=60):
    draws = Stream("picks")
    return [made.pick(agent, family, abilities, beat, draws, tranche) for _ in range(n)]


# --- bank ---


def test_an_empty_bank_has_no_reference():
    assert picks(bank()) == [None] * 60


def test_a_probe_never_goes_to_an_agent_that_has_seen_the_task():
    made = live(bank(), 6, answered=(1, 5))
    assert picks(made, agent=5) == [None] * 60
    assert None not in picks(made, agent=4)


def test_with_three_families_a_reference_never_comes_from_the_probed_agents_own():
    made = live(bank(mixed=True), 6, families=("one", "two"))
    made.add(reference(50, families=("two", "three")))
    assert {r.task.id for r in picks(made, family="three")} == {f"t{i}" for i in range(6)}
    assert picks(made, family="one", n=200).count(None) == 0
    assert {r.task.id for r in picks(made, family="one", n=200)} == {"t50"}


def test_with_three_families_one_family_alone_makes_no_reference():
    made = live(bank(mixed=True), 6, families=("one",))
    assert picks(made, family="three") == [None] * 60


def test_with_fewer_families_the_own_one_must_do_where_there_is_no_other():
    made = live(bank(mixed=False), 3, families=("one", "two"))
    assert None not in picks(made, family="one")
    made.add(reference(50, families=("two",)))
    assert {r.task.id for r in picks(made, family="one")} == {"t50"}


def test_a_reference_is_asked_in_what_the_agent_is_able_to_do():
    made = live(bank(), 3, ability="geometry")
    assert picks(made, abilities=("algebra",)) == [None] * 60
    assert None not in picks(made, abilities=("algebra", "geometry"))


def test_every_reference_has_its_turn():
    assert len({r.task.id for r in picks(live(bank(), 6), n=200)}) == 6


def test_references_grow_old():
    made = live(bank(bank_age=100), 3, beat=50)
    assert None not in picks(made, beat=150)
    assert picks(made, beat=151) == [None] * 60


@given(st.integers(0, 200), st.integers(1, 20))
def test_a_bank_is_bounded_and_the_frozen_ones_stay(n, size):
    made = bank(bank_size=size)
    for i in range(n):
        made.add(reference(i, beat=i))
    assert len(made) <= size + 4
    frozen = {r.task.id for r in picks(made, beat=n, tranche=True, n=200)} if n else set()
    assert frozen <= {"t0", "t1", "t2", "t3"}
    if n >= 4:
        assert frozen == {"t0", "t1", "t2", "t3"}


def test_a_frozen_reference_is_asked_again_only_once_all_were_asked():
    made = bank()
    for i in range(4):
        made.add(reference(i))
    draws, seen = Stream("again"), []
    for _ in range(8):
        r = made.pick(5, "three", ("algebra",), 10**6, draws, True)
        seen.append(r.task.id)
        r.answered += (5,)
    assert sorted(seen[:4]) == ["t0", "t1", "t2", "t3"]
    assert len(set(seen)) == 4


def test_a_frozen_reference_is_never_asked_of_who_helped_to_settle_it_however_few_there_are():
    made = bank(mixed=False)
    for i in range(4):
        made.add(reference(i, answered=(5,)))
    assert picks(made, agent=5, tranche=True) == [None] * 60
    assert picks(made, agent=5) == [None] * 60


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["one", "two", "three"])), max_size=40))
def test_a_bank_goes_on_from_its_state(answered):
    one, other = bank(bank_size=8), bank(bank_size=8)
    for i, (agent, family) in enumerate(answered):
        one.add(reference(i, (family, "four"), (agent,), i))
    other.restore(pickle.loads(pickle.dumps(one.state())))
    a, b = Stream("a"), Stream("a")
    for i in range(20):
        mine, theirs = (m.pick(i % 5, "one", ("algebra",), 20, d, i % 3 == 0) for m, d in ((one, a), (other, b)))
        assert mine == theirs
        if mine is not None:
            mine.answered += (i % 5,)
            theirs.answered += (i % 5,)
        one.add(reference(100 + i))
        other.add(reference(100 + i))
    assert one.state() == other.state()


# --- duty ---


@given(ids, ids, st.lists(ids, min_size=1, unique=True), st.randoms())
def test_the_prober_on_duty_is_the_same_for_all_neighbours(agent, epoch, candidates, shuffle):
    other = list(candidates)
    shuffle.shuffle(other)
    assert on_duty(agent, epoch, candidates) == on_duty(agent, epoch, other)


@given(ids, ids, st.lists(ids, min_size=2, unique=True))
def test_duty_changes_hands_only_where_the_one_on_duty_is_gone(agent, epoch, candidates):
    duty = on_duty(agent, epoch, candidates)
    gone = next(c for c in candidates if c != duty)
    assert on_duty(agent, epoch, [c for c in candidates if c != gone]) == duty


def test_duty_goes_round():
    turns = Counter(on_duty(7, epoch, (1, 2, 3, 4, 5)) for epoch in range(1000))
    assert set(turns) == {1, 2, 3, 4, 5}
    assert min(turns.values()) > 120


# --- schedule ---


def test_failed_probes_back_off_up_to_a_bound_and_a_pass_is_followed_up_at_once():
    schedule, beat, gaps = Schedule(Recovery(probe_every=2.0, backoff=1.5, backoff_max=8.0), 0), 0, []
    for _ in range(10):
        beat = schedule.due
        schedule.probed(False, beat)
        gaps.append(schedule.due - beat)
    assert gaps == sorted(gaps)
    assert gaps[-1] == 8
    schedule.probed(True, beat)
    assert schedule.due == beat + 1


@given(st.lists(st.booleans(), max_size=20), st.floats(0.1, 10), st.floats(1, 3))
def test_the_next_probe_is_always_later(passed, every, backoff):
    schedule, beat = Schedule(Recovery(probe_every=every, backoff=backoff), 5), 5
    assert schedule.due > beat
    for ok in passed:
        beat = schedule.due
        schedule.probed(ok, beat)
        assert schedule.due > beat
    other = Schedule(Recovery(probe_every=every, backoff=backoff), 0)
    other.restore(pickle.loads(pickle.dumps(schedule.state())))
    other.probed(False, beat)
    schedule.probed(False, beat)
    assert other.due == schedule.due


# --- a group that falls together ---


def probe(producer, score):
    return ReviewRecord(
        id="r",
        task="t",
        producer=producer,
        ability="algebra",
        kind="",
        channel="probe",
        score=score,
        reviewers=(),
        coordinator=0,
        time=0.0,
        family="other",
        tranche=True,
    )


def watch_rounds(watch, n, means, *name):
    draw, alarms = Stream("group", *name), []
    for _ in range(n):
        for agent, mean in means.items():
            alarm = watch.observe(probe(agent, float(draw.uniform() < mean)))
            if alarm is not None:
                alarms.append(alarm)
    return alarms


GROUP = (1, 2, 3, 4)


def test_a_group_that_falls_together_raises_the_alarm_once_and_is_named():
    watch = GroupWatch(Recovery())
    assert not watch_rounds(watch, 15, dict.fromkeys(GROUP, 0.95), "before")
    (alarm,) = watch_rounds(watch, 40, dict.fromkeys(GROUP, 0.3), "after")
    assert alarm.group == GROUP
    assert alarm.observed < alarm.expected - 0.3
    assert watch.raised


def test_one_agent_that_falls_alone_is_no_group():
    watch = GroupWatch(Recovery())
    watch_rounds(watch, 15, dict.fromkeys(GROUP, 0.95), "before")
    assert not watch_rounds(watch, 60, dict.fromkeys(GROUP, 0.95) | {2: 0.0}, "after")


def test_two_of_five_that_fall_and_are_probed_more_than_all_others_are_no_group():
    watch, group = GroupWatch(Recovery()), (1, 2, 3, 4, 5)
    assert not watch_rounds(watch, 15, dict.fromkeys(group, 0.95), "before")
    assert not watch_rounds(watch, 30, {2: 0.2, 4: 0.2}, "a burst of probes")
    assert not watch_rounds(watch, 100, dict.fromkeys(group, 0.95) | {2: 0.2, 4: 0.2}, "after")
    (alarm,) = watch_rounds(watch, 40, dict.fromkeys(group, 0.2), "then all of them")
    assert set(alarm.group) >= {2, 4}
    assert len(alarm.group) >= 3


@pytest.mark.parametrize("seed", range(5))
def test_a_group_that_stays_well_raises_nothing(seed):
    assert not watch_rounds(GroupWatch(Recovery()), 150, dict.fromkeys(GROUP, 0.85), seed)


def test_the_alarm_can_be_raised_again_once_the_group_was_well():
    watch = GroupWatch(Recovery())
    watch_rounds(watch, 15, dict.fromkeys(GROUP, 0.95), "before")
    assert len(watch_rounds(watch, 20, dict.fromkeys(GROUP, 0.2), "fall")) == 1
    watch_rounds(watch, 150, dict.fromkeys(GROUP, 1.0), "well")
    assert not watch.raised
    assert len(watch_rounds(watch, 20, dict.fromkeys(GROUP, 0.2), "again")) == 1


@given(st.lists(st.tuples(st.sampled_from(GROUP), st.booleans()), max_size=100), st.integers(0, 100))
def test_the_group_watch_goes_on_from_its_state(seen, cut):
    one, other = GroupWatch(Recovery(tranche=4)), GroupWatch(Recovery(tranche=4))
    for agent, ok in seen[:cut]:
        one.observe(probe(agent, float(ok)))
    other.restore(pickle.loads(pickle.dumps(one.state())))
    for agent, ok in seen[cut:]:
        assert other.observe(probe(agent, float(ok))) == one.observe(probe(agent, float(ok)))
    assert other.state() == one.state()
