"""One world of the swarm: drawn, run, checked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec import Struct

from meshheal.events import Event, FirstLook, TaskArrived
from meshheal.trace.recorder import MemoryLog
from sim.faults import Swap
from sim.local import LocalRun
from sim.loop import Stalled
from sim.swarm.ground import Ground, Views, Violation
from sim.swarm.liveness import Judged, liveness
from sim.swarm.notes import Notes, Noting
from sim.swarm.safety import safety
from sim.swarm.sometimes import Seen, Sometimes
from sim.swarm.worlds import SETTLE, Drawn, Phases, build, draw, weak
from sim.world import World

_EVENTS_PER_TASK = 400
"""A run that writes more is going round in circles."""


class Verdict(Struct):
    """What one world came to."""

    seed: int
    world: str
    violations: list[Violation]
    sometimes: dict[Sometimes, int]
    fates: dict[str, int]
    recovered: int
    reviewed: int
    """Outputs that were looked at: without any there was nothing to judge."""
    tasks: int
    event_hash: str
    twice: bool
    """Whether the world was run a second time and compared."""


class _Runaway(Exception):
    pass


def ground(world: World, drawn: Drawn, texts: dict[str, str]) -> Ground:
    """What the checkers are told about a world."""
    return Ground(
        world.neighbours,
        world.abilities,
        world.settings.detector.min_eligible,
        drawn.exact,
        world.settings.limits.call_timeout / 2,
        world.arrivals_per_beat,
        texts,
    )


def run(seed: int, twice: bool = False) -> Verdict:
    """Draw the world of a seed, take it through its phases, check its log; with `twice`, run it again and compare."""
    drawn = draw(seed)
    world, log = build(drawn), MemoryLog()
    notes: Notes = {}
    world.beliefs = partial(Noting, notes)
    stopped, runner = _execute(world, drawn.phases, log)
    events = log.events
    known = ground(world, drawn, log.texts)
    found = [*stopped, *safety(known, events)]
    judged = Judged({}, 0, [])
    if not stopped:
        found += _agreement(runner, events)
        settings = world.settings.detector
        weaklings = frozenset(a for a in range(world.size) if weak(drawn, a))
        judged = liveness(known, events, drawn.phases, settings, notes, weaklings)
        found += judged.found
    seen = Seen(known)
    for event in events:
        seen(event)
    if twice:
        found += _again(drawn, log)
    return Verdict(
        seed,
        drawn.describe(),
        found,
        seen.counts,
        judged.fates,
        judged.recovered,
        sum(type(e) is FirstLook for e in events),
        sum(type(e) is TaskArrived for e in events),
        log.event_hash,
        twice,
    )


class Back:
    """Fold: from an arrival on, whether all that were degraded once are taken in again, so that a run may end."""

    def __init__(self, world: World, earliest: int) -> None:
        self._views = Views()
        self._earliest = earliest
        self._once = {f.agent for f in world.faults if isinstance(f, Swap) and f.degraded}
        self._neighbours = world.neighbours

    def __call__(self, event: Event) -> None:
        self._views(event)

    def enough(self, index: int) -> bool:
        """Whether the stream may end before arrival `index`."""
        if index < self._earliest:
            return False
        views = self._views
        pairs = [(o, a) for a in self._once for o in self._neighbours[a]]
        return not any(views.states.get(p) == "excluded" or views.partly.get(p) for p in pairs)


def _execute(world: World, phases: Phases, log: MemoryLog) -> tuple[list[Violation], LocalRun]:
    limit = _EVENTS_PER_TASK * len(world.tasks)

    def bounded(_: Event) -> None:
        if len(log.events) > limit:
            raise _Runaway

    back = Back(world, phases.quiet + int(SETTLE * world.arrivals_per_beat))
    log.subscribe(bounded)
    log.subscribe(back)
    runner = LocalRun(world, log, enough=back.enough)
    try:
        runner.run()
    except Stalled as error:
        what = str(error)
    except _Runaway:
        what = f"{limit} events and no end"
    else:
        return [], runner
    return [Violation("no-task-hangs", what, tuple(e.id for e in log.events[-2:]))], runner


def _agreement(runner: LocalRun, events: Iterable[Event]) -> list[Violation]:
    """The log tells what agents believe: folded states equal those that the agents hold at the end."""
    views = Views()
    for event in events:
        views(event)
    found = []
    for agent in runner.agents:
        for other, opinion in agent.beliefs.opinions.items():
            told = (views.states.get((agent.id, other), "healthy"), sorted(views.partly.get((agent.id, other), ())))
            held = (opinion.state, sorted(opinion.excluded_abilities))
            if told[0] == held[0] == "excluded":
                continue
            if told != held:
                what = f"agent {agent.id} holds agent {other} for {held}, its log says {told}"
                found.append(Violation("log-tells-beliefs", what))
    return found


def _again(drawn: Drawn, first: MemoryLog) -> list[Violation]:
    log = MemoryLog()
    _execute(build(drawn), drawn.phases, log)
    if log.event_hash == first.event_hash and draw(drawn.seed) == drawn:
        return []
    pairs = zip(first.events, log.events, strict=False)
    split = next(((a, b) for a, b in pairs if a != b), None)
    ids = (split[0].id, split[1].id) if split is not None else ()
    return [Violation("same-seed-same-log", "a second run of the same seed went another way", ids)]
