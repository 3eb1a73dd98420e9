"""What an oracle knows: how the scores of healthy and of degraded agents are distributed, cell by cell.

A cell is what a detector conditions on too: how the score was obtained, the ability, the task kind. An oracle that knew
less would be no floor, since a gross miss on an easy kind says more than one on a hard kind.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from meshheal.alternatives import OracleCusum
from meshheal.reference import Stratum, stratum_of
from meshheal.types import Ability, ReviewRecord

_BANDS = 5
"""Equal bands of [0, 1] that scores are told apart by. Finer ones leave a cell so few scores each that the oracle takes
their noise for knowledge: with each value for itself (some twenty) it was later than the tests that only learn a mean.
"""
_PRIOR = 40.0
"""Scores of the coarser cell that a cell's own are mixed with."""
_LEAST = 0.5
"""Scores of each band that the coarsest cell begins with, so that none is impossible."""


class Scored(Struct, frozen=True):
    """One score with all that the detector is told about how it came about."""

    stratum: Stratum
    ability: Ability
    kind: str
    score: float

    @property
    def band(self) -> int:
        """Which of the equal bands of [0, 1] the score lies in."""
        return min(int(self.score * _BANDS), _BANDS - 1)

    def cells(self) -> Iterator[tuple[object, ...]]:
        """The cells it belongs to, the coarsest first."""
        yield (self.stratum,)
        yield self.stratum, self.ability
        yield self.stratum, self.ability, self.kind


def scored(record: ReviewRecord) -> Scored:
    """The score of a record."""
    return Scored(stratum_of(record), record.ability, record.kind, record.score)


class Distribution:
    """Distribution of scores over bands, by cell. A thin cell is drawn to the coarser one above it, p = (count + prior
    p_above) / (n + prior), that of a whole stratum to an even one over its `bands`.
    """

    def __init__(self, scores: Iterable[Scored], bands: frozenset[tuple[Stratum, int]]) -> None:
        self._even = Counter(stratum for stratum, _ in bands)
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._totals: Counter[tuple[object, ...]] = Counter()
        for one in scores:
            for cell in one.cells():
                self._counts[(*cell, one.band)] += 1
                self._totals[cell] += 1

    def probability(self, one: Scored) -> float:
        """That of the score's band among scores of its cell."""
        k = self._even[one.stratum]
        prior, above = _LEAST * k, 1.0 / k
        for cell in one.cells():
            above = (self._counts[(*cell, one.band)] + prior * above) / (self._totals[cell] + prior)
            prior = _PRIOR
        return above


class Ratio:
    """Log likelihood ratio, degraded over healthy, of scores like those it is made from; 0 in bands never seen."""

    def __init__(self, healthy: Iterable[Scored], degraded: Iterable[Scored]) -> None:
        well, ill = list(healthy), list(degraded)
        self._bands = frozenset((one.stratum, one.band) for one in (*well, *ill))
        self._well, self._ill = Distribution(well, self._bands), Distribution(ill, self._bands)
        self._known: dict[Scored, float] = {}

    def __call__(self, one: Scored) -> float:
        known = self._known.get(one)
        if known is None:
            known = 0.0
            if (one.stratum, one.band) in self._bands:
                known = math.log(self._ill.probability(one) / self._well.probability(one))
            self._known[one] = known
        return known


class Floor:
    """A CUSUM of that ratio on one agent's scores."""

    def __init__(self, ratio: Ratio) -> None:
        self._ratio = ratio
        self._now = 0.0
        self._test = OracleCusum(lambda _: self._now)

    def update(self, one: Scored) -> float:
        """Take one score; return the evidence, 1 or more."""
        self._now = self._ratio(one)
        return self._test.update(one.score, one.score)
