"""Intervals and tests. Every figure that is shown carries an interval; a seed is the unit that tests shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan, sqrt
from typing import Any

from msgspec import Struct

EXACT_UP_TO = 16
"""Pairs up to which a sign-flip test enumerates all 2**n assignments; beyond it draws `RESAMPLES`."""
RESAMPLES = 2**EXACT_UP_TO
_SEED = 20090914


class Interval(Struct, frozen=True):
    """A mean or rate with its 95 % interval and the number of values behind it. `sd` is nan for rates."""

    mean: float
    low: float
    high: float
    n: int
    sd: float = nan


class Delay(Struct, frozen=True):
    """A time to an event, or, where `seen` is False, for how long it was waited for in vain (censored)."""

    time: float
    seen: bool = True


class Curve(Struct, frozen=True):
    """A survival curve as steps: just after `times[i]` the share `share[i]` still waits, within [low, high]."""

    times: list[float]
    share: list[float]
    low: list[float]
    high: list[float]


class Comparison(Struct, frozen=True):
    """The difference of two samples with its interval, and the p value of no difference (nan: too few values)."""

    difference: Interval
    p: float
    test: str


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of a mean; the bounds are nan for a single value."""
    kept = [v for v in values if isfinite(v)]
    n = len(kept)
    if n == 0:
        return Interval(nan, nan, nan, 0)
    mean = sum(kept) / n
    if n == 1:
        return Interval(mean, nan, nan, 1)
    sd = sqrt(sum((v - mean) ** 2 for v in kept) / (n - 1))
    half = _student(n - 1) * sd / sqrt(n)
    return Interval(mean, mean - half, mean + half, n, sd)


def _student(df: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, df))


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


# --- delays that may be censored -------------------------------------------------------------------------------------


def survival(delays: Sequence[Delay]) -> Curve:
    """Kaplan and Meier's estimate (1958) of who still waits, with pointwise log-log intervals (Greenwood's variance)."""
    if not delays:
        return Curve([], [], [], [])
    import warnings

    found = _ecdf(delays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where nothing or everything is left it has no variance
        ci = found.confidence_interval(method="log-log")
    share = [float(v) for v in found.probabilities]

    def bound(values: Any) -> list[float]:
        return [float(v) if isfinite(v) else s for v, s in zip(values, share, strict=True)]

    times = [float(v) for v in found.quantiles]
    return Curve(times, share, bound(ci.low.probabilities), bound(ci.high.probabilities))


def _ecdf(delays: Sequence[Delay]) -> Any:
    from scipy.stats import CensoredData, ecdf

    seen = [d.time for d in delays if d.seen]
    return ecdf(CensoredData(seen, right=[d.time for d in delays if not d.seen])).sf


def restricted_mean(groups: Sequence[Sequence[Delay]], limit: float | None = None) -> Interval:
    """Mean of min(delay, limit): the area under the survival curve, so that a delay not seen is never averaged away.

    `groups` are the delays of one seed each; `limit` is the longest time waited by default. The interval leaves out
    one seed at a time (jackknife, Student's t), as delays of one seed are not independent; where every seed has equally
    many delays, none censored before the limit, it is the t interval of the seeds' means. `n` is the number of seeds.
    """
    held = [list(g) for g in groups if g]
    if not held:
        return Interval(nan, nan, nan, 0)
    end = max(d.time for g in held for d in g) if limit is None else limit
    whole, n = _area([d for g in held for d in g], end), len(held)
    if n == 1:
        return Interval(whole, nan, nan, 1)
    parts = [_area([d for j, g in enumerate(held) if j != i for d in g], end) for i in range(n)]
    centre = sum(parts) / n
    error = sqrt((n - 1) / n * sum((p - centre) ** 2 for p in parts))
    half = _student(n - 1) * error
    return Interval(whole, whole - half, whole + half, n, error * sqrt(n))


def _area(delays: Sequence[Delay], end: float) -> float:
    """Area under the survival curve from 0 to `end`; beyond the last delay seen it stays where it is."""
    found = _ecdf(delays)
    area, before, share = 0.0, 0.0, 1.0
    for at, after in zip(found.quantiles, found.probabilities, strict=True):
        if at >= end:
            break
        area += share * (float(at) - before)
        before, share = float(at), float(after)
    return area + share * (end - before)


# --- tests -----------------------------------------------------------------------------------------------------------


def paired(differences: Sequence[float]) -> Comparison:
    """Sign-flip test of differences by seed: under no difference each is as likely to have the other sign (Fisher 1935).

    Two-sided; exact up to `EXACT_UP_TO` pairs, beyond that by `RESAMPLES` draws from a fixed seed. With n pairs p cannot
    fall below 2**(1-n): five seeds cannot give less than .0625.
    """
    kept = [d for d in differences if isfinite(d)]
    exact = len(kept) <= EXACT_UP_TO
    test = f"sign-flip, {len(kept)} pair{'s' * (len(kept) != 1)}, {'exact' if exact else f'{RESAMPLES} draws'}"
    if len(kept) < 2:
        return Comparison(mean_interval(kept), nan, test)
    return Comparison(mean_interval(kept), _permuted(kept, [0.0] * len(kept), "samples"), test)


def unpaired(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Permutation test of mean(b) - mean(a) where the seeds are not the same ones; the interval is Welch's (1947)."""
    from scipy.stats import ttest_ind

    left, right = [v for v in a if isfinite(v)], [v for v in b if isfinite(v)]
    test = f"permutation, {len(left)} and {len(right)} seeds"
    if not left or not right:
        return Comparison(Interval(nan, nan, nan, 0), nan, test)
    gap, n = sum(right) / len(right) - sum(left) / len(left), len(left) + len(right)
    if min(len(left), len(right)) < 2:
        return Comparison(Interval(gap, nan, nan, n), nan, test)
    if len({*left}) == 1 and len({*right}) == 1:
        interval = Interval(gap, gap, gap, n)
    else:
        ci = ttest_ind(right, left, equal_var=False).confidence_interval(0.95)
        interval = Interval(gap, float(ci.low), float(ci.high), n)
    return Comparison(interval, _permuted(right, left, "independent"), test)


def _permuted(a: Sequence[float], b: Sequence[float], kind: str) -> float:
    import numpy as np
    from scipy.stats import permutation_test

    if len({*a}) == 1 and {*a} == {*b}:
        return 1.0

    def gap(x: Any, y: Any, axis: int) -> Any:
        return x.mean(axis=axis) - y.mean(axis=axis)

    draw = np.random.default_rng(_SEED)
    samples = (np.asarray(a), np.asarray(b))
    found = permutation_test(
        samples, gap, permutation_type=kind, vectorized=True, n_resamples=RESAMPLES, batch=4096, rng=draw
    )
    return float(found.pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """p values adjusted for the size of their family (Holm 1979), in the order given; nan stays and does not count."""
    order = sorted((i for i, p in enumerate(ps) if isfinite(p)), key=lambda i: ps[i])
    adjusted, highest = [nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted
