"""What a score is measured against: levels of peers within one channel, and an agent's own distance from them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.reference import Cell, Levels, Offset, Tally, stratum_of
from meshheal.types import ReviewRecord

NOBODY: set[int] = set()
unit = st.floats(0, 1)
observed = st.lists(st.tuples(st.integers(0, 4), unit), max_size=80)


def record(producer, score, ability="algebra", kind="", channel="first_look", family="reviewed"):
    return ReviewRecord(
        id="r",
        task="t",
        producer=producer,
        ability=ability,
        kind=kind,
        channel=channel,
        score=score,
        reviewers=(),
        coordinator=9,
        time=0.0,
        family=family,
    )


def cell(without=NOBODY, **means):
    made = Cell(without)
    for agent, mean in means.items():
        for _ in range(50):
            made.add(int(agent[1:]), mean, 100.0)
    return made


# --- one cell ---


def test_the_level_of_an_agent_does_not_contain_the_agent_itself():
    made = cell(a0=0.0, a1=0.9, a2=0.9)
    assert made.level(0, 0.5, 1e-9) == pytest.approx(0.9)
    made = cell(a0=1.0, a1=0.9, a2=0.9)
    assert made.level(0, 0.5, 1e-9) == pytest.approx(0.9)


@given(unit)
def test_one_odd_peer_among_many_moves_the_level_by_little(odd):
    made = cell(a1=0.8, a2=0.8, a3=0.8, a4=0.8, a5=odd)
    assert abs(made.level(0, 0.5, 1e-9) - 0.8) <= 0.2 / 5 + 1e-9


def test_who_is_set_aside_counts_for_nobody():
    made = cell({3}, a1=0.9, a2=0.9, a3=0.1)
    assert made.level(0, 0.5, 1e-9) == pytest.approx(0.9)
    assert made.peers(0, {3}) == 2


def test_who_is_set_aside_or_taken_in_again_counts_from_then_on():
    aside = set()
    made = cell(aside, a1=0.9, a2=0.9, a3=0.1)
    with_all = made.level(0, 0.5, 1e-9)
    aside.add(3)
    made.settle()
    assert made.level(0, 0.5, 1e-9) == pytest.approx(0.9)
    assert made.level(3, 0.5, 1e-9) == pytest.approx(0.9)
    aside.clear()
    made.settle()
    assert made.level(0, 0.5, 1e-9) == pytest.approx(with_all)


@given(observed)
def test_between_two_settings_of_its_bounds_a_cell_counts_every_score(seen):
    """With as few agents as have no bounds, the level is the plain mean of the peers."""
    made, scores = Cell(NOBODY), []
    for agent, score in seen:
        made.add(agent % 3, score, 1000.0)
        scores.append((agent % 3, score))
        peers = [s for a, s in scores if a != 0]
        expected = (sum(peers) + 8.0 * 0.5) / (len(peers) + 8.0)
        assert made.level(0, 0.5, 8.0) == pytest.approx(expected)


def test_a_thin_cell_stays_near_the_level_above_it():
    made = Cell(NOBODY)
    made.add(1, 0.0, 100.0)
    assert made.level(0, 0.8, 8.0) > 0.7
    for _ in range(99):
        made.add(1, 0.0, 100.0)
        made.add(2, 0.0, 100.0)
    assert made.level(0, 0.8, 8.0) < 0.05


def test_an_empty_cell_has_the_level_above_it():
    assert Cell(NOBODY).level(0, 0.73, 8.0) == 0.73


def test_old_scores_fade():
    tally = Tally()
    for _ in range(200):
        tally.add(1.0, 50.0)
    for _ in range(200):
        tally.add(0.0, 50.0)
    assert tally.n <= 50.0
    assert tally.total / tally.n < 0.1


# --- strata and pooling ---


def test_scores_obtained_in_different_ways_never_meet():
    strata = {
        stratum_of(record(1, 1.0)),
        stratum_of(record(1, 1.0, channel="probe", family="other")),
        stratum_of(record(1, 1.0, channel="probe", family="own")),
    }
    assert len(strata) == 3


def test_a_reviewed_probe_is_scored_as_a_first_look_is():
    assert stratum_of(record(1, 1.0, channel="probe")) == stratum_of(record(1, 1.0))


def test_first_looks_teach_nothing_about_probes():
    levels = Levels(8.0, 100.0)
    for agent in (1, 2, 3):
        for _ in range(30):
            levels.learn(record(agent, 0.9))
    assert levels.expected(record(0, 0.0, channel="probe", family="other"), 2) is None
    assert levels.expected(record(0, 0.0), 2) == pytest.approx(0.9, abs=0.1)


def test_there_is_no_reference_with_fewer_peers_than_it_needs():
    levels = Levels(8.0, 100.0)
    for _ in range(50):
        levels.learn(record(1, 0.9))
    assert levels.expected(record(0, 0.0), 2) is None
    levels.learn(record(2, 0.9))
    assert levels.expected(record(0, 0.0), 2) is not None
    levels.set_aside(2, True)
    assert levels.expected(record(0, 0.0), 2) is None


def test_an_agents_own_scores_are_no_peers_data():
    levels = Levels(8.0, 100.0)
    for _ in range(50):
        levels.learn(record(0, 0.9))
        levels.learn(record(1, 0.9))
    assert levels.expected(record(0, 0.0), 2) is None


def test_a_hard_kind_of_task_is_expected_to_go_worse():
    levels = Levels(8.0, 100.0)
    for agent in (1, 2, 3):
        for _ in range(40):
            levels.learn(record(agent, 0.9, kind="easy"))
            levels.learn(record(agent, 0.3, kind="hard"))
    easy, hard = (levels.expected(record(0, 0.0, kind=kind), 2) for kind in ("easy", "hard"))
    assert hard < 0.45 < 0.75 < easy


def test_a_kind_never_seen_before_has_the_level_of_its_ability_and_an_ability_that_of_all():
    levels = Levels(8.0, 100.0)
    for agent in (1, 2, 3):
        for _ in range(40):
            levels.learn(record(agent, 0.9, ability="algebra", kind="k"))
            levels.learn(record(agent, 0.3, ability="geometry", kind="k"))
    assert levels.expected(record(0, 0.0, ability="algebra", kind="new"), 2) > 0.75
    assert 0.5 < levels.expected(record(0, 0.0, ability="law", kind="k"), 2) < 0.7


@given(observed)
def test_a_level_is_always_a_possible_score(seen):
    levels = Levels(8.0, 10.0)
    for agent, score in seen:
        levels.learn(record(agent, score))
        for asked in range(5):
            level = levels.expected(record(asked, 0.0), 2)
            assert level is None or 0.0 <= level <= 1.0


@given(observed, observed)
def test_levels_go_on_from_their_state(before, after):
    one, other = Levels(8.0, 20.0), Levels(8.0, 20.0)
    for agent, score in before:
        one.learn(record(agent, score, kind=f"k{agent % 2}"))
        one.expected(record(agent, 0.0), 2)
    one.set_aside(3, True)
    other.restore(pickle.loads(pickle.dumps(one.state())))
    for agent, score in after:
        new = record(agent, score, kind=f"k{agent % 2}")
        assert other.expected(new, 2) == one.expected(new, 2)
        one.learn(new)
        other.learn(new)
    assert other.state() == one.state()


# --- own offset ---


def test_an_offset_starts_at_nothing_and_approaches_the_long_run_distance():
    offset = Offset(12.0, 0.25, 1000.0)
    stratum = ("first_look", "")
    assert offset.value(stratum) == 0.0
    offset.learn(stratum, -0.2)
    assert -0.05 < offset.value(stratum) < 0.0
    for _ in range(500):
        offset.learn(stratum, -0.2)
    assert offset.value(stratum) == pytest.approx(-0.2, abs=0.01)


@given(st.lists(st.floats(-1, 1), max_size=100), st.floats(0, 1))
def test_an_offset_never_exceeds_its_bound(residuals, limit):
    offset = Offset(12.0, limit, 50.0)
    for residual in residuals:
        offset.learn(("first_look", ""), residual)
        assert abs(offset.value(("first_look", ""))) <= limit


def test_an_offset_learnt_from_first_looks_says_nothing_about_probes():
    offset = Offset(12.0, 0.25, 100.0)
    for _ in range(50):
        offset.learn(("first_look", ""), -0.2)
    assert offset.value(("probe", "other")) == 0.0


@given(st.lists(st.floats(-1, 1), max_size=50), st.lists(st.floats(-1, 1), max_size=50))
def test_an_offset_goes_on_from_its_state(before, after):
    one, other = Offset(12.0, 0.25, 20.0), Offset(12.0, 0.25, 20.0)
    for residual in before:
        one.learn(("probe", "own"), residual)
    other.restore(pickle.loads(pickle.dumps(one.state())))
    for residual in after:
        one.learn(("probe", "own"), residual)
        other.learn(("probe", "own"), residual)
    assert other.value(("probe", "own")) == one.value(("probe", "own"))
