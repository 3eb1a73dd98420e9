"""Intervals. Every figure that is shown carries one."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan, sqrt

from msgspec import Struct


class Interval(Struct, frozen=True):
    """A mean or rate with its 95 % interval and the number of values behind it. `sd` is nan for rates."""

    mean: float
    low: float
    high: float
    n: int
    sd: float = nan


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of a mean; the bounds are nan for a single value."""
    kept = [v for v in values if isfinite(v)]
    n = len(kept)
    if n == 0:
        return Interval(nan, nan, nan, 0)
    mean = sum(kept) / n
    if n == 1:
        return Interval(mean, nan, nan, 1)
    from scipy.stats import t

    sd = sqrt(sum((v - mean) ** 2 for v in kept) / (n - 1))
    half = float(t.ppf(0.975, n - 1)) * sd / sqrt(n)
    return Interval(mean, mean - half, mean + half, n, sd)


def wilson(successes: int, n: int) -> Interval:
    """Wilson's score interval of a rate (Wilson 1927)."""
    if n == 0:
        return Interval(nan, nan, nan, 0)
    z = 1.959963984540054
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(p, max(0.0, centre - half), min(1.0, centre + half), n)


def poisson_rate(events: int, exposure: float) -> Interval:
    """Exact interval of a rate of events per unit of exposure (Garwood 1936). `n` is the number of events."""
    from scipy.stats import chi2

    if exposure <= 0:
        return Interval(nan, nan, nan, events)
    low = float(chi2.ppf(0.025, 2 * events)) / 2 if events else 0.0
    high = float(chi2.ppf(0.975, 2 * events + 2)) / 2
    return Interval(events / exposure, low / exposure, high / exposure, events)


def arl0(false_exclusions: int, observations: float) -> Interval:
    """Mean observations to a false exclusion: the inverse of the Poisson rate. `high` is inf where none occurred."""
    rate = poisson_rate(false_exclusions, observations)
    return Interval(
        1 / rate.mean if rate.mean else float("inf"),
        1 / rate.high,
        1 / rate.low if rate.low else float("inf"),
        false_exclusions,
    )
