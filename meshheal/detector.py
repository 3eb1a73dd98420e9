"""Sequential tests on one stream of scores: the one that convicts, the one that reinstates, how to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, Protocol

from meshheal import alternatives, config
from meshheal.alternatives import CEILING
from meshheal.errors import InternalError, UsageError

SAFETY = 0.95
"""Largest share of the evidence that one observation may take away: below 1, so that it stays positive.

Cutting negative factors at 0 instead would raise their mean above 1 and break the bound.
"""

REST = 10.0
"""Taken off the Shiryaev-Roberts sum: on a healthy agent it stands below this four times in five."""


class Detector(Protocol):
    """A test that reads scores one by one. Plain and cheap: no clock, no randomness, no memory of tasks."""

    evidence: float
    """What the last update returned: 1 (none) or more, finite."""

    def update(self, score: float, expected: float) -> float:
        """Take one score in [0, 1] and what was expected of it, fixed before it was seen; return the
        evidence.

        Raises `InternalError` where either is outside [0, 1].
        """
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...

    def state(self) -> list[float]:
        """All that `restore` needs to continue, as a flat list."""
        ...

    def restore(self, state: Sequence[float]) -> None:
        """Continue from the state of a detector with the same settings."""
        ...


class _Mixture:
    """Evidence averaged over several bets, each multiplied at every observation by 1 + bet x gain."""

    __slots__ = ("_at_rest", "_bets", "_largest", "_rest", "_sum", "_wealth", "evidence")
    _at_rest: bool
    _wealth: list[float]

    def __init__(self, bets: Sequence[float], *, sums: bool = False) -> None:
        if not bets or not all(0 < bet < float("inf") for bet in bets):
            raise UsageError(f"detector: bets are {tuple(bets)!r}; give at least one, each positive")
        self._bets = tuple(bets)
        self._largest = max(bets)
        self._sum = sums
        self._rest = REST if sums else 0.0
        self.reset()

    def _factors(self, gain: float, worst: float) -> list[float]:
        """What each bet is multiplied by, betting on `gain`, of which -`worst` is the least possible."""
        if self._largest * worst < SAFETY:
            return [1.0 + bet * gain for bet in self._bets]
        cap = SAFETY / worst
        return [1.0 + (bet if bet < cap else cap) * gain for bet in self._bets]

    def take(self, factors: list[float]) -> float:
        """Multiply the evidence of each bet; return their mean. `factors` are kept, and are not to be changed.

        Most detectors are at rest, with no bet above 1: then the factors are the evidence, and where they are
        below 1 too there is nothing to add up.
        """
        if self._sum:
            self._wealth = wealth = [min((w + 1.0) * f, CEILING) for w, f in zip(self._wealth, factors, strict=True)]
        elif self._at_rest:
            self._wealth = wealth = factors
            if factors[0] <= 1.0:
                return 1.0
            self._at_rest = False
        else:
            self._wealth = wealth = [
                f if w <= 1.0 else w * f if w * f < CEILING else CEILING
                for w, f in zip(self._wealth, factors, strict=True)
            ]
            self._at_rest = max(wealth) <= 1.0
        mean = sum(wealth) / len(wealth) - self._rest
        self.evidence = mean = mean if mean > 1.0 else 1.0
        return mean

    def reset(self) -> None:
        self._wealth = _start(0.0 if self._sum else 1.0, len(self._bets))
        self._at_rest = not self._sum
        self.evidence = 1.0

    def state(self) -> list[float]:
        return list(self._wealth)

    def restore(self, state: Sequence[float]) -> None:
        if len(state) != len(self._bets):
            raise InternalError(f"state of {len(state)} bets restored into a detector of {len(self._bets)}")
        self._wealth = list(state)
        self._at_rest = not self._sum and max(state) <= 1.0
        self.evidence = max(1.0, sum(state) / len(state) - self._rest)


@lru_cache(maxsize=64)
def _start(wealth: float, bets: int) -> list[float]:
    """The wealth that tests begin with: one list for all of them, since none is ever changed."""
    return [wealth] * bets


class EDetector(_Mixture):
    """Mixture e-detector for a drop in a bounded mean.

    Each bet multiplies its evidence by 1 + lam * (level - score), level = expected - drop, with
    lam = bet / (4 level (1 - level)), capped so that the factor stays positive: the stake that is right for a
    given drop grows as the variance of a right-or-wrong score shrinks (Kelly's fraction, drop / variance; `bet` is
    the stake at level 1/2). `cusum` starts each product afresh where it fell below 1, W <- max(1, W) * factor; `sr`
    (Shiryaev-Roberts) sums over all starts, R <- (R + 1) * factor. If the score's conditional mean is at
    least expected - drop at every observation, the mean number of observations to a false alarm is at least
    the threshold, whatever the distribution (Shin, Ramdas and Rinaldo, "E-detectors", 2022). With an
    estimated `expected` the bound is nominal; measure it.

    The evidence is the mean over the bets, not less than 1 (what is below is no evidence and is kept
    inside). `sr` sums over as many starts as there were observations, so that it stands well above 1 on a
    healthy agent too; `REST` is taken off, which lowers it and leaves the bound valid, so that one level of
    suspicion serves both forms.

    `bets`: per unit of score, where the level is 1/2; small ones find mild drops, large ones gross drops sooner. `drop`: smallest
    fall worth acting on, and the margin for what is wrong with `expected`.
    """

    __slots__ = ("_drop",)

    def __init__(self, bets: Sequence[float], drop: float, form: Literal["cusum", "sr"] = "cusum") -> None:
        if not 0 < drop < 1:
            raise UsageError(f"detector: drop is {drop!r}; it must lie between 0 and 1")
        self._drop = drop
        super().__init__(bets, sums=form == "sr")

    def update(self, score: float, expected: float) -> float:
        return self.take(self.factors(score, expected))

    def rests(self, score: float, expected: float) -> bool:
        """Whether the score would leave the test as it is: no bet stands above 1, and none would."""
        return self._at_rest and score >= expected - self._drop

    def factors(self, score: float, expected: float) -> list[float]:
        """What `take` multiplies the bets by: the same for all detectors of the same settings."""
        if not (0.0 <= score <= 1.0 and 0.0 <= expected <= 1.0):
            alternatives.check(score, expected)
        level = expected - self._drop
        inner = 0.05 if level < 0.05 else 0.95 if level > 0.95 else level
        scale = 0.25 / (inner * (1.0 - inner))
        gain, worst = (level - score) * scale, (1.0 - level) * scale
        if self._largest * worst < SAFETY:
            return [1.0 + bet * gain for bet in self._bets]
        return self._factors(gain, worst)


class ReturnTest(_Mixture):
    """The same test in the other direction: evidence that an excluded agent does well again.

    It accumulates against "the mean is at most expected - margin", by factors 1 + lam * (score - expected +
    margin). An agent that is still bad in that sense is taken back after at least `threshold` probes in the
    mean. Where little is expected the margin is at most half of it, so that an agent that never succeeds is
    never taken back.
    """

    __slots__ = ("_margin",)

    def __init__(self, bets: Sequence[float], margin: float) -> None:
        if not 0 < margin < 1:
            raise UsageError(f"detector: margin is {margin!r}; it must lie between 0 and 1")
        self._margin = margin
        super().__init__(bets)

    def update(self, score: float, expected: float) -> float:
        if not (0.0 <= score <= 1.0 and 0.0 <= expected <= 1.0):
            alternatives.check(score, expected)
        margin = self._margin if self._margin < expected / 2 else expected / 2
        level = expected - margin
        return self.take(self._factors(score - level, level))


_MAKE: dict[str, Callable[[config.Detector], Detector]] = {
    "e-cusum": lambda s: EDetector(s.bets, s.drop),
    "e-sr": lambda s: EDetector(s.bets, s.drop, "sr"),
    "bernoulli-cusum": lambda s: alternatives.BernoulliCusum(s.shift),
    "gaussian-cusum": lambda s: alternatives.GaussianCusum(s.shift),
    "ewma": lambda s: alternatives.Ewma(2 / (s.memory + 1)),
    "beta-reputation": lambda s: alternatives.BetaReputation(1 - 1 / s.memory),
    "outlier-ejection": lambda s: alternatives.OutlierEjection(s.memory),
    "fixed-threshold": lambda s: alternatives.FixedThreshold(s.level, s.memory),
}
KINDS: tuple[str, ...] = tuple(_MAKE)


def make(kind: str, settings: config.Detector) -> Detector:
    """A fresh detector of that kind; raises `UsageError` for a kind that is not in `KINDS`."""
    try:
        return _MAKE[kind](settings)
    except KeyError:
        raise UsageError(f"detector: there is no kind {kind!r}; choose one of {', '.join(KINDS)}") from None
