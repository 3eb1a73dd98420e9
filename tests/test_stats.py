"""Intervals: textbook values, coverage, and what they say where there is nothing to say."""

from __future__ import annotations

from math import isinf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.rng import Stream
from meshheal.stats import arl0, mean_interval, poisson_rate, wilson


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
