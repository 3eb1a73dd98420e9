"""Intervals: textbook values, coverage, and what they say where there is nothing to say."""

from __future__ import annotations

from itertools import product
from math import isinf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.rng import Stream
from meshheal.stats import (
    Delay,
    arl0,
    holm,
    mean_interval,
    paired,
    poisson_rate,
    restricted_mean,
    survival,
    unpaired,
    wilson,
)


def test_a_mean_has_students_interval():
    i = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (i.mean, i.n) == (3.0, 5)
    assert i.sd == pytest.approx(1.5811, abs=1e-4)
    assert (i.low, i.high) == (pytest.approx(1.0368, abs=1e-4), pytest.approx(4.9632, abs=1e-4))


def test_one_value_has_a_mean_and_no_interval():
    i = mean_interval([2.0])
    assert (i.mean, i.n) == (2.0, 1)
    assert isnan(i.low)
    assert isnan(i.high)


def test_no_values_have_neither():
    i = mean_interval([])
    assert i.n == 0
    assert isnan(i.mean)
    assert mean_interval([nan]).n == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_a_mean_lies_in_its_interval(values):
    i = mean_interval(values)
    assert i.low <= i.mean + 1e-6
    assert i.mean <= i.high + 1e-6


def test_students_interval_covers_the_truth_as_often_as_it_says():
    draw = Stream("coverage")
    hits = 0
    for _ in range(600):
        i = mean_interval([draw.normal() for _ in range(5)])
        hits += i.low <= 0.0 <= i.high
    assert 0.92 < hits / 600 < 0.98


def test_a_rate_has_wilsons_interval():
    i = wilson(8, 10)
    assert i.mean == 0.8
    assert (i.low, i.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_rates_interval_stays_within_0_and_1_and_holds_the_rate(successes, n):
    successes = min(successes, n)
    i = wilson(successes, n)
    assert 0.0 <= i.low <= i.mean + 1e-12
    assert i.mean <= i.high + 1e-12 <= 1.0 + 1e-9


def test_fifty_of_fifty_is_not_certainty():
    i = wilson(50, 50)
    assert i.mean == 1.0
    assert 0.9 < i.low < 0.95


def test_a_rate_of_nothing_is_unknown():
    assert isnan(wilson(0, 0).mean)


def test_a_poisson_rate_has_garwoods_interval():
    i = poisson_rate(10, 100.0)
    assert (i.mean, i.n) == (0.1, 10)
    assert (i.low, i.high) == (pytest.approx(0.04795, abs=1e-4), pytest.approx(0.1839, abs=1e-4))


def test_no_events_bound_the_rate_from_above_only():
    i = poisson_rate(0, 1000.0)
    assert i.low == 0.0
    assert i.high == pytest.approx(3.689 / 1000, rel=1e-3)
    assert isnan(poisson_rate(0, 0.0).mean)


def test_observations_to_a_false_exclusion_are_the_inverse_of_its_rate():
    i = arl0(4, 20_000)
    assert i.mean == 5000.0
    assert i.low < 5000.0 < i.high
    assert i.low == pytest.approx(20_000 / 10.2416, rel=1e-3)


def test_without_false_exclusions_only_a_lower_bound_is_known():
    i = arl0(0, 3689)
    assert isinf(i.mean)
    assert isinf(i.high)
    assert i.low == pytest.approx(1000, rel=1e-3)


def test_a_delay_that_was_not_seen_enters_the_restricted_mean_up_to_the_limit():
    i = restricted_mean([[Delay(10)], [Delay(210, seen=False)]])
    assert (i.mean, i.n) == (110.0, 2)
    assert restricted_mean([[Delay(10)], [Delay(210, seen=False)]], limit=100).mean == 55.0


def test_with_whole_seeds_the_restricted_mean_has_the_interval_of_the_seeds_means():
    seeds = [[10.0, 14.0], [20.0, 16.0], [9.0, 8.0]]
    i = restricted_mean([[Delay(v) for v in s] for s in seeds])
    plain = mean_interval([sum(s) / 2 for s in seeds])
    assert (i.mean, i.low, i.high) == (pytest.approx(plain.mean), pytest.approx(plain.low), pytest.approx(plain.high))


def test_someone_censored_early_counts_as_waiting_among_those_still_seen():
    # Kaplan and Meier: one of two is gone at 10; who was lost at 5 says nothing about later.
    i = restricted_mean([[Delay(5, seen=False)], [Delay(10)], [Delay(20)]])
    assert i.mean == pytest.approx(10 + 0.5 * 10)


def test_a_survival_curve_starts_whole_and_its_interval_holds_it():
    curve = survival([Delay(t) for t in (3, 5, 5, 9)] + [Delay(12, seen=False)])
    assert curve.share == pytest.approx([0.8, 0.4, 0.2, 0.2])
    for share, low, high in zip(curve.share, curve.low, curve.high, strict=True):
        assert low <= share <= high
    assert survival([Delay(7, seen=False)]).share == [1.0]


def test_nobody_waiting_has_no_curve():
    assert survival([]).times == []
    assert isnan(restricted_mean([[], []]).mean)


def test_five_seeds_that_agree_give_a_sixteenth():
    assert paired([0.1, 0.2, 0.05, 0.3, 0.02]).p == pytest.approx(2 / 32)


def test_the_sign_flip_test_enumerates_what_it_says():
    differences = [0.3, -0.1, 0.2, 0.4, -0.05, 0.1]
    gap = abs(sum(differences))
    flips = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in product((1, -1), repeat=6)]
    assert paired(differences).p == pytest.approx(sum(abs(f) >= gap - 1e-12 for f in flips) / len(flips))


def test_beyond_sixteen_pairs_it_draws_and_repeats_itself():
    draw = Stream("pairs")
    differences = [0.5 + draw.normal() for _ in range(24)]
    assert "draws" in paired(differences).test
    assert paired(differences) == paired(differences)


def test_no_difference_is_no_evidence():
    assert paired([0.0] * 5).p == 1.0
    assert isnan(paired([0.4]).p)


def test_where_nothing_differs_p_is_small_as_often_as_it_says():
    draw = Stream("null")
    small = sum(paired([draw.normal() for _ in range(8)]).p <= 0.1 for _ in range(300))
    assert 0.04 < small / 300 < 0.16


def test_seeds_that_differ_are_permuted_between_the_runs():
    found = unpaired([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert found.difference.mean == pytest.approx(3.0)
    assert found.p == pytest.approx(2 / 20)
    assert found.difference.low < 3.0 < found.difference.high


def test_holms_adjustment_is_the_textbooks():
    adjusted = holm([0.01, 0.04, 0.03, nan])
    assert adjusted[:3] == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06)]
    assert isnan(adjusted[3])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_an_adjusted_p_is_never_smaller_and_keeps_the_order(ps):
    adjusted = holm(ps)
    assert all(a >= p for a, p in zip(adjusted, ps, strict=True))
    ranked = [a for _, a in sorted(zip(ps, adjusted, strict=True))]
    assert ranked == sorted(ranked)
