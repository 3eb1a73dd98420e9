"""What an oracle knows: distributions by cell, thin ones drawn to coarser ones, and the likelihood ratio of a score."""

from __future__ import annotations

import math
import pickle

import pytest

from meshheal.floor import Floor, Ratio, Scored, scored
from meshheal.types import ReviewRecord

PROBE = ("probe", "other")


def scores(good: int, bad: int, ability: str = "a", kind: str = "k") -> list[Scored]:
    return [Scored(PROBE, ability, kind, 1.0)] * good + [Scored(PROBE, ability, kind, 0.0)] * bad


def test_the_ratio_of_a_well_known_cell_is_that_of_its_frequencies():
    ratio = Ratio(scores(900, 100), scores(300, 700))
    assert ratio(Scored(PROBE, "a", "k", 0.0)) == pytest.approx(math.log(0.7 / 0.1), abs=0.02)
    assert ratio(Scored(PROBE, "a", "k", 1.0)) == pytest.approx(math.log(0.3 / 0.9), abs=0.02)


def test_a_miss_on_an_easy_kind_says_more_than_one_on_a_hard_kind():
    healthy = scores(990, 10, kind="easy") + scores(700, 300, kind="hard")
    degraded = scores(300, 700, kind="easy") + scores(300, 700, kind="hard")
    ratio = Ratio(healthy, degraded)
    easy, hard = (ratio(Scored(PROBE, "a", kind, 0.0)) for kind in ("easy", "hard"))
    assert easy > hard + 2


def test_a_cell_without_data_takes_the_distribution_of_the_coarser_one():
    ratio = Ratio(scores(900, 100), scores(300, 700))
    assert ratio(Scored(PROBE, "b", "new", 0.0)) == pytest.approx(ratio(Scored(PROBE, "a", "k", 0.0)), abs=0.05)


def test_a_thin_cell_lies_between_its_own_frequencies_and_the_coarser_ones():
    healthy = scores(900, 100) + scores(2, 8, ability="b")
    ratio = Ratio(healthy, scores(300, 700))
    thin, coarse = ratio(Scored(PROBE, "b", "k", 0.0)), ratio(Scored(PROBE, "a", "k", 0.0))
    assert math.log(0.7 / 0.8) < thin < coarse


def test_scores_close_together_are_one_to_it():
    told = [Scored(PROBE, "a", "k", s) for s in (0.8, 0.85, 0.9, 1.0)]
    ratio = Ratio(scores(90, 10), scores(30, 70))
    assert len({ratio(one) for one in told}) == 1


def test_a_band_never_seen_says_nothing_and_none_is_impossible():
    ratio = Ratio(scores(50, 0), scores(0, 50))
    assert ratio(Scored(PROBE, "a", "k", 0.5)) == 0.0
    assert ratio(Scored(("first_look", "reviewed"), "a", "k", 1.0)) == 0.0
    assert math.isfinite(ratio(Scored(PROBE, "a", "k", 0.0)))


def test_probabilities_of_a_cell_sum_to_one():
    ratio = Ratio(scores(12, 3) + scores(1, 4, "b"), scores(1, 1))
    for ability in ("a", "b", "c"):
        total = sum(ratio._well.probability(Scored(PROBE, ability, "k", s)) for s in (0.0, 1.0))
        assert total == pytest.approx(1.0)


def test_the_floor_is_a_cusum_of_the_ratio():
    ratio = Ratio(scores(900, 100), scores(300, 700))
    bad, good = Scored(PROBE, "a", "k", 0.0), Scored(PROBE, "a", "k", 1.0)
    floor = Floor(ratio)
    assert floor.update(good) == 1.0
    assert floor.update(bad) == pytest.approx(math.exp(ratio(bad)))
    assert floor.update(good) == pytest.approx(math.exp(ratio(bad) + ratio(good)))


def test_what_is_known_goes_to_worker_processes():
    ratio = Ratio(scores(900, 100), scores(300, 700))
    again = pickle.loads(pickle.dumps(ratio))
    assert again(Scored(PROBE, "a", "k", 0.0)) == ratio(Scored(PROBE, "a", "k", 0.0))


def test_a_record_belongs_to_the_cell_that_its_expectation_comes_from():
    record = ReviewRecord("r", "t", 0, "a", "k", "probe", 0.5, (), 1, 0.0, family="reviewed")
    assert scored(record) == Scored(("first_look", ""), "a", "k", 0.5)
