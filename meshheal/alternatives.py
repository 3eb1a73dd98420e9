"""Other sequential tests for a drop in a bounded mean, to compare with the e-detector.

Each takes one score in [0, 1] and the score that was expected of it, and reports evidence of at least 1 on a
scale of odds, so that one threshold means roughly as much to all of them; compare at equal measured ARL0.
Only the Bernoulli CUSUM has a bound on false alarms, and it has no margin for a reference that is off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, sqrt

from meshheal.errors import InternalError, UsageError

CEILING = 1e12
"""Evidence is cut here: beyond any threshold, finite, and left again once an agent is well. Cutting lowers
it only."""
_LOG_CEILING = log(CEILING)
_MARGIN = 0.02
"""Expected means are kept this far from 0 and 1, where one score of the other kind would be infinitely
surprising."""


def check(score: float, expected: float) -> None:
    """Raise `InternalError` unless both are in [0, 1] (which NaN is not)."""
    if not (0.0 <= score <= 1.0 and 0.0 <= expected <= 1.0):
        raise InternalError(f"score {score!r} and expected {expected!r} must both be in [0, 1]")


def odds(log_odds: float) -> float:
    """exp(log_odds), at least 1 and at most `CEILING`."""
    return exp(min(max(log_odds, 0.0), _LOG_CEILING))


def _above(name: str, value: float, low: float, high: float = float("inf")) -> float:
    if not low < value <= high:
        raise UsageError(f"detector: {name} is {value!r}; it must be above {low:g} and at most {high:g}")
    return value


class _Cusum:
    """S <- min(max(0, S + log-likelihood ratio), log CEILING); evidence is exp(S). Page (1954)."""

    __slots__ = ("_sum", "evidence")
    _sum: float
    evidence: float

    def __init__(self) -> None:
        self.reset()

    def _add(self, ratio: float) -> float:
        self._sum = min(max(self._sum + ratio, 0.0), _LOG_CEILING)
        self.evidence = exp(self._sum)
        return self.evidence

    def reset(self) -> None:
        self._sum = 0.0
        self.evidence = 1.0

    def state(self) -> list[float]:
        return [self._sum]

    def restore(self, state: Sequence[float]) -> None:
        (self._sum,) = state
        self.evidence = exp(self._sum)


class BernoulliCusum(_Cusum):
    """CUSUM of right and wrong: p0 = expected against p1 = expected - `shift`.

    A score between 0 and 1 counts as that part of a success. Page, "Continuous inspection schemes",
    Biometrika 1954. ARL0 is at least the threshold where p0 is at most the score's conditional mean (Lorden
    1971; the likelihood ratio is convex in the score, so scores between 0 and 1 do no harm). `shift`: the
    drop it is tuned to; it is slower for smaller and for much larger ones.
    """

    __slots__ = ("_shift",)

    def __init__(self, shift: float = 0.3) -> None:
        self._shift = _above("shift", shift, 0, 1)
        super().__init__()

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        p0 = min(max(expected, 2 * _MARGIN), 1 - _MARGIN)
        p1 = max(p0 - self._shift, _MARGIN)
        return self._add(score * log(p1 / p0) + (1 - score) * log((1 - p1) / (1 - p0)))


class GaussianCusum(_Cusum):
    """CUSUM for a fall of a normal mean by `shift`: ratio (shift / v)(expected - shift / 2 - score).

    v, the variance, is the largest a score in [0, 1] with that mean can have, expected(1 - expected), at
    least `variance_floor`. Page (1954). Skewed scores, the usual ones, break the normal likelihood: ARL0
    must be measured.
    """

    __slots__ = ("_floor", "_shift")

    def __init__(self, shift: float = 0.3, variance_floor: float = 0.05) -> None:
        self._shift = _above("shift", shift, 0, 1)
        self._floor = _above("variance_floor", variance_floor, 0)
        super().__init__()

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        variance = max(expected * (1 - expected), self._floor)
        return self._add(self._shift / variance * (expected - self._shift / 2 - score))


class OracleCusum(_Cusum):
    """CUSUM that knows the distributions of healthy and degraded scores: the floor for every detector's
    delay.

    `ratio` gives log(density degraded / density healthy) of a score. `expected` is not used. Moustakides
    (1986): no test with the same ARL0 has a smaller worst-case delay on independent scores.
    """

    __slots__ = ("_ratio",)

    def __init__(self, ratio: Callable[[float], float]) -> None:
        self._ratio = ratio
        super().__init__()

    @classmethod
    def from_histograms(cls, healthy: Sequence[float], degraded: Sequence[float], prior: float = 0.5) -> OracleCusum:
        """From counts over equal bins of [0, 1] (1.0 falls into the last); `prior` is added to every
        count."""
        if not healthy or len(healthy) != len(degraded):
            raise UsageError("oracle: healthy and degraded need the same number of bins, at least one")
        bins = len(healthy)
        totals = (sum(healthy) + prior * bins, sum(degraded) + prior * bins)
        pairs = zip(healthy, degraded, strict=True)
        ratios = [log((d + prior) / totals[1] * totals[0] / (h + prior)) for h, d in pairs]
        return cls(lambda score: ratios[min(int(score * bins), bins - 1)])

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        return self._add(self._ratio(score))


def _tail(z: float) -> float:
    """Evidence of being `z` standard deviations below: exp(z^2 / 2), about the reciprocal of a normal
    tail."""
    return odds(z * z / 2) if z > 0 else 1.0


class Ewma:
    """Exponentially weighted mean of expected - score, in its standard deviations. Roberts, Technometrics
    1959.

    `weight` of the newest residual, 0..1: its memory is about 2 / weight - 1 scores. The standard deviation
    is the asymptotic one, sqrt(v weight / (2 - weight)), v as in `GaussianCusum`. Evidence is exp(z^2 / 2):
    6 is 1.9 standard deviations, 60 is 2.9.
    """

    __slots__ = ("_floor", "_mean", "_weight", "evidence")

    def __init__(self, weight: float = 0.1, variance_floor: float = 0.05) -> None:
        self._weight = _above("weight", weight, 0, 1)
        self._floor = _above("variance_floor", variance_floor, 0)
        self.reset()

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        weight = self._weight
        self._mean += weight * (expected - score - self._mean)
        variance = max(expected * (1 - expected), self._floor) * weight / (2 - weight)
        self.evidence = _tail(self._mean / sqrt(variance))
        return self.evidence

    def reset(self) -> None:
        self._mean = 0.0
        self.evidence = 1.0

    def state(self) -> list[float]:
        return [self._mean, self.evidence]

    def restore(self, state: Sequence[float]) -> None:
        self._mean, self.evidence = state


class BetaReputation:
    """Beta reputation with forgetting, against the reputation that was expected. Josang and Ismail, Bled
    2002.

    Past rights and wrongs shrink by the factor `forget` with every score (memory 1 / (1 - forget)); the base
    rate is what is expected, worth `prior` scores (2 in the source), so that a newcomer starts as trusted as
    its peers. Evidence is exp(z^2 / 2) for a reputation z standard deviations of its Beta distribution below
    the expected.
    """

    __slots__ = ("_forget", "_prior", "_right", "_wrong", "evidence")
    _right: float
    _wrong: float

    def __init__(self, forget: float = 0.95, prior: float = 2.0) -> None:
        self._forget = _above("forget", forget, 0, 1)
        self._prior = _above("prior", prior, 0)
        self.reset()

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        self._right = self._forget * self._right + score
        self._wrong = self._forget * self._wrong + 1 - score
        base = min(max(expected, _MARGIN), 1 - _MARGIN)
        a = self._right + self._prior * base
        b = self._wrong + self._prior * (1 - base)
        mean = a / (a + b)
        self.evidence = _tail((base - mean) / sqrt(mean * (1 - mean) / (a + b + 1)))
        return self.evidence

    def reset(self) -> None:
        self._right = self._wrong = 0.0
        self.evidence = 1.0

    def state(self) -> list[float]:
        return [self._right, self._wrong, self.evidence]

    def restore(self, state: Sequence[float]) -> None:
        self._right, self._wrong, self.evidence = state


class OutlierEjection:
    """Ejection of hosts whose success rate lies far below their peers' mean, as Envoy's outlier detection
    does it.

    Envoy looks at intervals: at the end of each, hosts below mean - k sigma of all hosts' rates are ejected
    (k = 1.9) if there was volume enough. Here an interval is `window` outputs of the agent, the peers' mean
    is the mean of what was expected, and for sigma, which this interface does not see, stands the sampling
    deviation of such a rate, sqrt(p(1 - p) / window). Evidence is exp(z^2 / 2), so that Envoy's 1.9 is 6.1;
    it changes at the end of an interval and stands until the next. Expected values that contain the agent
    itself mask it: leave it out of them.
    """

    __slots__ = ("_count", "_expected", "_score", "_window", "evidence")
    _count: int
    _expected: float
    _score: float

    def __init__(self, window: int = 20) -> None:
        self._window = int(_above("window", window, 0))
        self.reset()

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        self._count += 1
        self._score += score
        self._expected += expected
        if self._count >= self._window:
            mean, rate = self._expected / self._count, self._score / self._count
            p = min(max(mean, _MARGIN), 1 - _MARGIN)
            self.evidence = _tail((mean - rate) / sqrt(p * (1 - p) / self._count))
            self._count, self._score, self._expected = 0, 0.0, 0.0
        return self.evidence

    def reset(self) -> None:
        self._count, self._score, self._expected = 0, 0.0, 0.0
        self.evidence = 1.0

    def state(self) -> list[float]:
        return [float(self._count), self._score, self._expected, self.evidence]

    def restore(self, state: Sequence[float]) -> None:
        count, self._score, self._expected, self.evidence = state
        self._count = int(count)


class FixedThreshold:
    """Mean of the last `window` scores below a fixed `level`, without a reference: what a dashboard alert
    does.

    Evidence is exp(2 n (level - mean)^2), the reciprocal of Hoeffding's bound on a mean that low from n
    scores whose true mean is `level` (Hoeffding, JASA 1963). `expected` is not used, hence a hard stretch of
    tasks looks like a fault and a weak agent like a broken one.
    """

    __slots__ = ("_last", "_level", "_next", "_window", "evidence")
    _last: list[float]
    _next: int

    def __init__(self, level: float = 0.6, window: int = 20) -> None:
        self._level = _above("level", level, 0, 1)
        self._window = int(_above("window", window, 0))
        self.reset()

    def update(self, score: float, expected: float) -> float:
        check(score, expected)
        if len(self._last) < self._window:
            self._last.append(score)
        else:
            self._last[self._next] = score
            self._next = (self._next + 1) % self._window
        n = len(self._last)
        below = self._level - sum(self._last) / n
        self.evidence = odds(2 * n * below * below) if below > 0 else 1.0
        return self.evidence

    def reset(self) -> None:
        self._last = []
        self._next = 0
        self.evidence = 1.0

    def state(self) -> list[float]:
        return [self.evidence, float(self._next), *self._last]

    def restore(self, state: Sequence[float]) -> None:
        self.evidence, self._next, self._last = state[0], int(state[1]), list(state[2:])
