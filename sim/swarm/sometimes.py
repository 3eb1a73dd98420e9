"""What must happen somewhere in a swarm, or it tests less than it seems to."""

from __future__ import annotations

from typing import Literal, get_args

from meshheal.events import (
    CommitteeMet,
    CorrelatedDegradation,
    Crashed,
    Event,
    ExclusionWithheld,
    Restarted,
    StateChanged,
    Swapped,
    TaskArrived,
    TookOver,
)
from meshheal.recovery import on_duty
from meshheal.types import AgentId
from sim.swarm.ground import Ground, Views

Sometimes = Literal[
    "takeover", "split committee", "withheld exclusion", "false exclusion", "correlated alarm", "prober down"
]
SOMETIMES: tuple[Sometimes, ...] = get_args(Sometimes)


class Seen:
    """Fold: which of these occurred in a run, and how often."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.counts: dict[Sometimes, int] = dict.fromkeys(SOMETIMES, 0)
        self._views = Views()
        self._blemished: set[AgentId] = set()
        """Agents that were degraded once: their later exclusions may be late true ones."""
        self._down: set[AgentId] = set()
        self._beat = -1

    def __call__(self, event: Event) -> None:
        self._views(event)
        counts = self.counts
        match event:
            case TookOver():
                counts["takeover"] += 1
            case CommitteeMet():
                counts["split committee"] += event.split
            case ExclusionWithheld():
                counts["withheld exclusion"] += 1
            case CorrelatedDegradation():
                counts["correlated alarm"] += 1
            case StateChanged():
                fresh = event.to == "excluded" and event.reason != "restored"
                counts["false exclusion"] += fresh and event.agent not in self._blemished
            case Swapped():
                if event.degraded:
                    self._blemished.add(event.agent)
            case Crashed():
                self._down.add(event.agent)
            case Restarted():
                self._down.discard(event.agent)
            case TaskArrived():
                self._duties(event)
            case _:
                pass

    def _duties(self, event: TaskArrived) -> None:
        """With each beat: is the neighbour down that an excluded agent has its probes from now?"""
        beat = int(event.index / self.ground.arrivals_per_beat)
        if beat == self._beat:
            return
        self._beat = beat
        if self._down:
            states = self._views.states.items()
            shut_out = {a for (o, a), state in states if state == "excluded" and o not in self._down}
            self.counts["prober down"] += sum(
                on_duty(a, beat, self.ground.neighbours[a]) in self._down for a in shut_out
            )
