"""Every detector on one stored stream of evidence: mean delay at measured ARL0, beside an oracle.

The stream is what event logs hold: review records as neighbours got them. One observer's beliefs are rebuilt from it, so
that each detector reads the same scores against the same expected values, fixed before the score was seen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from meshheal.config import Detector as Settings
from meshheal.detector import KINDS, Detector, make
from meshheal.events import EvidenceShared, TaskArrived
from meshheal.experiment import Arm, Prepared, world
from meshheal.floor import Floor, Ratio, Scored, scored
from meshheal.results import plain
from meshheal.stats import Delay, Interval, arl0, restricted_mean
from meshheal.study import Study
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import write_json
from meshheal.types import AgentId
from sim.faults import Swap

TARGETS = (100, 200, 500, 1000, 2000, 5000)
"""ARL0, in outputs of healthy agents, at which delays are read off; those beyond what was observed are left out."""
CLEARED = 1.5
"""Evidence at or below which an alarm is over, and the next one counts."""
_LEVELS = 400


class Observed(Struct, frozen=True):
    """One record as an observer took it: the arrival it came at, its score in its cell and what was expected, and the
    evidence that MeshHeal's own test (agent-wide and by ability together) then held."""

    index: int
    scored: Scored
    expected: float
    evidence: float


Stream = Sequence[Observed]


class Run(Struct, frozen=True):
    """The streams of all agents of one run, and the arrivals (half open) in which agents were degraded."""

    seed: int
    streams: dict[AgentId, list[Observed]]
    windows: list[tuple[AgentId, int, int]]


def observed(prepared: Prepared, arm: Arm, log_path: Path) -> Run:
    """The evidence against each agent as the first of its neighbours got it, read from the log of one run."""
    made = world(prepared, arm)
    public = [made.neighbour(a) for a in range(made.size)]
    watched: dict[AgentId, set[AgentId]] = {}
    for agent in range(made.size):
        watched.setdefault(made.neighbours[agent][0], set()).add(agent)
    beliefs = {
        o: made.beliefs(o, public[o].abilities, {n: public[n] for n in made.neighbours[o]}, made.settings)
        for o in watched
    }
    streams: dict[AgentId, list[Observed]] = {a: [] for a in range(made.size)}
    index = -1
    with LogFile(log_path) as log:
        for event in log.events():
            if isinstance(event, TaskArrived):
                index = event.index
            elif isinstance(event, EvidenceShared):
                record = event.record
                for observer, held in beliefs.items():
                    if record.producer == observer or (observer != event.node and observer not in event.to):
                        continue
                    expected = held.expected(record)
                    held.observe(record)
                    if expected is not None and record.producer in watched[observer]:
                        step = Observed(index, scored(record), expected, held.evidence(record.producer))
                        streams[record.producer].append(step)
    swaps = [f for f in made.faults if isinstance(f, Swap) and f.degraded]
    return Run(arm.seed, streams, [(f.agent, f.at, f.back) for f in swaps])


# --- detectors on streams --------------------------------------------------------------------------------------------

Reader = Callable[[Stream], list[float]]
"""Reads one agent's stream and returns the evidence after each observation."""


def reader(fresh: Callable[[], Detector]) -> Reader:
    """One agent-wide test, begun anew for each stream."""

    def read(stream: Stream) -> list[float]:
        update = fresh().update
        return [update(o.scored.score, o.expected) for o in stream]

    return read


def as_used(stream: Stream) -> list[float]:
    """The evidence that decided in the network: one test for the agent and one for each ability, averaged."""
    return [o.evidence for o in stream]


def oracle(quiet: Iterable[Run], faulty: Iterable[Run]) -> Reader:
    """A CUSUM that knows how scores are distributed in either state, in all the cells that expectations are kept in.

    It knows them from these very streams, which flatters it: it is a bound and not a rival.
    """
    well = [o.scored for run in quiet for stream in run.streams.values() for o in stream]
    ill = [
        o.scored
        for run in faulty
        for agent, at, back in run.windows
        for o in run.streams[agent]
        if at <= o.index < back
    ]
    ratio = Ratio(well, ill)

    def read(stream: Stream) -> list[float]:
        update = Floor(ratio).update
        return [update(o.scored) for o in stream]

    return read


def readers(settings: Settings, quiet: Sequence[Run], faulty: Sequence[Run]) -> dict[str, Reader]:
    """All detectors by name, the oracle first."""
    found: dict[str, Reader] = {"oracle": oracle(quiet, faulty), "meshheal (as used)": as_used}
    found.update({kind: reader(partial(make, kind, settings)) for kind in KINDS})
    return found


# --- delay at measured ARL0 ------------------------------------------------------------------------------------------


class Point(Struct, frozen=True):
    """One threshold: the ARL0 measured at it, and the delay in outputs of the degraded agent (restricted mean)."""

    threshold: float
    arl0: Interval
    delay: Interval
    detected: int
    episodes: int


def curve(read: Reader, quiet: Sequence[Run], faulty: Sequence[Run], targets: Sequence[int] = TARGETS) -> list[Point]:
    """The lowest threshold that reaches each target on the quiet runs, and the delays there."""
    paths = [read(stream) for run in quiet for stream in run.streams.values()]
    seen = sum(map(len, paths))
    levels = _levels(paths)
    counts = [sum(_alarms(path, level) for path in paths) for level in levels]
    held = [(run, {a: read(run.streams[a]) for a, _, _ in run.windows}) for run in faulty]
    points: list[Point] = []
    for target in targets:
        reached = next((i for i, c in enumerate(counts) if c * target <= seen), None)
        # Fewer than five false alarms in all of the exposure say too little about an ARL0 that long.
        if reached is None or target * 5 > seen or (points and points[-1].threshold == levels[reached]):
            continue
        groups = [[_delay(run, a, at, back, paths_of[a], levels[reached]) for a, at, back in run.windows]
                  for run, paths_of in held]  # fmt: skip
        every = [d for g in groups for d in g]
        points.append(
            Point(
                levels[reached],
                arl0(counts[reached], seen),
                restricted_mean(groups),
                sum(d.seen for d in every),
                len(every),
            )
        )
    return points


def _levels(paths: Sequence[Sequence[float]]) -> list[float]:
    """Thresholds to try: values that the evidence took, at most `_LEVELS`, spread by rank among the highest."""
    values = sorted({v for path in paths for v in path if v > 1.0})
    if len(values) > _LEVELS:
        # Ranks from the top, geometrically: long ARL0s are decided by the few highest values.
        ranks = {round(len(values) ** (k / (_LEVELS - 1))) for k in range(_LEVELS)}
        values = sorted(values[-rank] for rank in ranks)
    return [*values, values[-1] * 1.0001] if values else [1.0001]


def _alarms(path: Sequence[float], threshold: float) -> int:
    """Times the evidence reached the threshold; counted again only after it was gone."""
    alarms, armed = 0, True
    for evidence in path:
        if armed and evidence >= threshold:
            alarms, armed = alarms + 1, False
        elif evidence <= CLEARED:
            armed = True
    return alarms


def _delay(run: Run, agent: AgentId, at: int, back: int, path: Sequence[float], threshold: float) -> Delay:
    indices = [o.index for o in run.streams[agent]]
    first, last = bisect_left(indices, at), bisect_left(indices, back)
    for n in range(first, last):
        if path[n] >= threshold:
            return Delay(float(n - first + 1))
    return Delay(float(last - first), seen=False)


# --- the study -------------------------------------------------------------------------------------------------------

FILE = "detectors.json"


def compare_detectors(path: Path, studies: Mapping[str, Study]) -> None:
    """Write detectors.json into the directory of a study of `quiet` and `faulty` runs, both with nobody excluded."""
    quiet, faulty = (_runs(studies[label]) for label in ("quiet", "faulty"))
    prepared = studies["faulty"].prepared
    settings = world(prepared, prepared.experiment.arms()[0]).settings.detector
    natures = prepared.natures()
    curves: dict[str, Any] = {}
    for name, read in readers(settings, quiet, faulty).items():
        curves[name] = [
            {
                "threshold": p.threshold,
                "arl0": plain(p.arl0),
                "delay": plain(p.delay),
                "detected": p.detected,
                "episodes": p.episodes,
            }
            for p in curve(read, quiet, faulty)
        ]
    write_json(
        path / FILE,
        {
            "experiment": prepared.experiment.name,
            "mode": "live" if "live" in natures else "recorded" if "recorded" in natures else "simulated",
            "tokens": "estimated",
            "seeds": sorted(run.seed for run in faulty),
            "observations_healthy": sum(len(s) for run in quiet for s in run.streams.values()),
            "curves": curves,
        },
    )


def _runs(study: Study) -> list[Run]:
    arms = [arm for arm in study.experiment.arms() if not arm.twin]
    return [observed(study.prepared, arm, study.directory.log_path(arm.label, arm.seed)) for arm in arms]
