"""Who stands how now: agents with state, suspicion and truth, and the incidents so far, folded from a run's events."""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec import Struct

from meshheal import events as ev
from meshheal.folds.summary import Summary
from meshheal.types import AgentId

KEPT_INCIDENTS = 200
Standing = Literal["down", "excluded", "partly excluded", "suspect", "probation", "healthy"]
"""What neighbours make of an agent, the worst first. `excluded`: by all of them, `partly excluded`: by some."""
STANDINGS: tuple[Standing, ...] = ("down", "excluded", "partly excluded", "suspect", "probation", "healthy")


class Row(Struct, frozen=True):
    """One agent. `excluded_by` and `suspected_by` count its `watchers`: live neighbours that share an ability with it."""

    agent: AgentId
    standing: Standing
    degraded: bool
    """The harness' truth."""
    excluded_by: int
    suspected_by: int
    watchers: int
    suspicion: float
    """Greatest evidence that any observer holds; 1 is none."""
    produced: int
    last_score: float | None
    probes_right: int
    probes: int


class Incident(Struct, frozen=True):
    """Something that happened to the network. `task`: index of the last arrival before it."""

    t: float
    task: int
    what: str


class Roster:
    """Fold. `summary` must be subscribed to the same events, before this one."""

    def __init__(self, agents: int, summary: Summary) -> None:
        self._summary = summary
        self._agents = agents
        self.task = -1
        self.t = 0.0
        self.graded = self.right = self.tokens = self.calls = 0
        self.incidents: deque[Incident] = deque(maxlen=KEPT_INCIDENTS)
        self._evidence: list[dict[AgentId, float]] = [{} for _ in range(agents)]
        self._produced = [0] * agents
        self._scores: list[float | None] = [None] * agents
        self._probes = [[0, 0] for _ in range(agents)]
        self._standing: dict[AgentId, Standing] = {}

    def __call__(self, event: ev.Event) -> None:
        self.t = max(self.t, event.t)
        match event:
            case ev.ModelCalled():
                self.calls += 1
                self.tokens += event.usage.total
            case ev.TaskArrived():
                self.task = event.index
            case ev.TaskGraded():
                self.graded += 1
                self.right += event.correct is True
            case ev.Answered():
                self._produced[event.producer] += 1
            case ev.FirstLook() if event.scores:
                self._scores[event.producer] = sum(event.scores) / len(event.scores)
            case ev.Probed() if event.score is not None:
                self._probes[event.agent][0] += event.score >= 0.5
                self._probes[event.agent][1] += 1
            case ev.SuspicionMoved():
                self._evidence[event.agent][event.node] = event.evidence
            case ev.StateChanged():
                self._believed(event)
            case _:
                self._happened(event)

    def _believed(self, e: ev.StateChanged) -> None:
        if not e.ability:
            anew = e.to in ("healthy", "probation")
            self._evidence[e.agent][e.node] = 1.0 if anew else e.evidence
        standing = self._stands(e.agent)
        before = self._standing.get(e.agent, "healthy")
        self._standing[e.agent] = standing
        if standing == before:
            return
        if standing == "excluded":
            self._note(f"agent {e.agent} is excluded by all its neighbours")
        elif standing == "partly excluded" and before not in ("excluded", "partly excluded"):
            self._note(f"agent {e.agent} is excluded by agent {e.node}, the first")
        elif before in ("excluded", "partly excluded") and standing in ("probation", "suspect", "healthy"):
            self._note(f"agent {e.agent} is excluded by nobody any more")

    def _happened(self, event: ev.Event) -> None:
        match event:
            case ev.Swapped():
                now = "degraded" if event.degraded else "well again"
                self._note(f"truth: agent {event.agent} is {now}, on {event.to}")
            case ev.Crashed():
                self._note(f"agent {event.agent} crashed")
            case ev.Restarted():
                for held in self._evidence:
                    held.pop(event.agent, None)
                self._note(f"agent {event.agent} is up again")
            case ev.ExclusionWithheld():
                self._note(f"agent {event.node} would exclude agent {event.agent} from {event.ability}: {event.guard}")
            case ev.CorrelatedDegradation():
                group = ", ".join(map(str, event.group[:8])) + (" …" if len(event.group) > 8 else "")
                self._note(f"group alarm by agent {event.node}: agents {group} fell together")
            case ev.ReviewersUninformative():
                self._note(f"reviews tell agent {event.node} no longer right from wrong")
            case ev.ReviewerSidelined():
                again = "again asks" if event.active else "no longer asks"
                self._note(f"agent {event.node} {again} agent {event.agent} to review")
            case ev.AgentFailed():
                self._note(f"an error of ours at agent {event.node}: {event.error}")
            case _:
                pass

    def _note(self, what: str) -> None:
        self.incidents.append(Incident(self.t, self.task, what))

    # --- questions -----------------------------------------------------------------------------------------------

    def _stands(self, agent: AgentId) -> Standing:
        s = self._summary
        if agent in s.down_now():
            return "down"
        live = s.live_watchers(agent)
        against = sum(s.excludes(w, agent) for w in live)
        if against:
            return "excluded" if against == len(live) else "partly excluded"
        states = s.states()
        held = {states.get((w, agent), "healthy") for w in live}
        return "suspect" if "suspect" in held else "probation" if "probation" in held else "healthy"

    def rows(self) -> list[Row]:
        """All agents, the worst first."""
        s = self._summary
        states, degraded = s.states(), set(s.degraded_now())
        rows = []
        for agent in range(self._agents):
            live = s.live_watchers(agent)
            rows.append(
                Row(
                    agent=agent,
                    standing=self._stands(agent),
                    degraded=agent in degraded,
                    excluded_by=sum(s.excludes(w, agent) for w in live),
                    suspected_by=sum(states.get((w, agent)) == "suspect" for w in live),
                    watchers=len(live),
                    suspicion=max(self._evidence[agent].values(), default=1.0),
                    produced=self._produced[agent],
                    last_score=self._scores[agent],
                    probes_right=self._probes[agent][0],
                    probes=self._probes[agent][1],
                )
            )
        return sorted(rows, key=lambda r: (STANDINGS.index(r.standing), -r.suspicion, not r.degraded, r.agent))
