"""False alarms and delay of every detector on the same simulated scores, at equal measured ARL0.

    python benchmarks/arl0.py [--arl0 5000] [--runs 400] [--seed 1] [--scores sharp,graded,mild] [--json]

Each detector reads independent scores with an exact reference, so this calibrates tests and not the estimates
around them: a network's own ARL0 is measured in long fault-free runs. The threshold of each detector is set
so that the measured ARL0 (observations to a false alarm) is the wanted one, or just above it where evidence
moves in steps. Then the delay is measured, in outputs of the degraded agent, after `BEFORE` healthy outputs.
The oracle knows both distributions and is the floor.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from scipy.stats import chi2

from meshheal import config
from meshheal.alternatives import OracleCusum
from meshheal.detector import KINDS, Detector, make

BEFORE = 50
"""Healthy outputs before the agent degrades, so that every detector is past its beginning."""
HORIZON = 2.0
"""Length of a fault-free run in wanted ARL0s; longer runs are censored, not dropped."""


@dataclass(frozen=True)
class Scores:
    """Two distributions of scores: value -> probability."""

    healthy: dict[float, float]
    degraded: dict[float, float]

    @property
    def expected(self) -> float:
        return sum(value * p for value, p in self.healthy.items())

    def ratio(self) -> Callable[[float], float]:
        table = {v: math.log(self.degraded[v] / self.healthy[v]) for v in self.healthy}
        return table.__getitem__


def reviewed(accuracy: float, accepts_right: float, accepts_wrong: float) -> dict[float, float]:
    """A reviewer that scores in tenths: about .9 what it accepts and about .15 what it does not."""
    accepted = accuracy * accepts_right + (1 - accuracy) * accepts_wrong
    high = {1.0: 0.4, 0.9: 0.3, 0.8: 0.2, 0.6: 0.1}
    low = {0.0: 0.35, 0.1: 0.25, 0.2: 0.2, 0.3: 0.1, 0.5: 0.1}
    return {v: accepted * p for v, p in high.items()} | {v: (1 - accepted) * p for v, p in low.items()}


SCORES = {
    "sharp": Scores({1.0: 0.9, 0.0: 0.1}, {1.0: 0.4, 0.0: 0.6}),
    "graded": Scores(reviewed(0.9, 0.95, 0.15), reviewed(0.35, 0.95, 0.15)),
    "mild": Scores(reviewed(0.9, 0.95, 0.15), reviewed(0.65, 0.95, 0.15)),
    "agreeable": Scores(reviewed(0.9, 0.96, 0.75), reviewed(0.33, 0.96, 0.75)),
}


@dataclass(frozen=True)
class Measured:
    """One detector's figures: `arl0` with its 95 % Poisson interval, delays in outputs of that agent."""

    scores: str
    detector: str
    threshold: float
    arl0: float
    arl0_low: float
    arl0_high: float
    delay: float
    delay_error: float
    against_oracle: float
    at_rest: float
    """Share of healthy outputs after which the evidence is at least the default `suspect_at`."""


def garwood(events: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval for a Poisson mean (Garwood, Biometrika 1936)."""
    tail = (1 - level) / 2
    low = float(chi2.ppf(tail, 2 * events)) / 2 if events else 0.0
    return low, float(chi2.ppf(1 - tail, 2 * events + 2)) / 2


def draws(distribution: dict[float, float], seed: Sequence[int], n: int) -> list[float]:
    """`n` independent scores, the same for every detector."""
    values, probabilities = zip(*distribution.items(), strict=True)
    weights = np.array(probabilities) / sum(probabilities)
    picked = np.random.default_rng(seed).choice(len(values), n, p=weights)
    return [values[i] for i in picked]


def records(detector: Detector, scores: Sequence[float], expected: float) -> tuple[list[float], list[int]]:
    """Rising maxima of the evidence and when each was reached: the first passages of all thresholds."""
    levels, times = [1.0], [0]
    update, highest = detector.update, 1.0
    for n, score in enumerate(scores, 1):
        evidence = update(score, expected)
        if evidence > highest:
            highest = evidence
            levels.append(evidence)
            times.append(n)
    return levels, times


@dataclass(frozen=True)
class FaultFree:
    """First passages of every threshold in the fault-free runs."""

    passages: list[tuple[list[float], list[int]]]
    horizon: int

    def alarms(self, threshold: float) -> tuple[int, int]:
        """False alarms and the exposure in observations. Each run ends at its alarm."""
        count = exposure = 0
        for levels, times in self.passages:
            i = bisect_left(levels, threshold)
            count += i < len(levels)
            exposure += times[i] if i < len(levels) else self.horizon
        return count, exposure

    def threshold(self, arl0: float) -> float:
        """The lowest level whose measured ARL0 is at least `arl0`; infinite where none is."""
        levels = sorted({level for each, _ in self.passages for level in each if level > 1.0})
        low, high = 0, len(levels)
        while low < high:
            middle = (low + high) // 2
            count, exposure = self.alarms(levels[middle])
            if count == 0 or exposure / count >= arl0:
                high = middle
            else:
                low = middle + 1
        return levels[low] if low < len(levels) else math.inf


def fault_free(fresh: Callable[[], Detector], scores: Scores, runs: int, horizon: int, seed: int) -> FaultFree:
    """Run fresh detectors on healthy scores."""
    streams = (draws(scores.healthy, (seed, 0, run), horizon) for run in range(runs))
    return FaultFree([records(fresh(), stream, scores.expected) for stream in streams], horizon)


def delays(
    fresh: Callable[[], Detector], scores: Scores, threshold: float, runs: int, seed: int, longest: int = 2000
) -> list[int]:
    """Outputs from the fault to the alarm; runs with an alarm before the fault are left out."""
    found = []
    for run in range(runs):
        detector = fresh()
        update, expected = detector.update, scores.expected
        before = [update(s, expected) for s in draws(scores.healthy, (seed, 1, run), BEFORE)]
        if max(before) >= threshold:
            continue
        after = draws(scores.degraded, (seed, 2, run), longest)
        found.append(next((n for n, s in enumerate(after, 1) if update(s, expected) >= threshold), longest))
    return found


def at_rest(fresh: Callable[[], Detector], scores: Scores, seed: int, n: int = 20_000) -> float:
    """Share of healthy outputs with evidence at the default `suspect_at` or above."""
    update, level = fresh().update, config.Settings().detector.suspect_at
    return sum(update(s, scores.expected) >= level for s in draws(scores.healthy, (seed, 3), n)) / n


def measure(name: str, arl0: float, runs: int, seed: int) -> list[Measured]:
    """All detectors on one pair of distributions, the oracle first."""
    scores, settings = SCORES[name], config.Settings().detector
    fresh: dict[str, Callable[[], Detector]] = {"oracle": lambda: OracleCusum(scores.ratio())}
    fresh |= {kind: partial(make, kind, settings) for kind in KINDS}
    found: list[Measured] = []
    for kind, new in fresh.items():
        healthy = fault_free(new, scores, runs, int(HORIZON * arl0), seed)
        threshold = healthy.threshold(arl0)
        count, exposure = healthy.alarms(threshold)
        low, high = garwood(count)
        waits = delays(new, scores, threshold, 5 * runs, seed)
        mean = float(np.mean(waits)) if waits else math.nan
        error = float(np.std(waits) / math.sqrt(len(waits))) if waits else math.nan
        found.append(
            Measured(
                scores=name,
                detector=kind,
                threshold=threshold,
                arl0=exposure / max(count, 1),
                arl0_low=exposure / high,
                arl0_high=exposure / low if low else math.inf,
                delay=mean,
                delay_error=error,
                against_oracle=mean / found[0].delay if found else 1.0,
                at_rest=at_rest(new, scores, seed),
            )
        )
        print(f"{name}: {kind} measured", file=sys.stderr)
    return found


def table(rows: Sequence[Measured]) -> str:
    """The rows as text."""
    form = "{:10} {:17} {:>10} {:>7} {:>16} {:>12} {:>8} {:>8}"
    names = ("scores", "detector", "threshold", "ARL0", "95 % interval", "delay", "/oracle", "at rest")
    lines = [form.format(*names)]
    for r in rows:
        interval, delay = f"{r.arl0_low:.0f} to {r.arl0_high:.0f}", f"{r.delay:.1f} +- {r.delay_error:.1f}"
        figures = f"{r.threshold:.4g}", f"{r.arl0:.0f}", interval, delay
        lines.append(form.format(r.scores, r.detector, *figures, f"{r.against_oracle:.2f}", f"{r.at_rest:.3f}"))
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--arl0", type=float, default=5000.0, help="wanted observations to a false alarm")
    parser.add_argument("--runs", type=int, default=400, help="fault-free runs; delays use five times as many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scores", default=",".join(SCORES), help=f"of {', '.join(SCORES)}")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    asked = parser.parse_args()
    names = asked.scores.split(",")
    unknown = [name for name in names if name not in SCORES]
    if unknown:
        parser.error(f"no scores called {', '.join(unknown)}; choose of {', '.join(SCORES)}")
    rows = [row for name in names for row in measure(name, asked.arl0, asked.runs, asked.seed)]
    print(json.dumps([asdict(row) for row in rows], indent=1) if asked.json else table(rows))


if __name__ == "__main__":
    main()
