"""The oracles that liveness is judged by: CUSUMs that know how degraded agents of this world score.

One knows the level of healthy agents as well (`strongest`). The other is told by the observer what it expected of each
score (`informed`): it has the observer's references, and no more than those.

It tests with the same margin as the protocol, whose null hypothesis is "the mean is at least b - drop, whatever the
distribution". Against such a null the likelihood ratio of degraded scores d is taken to the nearest distribution in
it, which is d(s) / (1 + bet (b - drop - s)) with the bet that maximises the mean log of the denominator (Honda and
Takemura, COLT 2010): so the optimal ratio is 1 + bet (b - drop - s), with b and the bet known instead of estimated
and mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log

from msgspec import Struct, field

from meshheal.detector import SAFETY
from meshheal.reference import Stratum, stratum_of
from meshheal.types import ReviewRecord

_STATES = 60
_HIGHEST = 30.0
"""Log evidence above which no threshold is looked for: a false alarm in e^30 observations."""
_ENOUGH = 10
"""Healthy and degraded scores that a stratum needs for the oracle to know it."""


class Scores(Struct):
    """All scores of healthy and of degraded agents, by the way in which they were obtained."""

    healthy: dict[Stratum, list[float]] = field(default_factory=dict)
    degraded: dict[Stratum, list[float]] = field(default_factory=dict)

    def add(self, record: ReviewRecord, degraded: bool) -> None:
        """Count one record under the truth about its producer."""
        (self.degraded if degraded else self.healthy).setdefault(stratum_of(record), []).append(record.score)


class Stake(Struct, frozen=True):
    """The best test of one stratum: ratio 1 + bet (level - score)."""

    level: float
    bet: float

    def step(self, score: float) -> float:
        """Log likelihood ratio of a score."""
        return log(1.0 + self.bet * (self.level - score))

    def at(self, level: float) -> Stake:
        """The same bet at another level, as far as that allows it."""
        return Stake(level, min(self.bet, SAFETY / (1.0 - level)))


def best(healthy: Sequence[float], degraded: Sequence[float], drop: float) -> Stake:
    """The bet under which degraded scores give the most log evidence; 0 where they fall by less than `drop`."""
    level = sum(healthy) / len(healthy) - drop
    low, high = 0.0, SAFETY / (1.0 - level)
    while high - low > 1e-3:
        middle = (low + high) / 2
        slope = sum((level - s) / (1.0 + middle * (level - s)) for s in degraded)
        low, high = (middle, high) if slope > 0 else (low, middle)
    return Stake(level, low)


class Oracle:
    """Reads one observer's records of one agent; silent until its evidence reaches the level of the given ARL0."""

    def __init__(self, scores: Scores, drop: float, arl0: float) -> None:
        self._drop = drop
        self._stakes: dict[Stratum, Stake] = {}
        steps: list[tuple[float, float]] = []
        for stratum, healthy in scores.healthy.items():
            degraded = scores.degraded.get(stratum, ())
            if min(len(healthy), len(degraded)) < _ENOUGH:
                continue
            stake = best(healthy, degraded, drop)
            if stake.bet > 0:
                self._stakes[stratum] = stake
                steps += _null(stake, degraded, len(healthy))
        total = sum(p for _, p in steps)
        self.level = threshold([(s, p / total) for s, p in steps], arl0) if steps else inf

    def strongest(self, records: Iterable[ReviewRecord]) -> float:
        """The highest log evidence it reaches on the records, in multiples of its level: from 1 on it does not stay
        silent.
        """
        total = highest = 0.0
        for record in records:
            stake = self._stakes.get(stratum_of(record))
            if stake is not None:
                total = max(0.0, total + stake.step(record.score))
                highest = max(highest, total)
        return highest / self.level

    def informed(self, records: Iterable[ReviewRecord], expected: Mapping[str, float]) -> float:
        """As `strongest`, with what the observer expected in place of the level of healthy agents. Records of which it
        expected nothing tell nothing.
        """
        total = highest = 0.0
        for record in records:
            stake = self._stakes.get(stratum_of(record))
            if stake is not None and record.id in expected:
                stake = stake.at(expected[record.id] - self._drop)
                total = max(0.0, total + stake.step(record.score))
                highest = max(highest, total)
        return highest / self.level


def _null(stake: Stake, degraded: Sequence[float], weight: float) -> list[tuple[float, float]]:
    """(log likelihood ratio, probability) under the null's member nearest to the degraded scores, `weight` in all.

    Where the bet is capped the ratios do not account for all of the probability; the rest is at the best score.
    """
    chances: dict[float, float] = {}
    left = 1.0
    for score in degraded:
        chance = 1.0 / (1.0 + stake.bet * (stake.level - score)) / len(degraded)
        step = stake.step(round(score, 2))
        chances[step] = chances.get(step, 0.0) + chance
        left -= chance
    if left > 0:
        chances[stake.step(1.0)] = chances.get(stake.step(1.0), 0.0) + left
    total = sum(chances.values())
    return [(step, weight * p / total) for step, p in chances.items()]


def threshold(steps: Sequence[tuple[float, float]], arl0: float) -> float:
    """Log evidence at which a CUSUM of independent steps (value, probability) raises one false alarm in `arl0`."""
    low, high = 0.1, _HIGHEST
    while high - low > 0.02:
        middle = (low + high) / 2
        if average_run_length(steps, middle) < arl0:
            low = middle
        else:
            high = middle
    return high


def average_run_length(steps: Sequence[tuple[float, float]], level: float) -> float:
    """Mean observations until S <- max(0, S + step) reaches `level`, by a Markov chain on a grid (Brook and Evans,
    Biometrika 1972).
    """
    import numpy as np

    width = level / (_STATES - 0.5)
    grid, rows = np.arange(_STATES) * width, np.arange(_STATES)
    stay = np.zeros((_STATES, _STATES))
    for step, probability in steps:
        column = np.minimum(np.round(np.maximum(0.0, grid + step) / width).astype(int), _STATES)
        inside = column < _STATES
        np.add.at(stay, (rows[inside], column[inside]), probability)
    try:
        lengths = np.linalg.solve(np.eye(_STATES) - stay, np.ones(_STATES))
    except np.linalg.LinAlgError:
        return inf
    return float(lengths[0]) if lengths[0] > 0 else inf
