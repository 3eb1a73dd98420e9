"""The oracle that liveness is judged by: a CUSUM that knows how healthy and degraded agents of this world score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, log

from meshheal.reference import Stratum, stratum_of
from meshheal.types import ReviewRecord

BINS = 10
_STATES = 60
_HIGHEST = 30.0
"""Log evidence above which no threshold is looked for: a false alarm in e^30 observations."""


class Scores:
    """Histograms of healthy and degraded scores, per way in which a score is obtained."""

    def __init__(self) -> None:
        self.healthy: dict[Stratum, list[int]] = {}
        self.degraded: dict[Stratum, list[int]] = {}

    def add(self, record: ReviewRecord, degraded: bool) -> None:
        """Count one record under the truth about its producer."""
        to = self.degraded if degraded else self.healthy
        to.setdefault(stratum_of(record), [0] * BINS)[min(int(record.score * BINS), BINS - 1)] += 1

    def ratios(self, prior: float = 0.5) -> dict[Stratum, list[float]]:
        """Log likelihood ratio degraded / healthy per bin, for each stratum that both have scores in; `prior` is added to
        every count.
        """
        found = {}
        for stratum, h in self.healthy.items():
            d = self.degraded.get(stratum)
            if d is not None:
                n, m = sum(h) + prior * BINS, sum(d) + prior * BINS
                found[stratum] = [log((y + prior) / m * n / (x + prior)) for x, y in zip(h, d, strict=True)]
        return found


class Oracle:
    """Reads one observer's records of one agent; silent until its evidence reaches the level of the given ARL0."""

    def __init__(self, scores: Scores, arl0: float) -> None:
        self._ratios = scores.ratios()
        self.level = threshold(self._steps(scores), arl0) if self._ratios else inf

    def _steps(self, scores: Scores) -> list[tuple[float, float]]:
        """(log likelihood ratio, probability) of one healthy score, whatever its stratum."""
        total = sum(sum(scores.healthy[s]) for s in self._ratios)
        return [
            (ratio, count / total)
            for s, table in self._ratios.items() for ratio, count in zip(table, scores.healthy[s], strict=True) if count
        ]

    def strongest(self, records: Iterable[ReviewRecord]) -> float:
        """The highest log evidence it reaches on the records, in multiples of its level: from 1 on it does not stay
        silent.
        """
        total = highest = 0.0
        for record in records:
            table = self._ratios.get(stratum_of(record))
            if table is not None:
                total = max(0.0, total + table[min(int(record.score * BINS), BINS - 1)])
                highest = max(highest, total)
        return highest / self.level


def threshold(steps: Sequence[tuple[float, float]], arl0: float) -> float:
    """Log evidence at which a CUSUM of independent steps raises one false alarm in `arl0` observations."""
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
    grid = np.arange(_STATES) * width
    stay = np.zeros((_STATES, _STATES))
    rows = np.arange(_STATES)
    for step, probability in steps:
        to = np.maximum(0.0, grid + step)
        column = np.minimum(np.round(to / width).astype(int), _STATES)
        inside = column < _STATES
        np.add.at(stay, (rows[inside], column[inside]), probability)
    try:
        lengths = np.linalg.solve(np.eye(_STATES) - stay, np.ones(_STATES))
    except np.linalg.LinAlgError:
        return inf
    return float(lengths[0]) if lengths[0] > 0 else inf
