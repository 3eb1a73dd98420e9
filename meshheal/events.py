"""The tagged union of events: the only truth about a run. Everything shown is folded from these.

An event's identity is (node, incarnation, seq); node is an agent's number, or `WORLD` for the harness (arrivals, grading,
swaps), of which the protocol sees nothing. `causes` are the events that led to this one on any node. `t` is in seconds
of the runtime's clock; `wall` (seconds since the epoch) is kept only where a wall clock decided something, and is not
part of the hash. `step` counts the model calls that the task had cost when the event happened.
"""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from meshheal.model import CallNotes, Purpose
from meshheal.types import Ability, AgentId, Channel, ReviewRecord, TaskId, Usage

SCHEMA_VERSION = 1
WORLD = -1

EventId = tuple[int, int, int]
State = Literal["healthy", "suspect", "excluded", "probation"]
Outcome = Literal[
    "accepted", "committee", "takeover", "budget_exhausted", "unroutable", "unanswered", "failed", "direct"
]
"""How a task ended. `direct`: used without review. `unanswered`: no producer replied. `failed`: an error of ours or a crash."""


class Event(Struct, frozen=True, kw_only=True, gc=False, tag_field="kind", omit_defaults=True):
    """Fields common to all events."""

    node: int
    incarnation: int = 0
    seq: int
    t: float
    task: TaskId = ""
    step: int = 0
    causes: tuple[EventId, ...] = ()
    wall: float | None = None

    @property
    def id(self) -> EventId:
        return (self.node, self.incarnation, self.seq)


# --- what the harness does -------------------------------------------------------------------------------------------


class TaskArrived(Event, frozen=True, kw_only=True, gc=False):
    """A task of the stream reaches its entry agent. `index` counts arrivals from 0."""

    index: int
    entry: AgentId
    ability: Ability
    task_kind: str = ""
    prompt: str = ""
    """Text id of the task's last message."""


class TaskGraded(Event, frozen=True, kw_only=True, gc=False):
    """The harness compared the settled answer with the gold one. `correct` is None where there was no answer."""

    correct: bool | None


class Swapped(Event, frozen=True, kw_only=True, gc=False):
    """The models bound to an agent's own abilities change, from arrival `index` on. `degraded` is the harness' truth."""

    agent: AgentId
    to: str
    index: int
    degraded: bool
    roles: tuple[Purpose, ...] = ()
    """Empty: every purpose."""


class Crashed(Event, frozen=True, kw_only=True, gc=False):
    agent: AgentId


class Restarted(Event, frozen=True, kw_only=True, gc=False):
    agent: AgentId


class MessageLost(Event, frozen=True, kw_only=True, gc=False):
    """A link dropped a message (loss, partition, or the receiver was down)."""

    to: AgentId
    what: str
    why: Literal["loss", "partition", "down"]


class AgentFailed(Event, frozen=True, kw_only=True, gc=False):
    """An exception escaped an agent's own code while it worked on a task."""

    error: str


class WallClockDecided(Event, frozen=True, kw_only=True, gc=False):
    """A real deadline cut something: the run's hash cannot be compared."""

    what: str


# --- the fast timescale ----------------------------------------------------------------------------------------------


class TaskForwarded(Event, frozen=True, kw_only=True, gc=False):
    to: AgentId
    ttl: int


class ProducerAsked(Event, frozen=True, kw_only=True, gc=False):
    """The coordinator (`node`) hands the task to `producer`. `state` is what it believes of the producer."""

    producer: AgentId
    ability: Ability
    state: State = "healthy"
    mandated: bool = False
    """An exclusion was withheld: the producer is used although the evidence is against it."""


class ModelCalled(Event, frozen=True, kw_only=True, gc=False):
    """One request to a model, successful or not. `node` is the agent that called it.

    `prompt` lists (role, text id) of its messages; `replies` the text ids of the completions; `inputs` the events whose
    text entered the prompt. `failure` names the boundary that failed, empty on success.
    """

    model: str
    purpose: Purpose
    subject: AgentId
    n: int
    prompt: tuple[tuple[str, str], ...]
    prompt_hash: str
    replies: tuple[str, ...] = ()
    usage: Usage = Usage()
    latency: float = 0.0
    finish: str = "stop"
    failure: str = ""
    branch: int = 0
    inputs: tuple[EventId, ...] = ()
    probing: bool = False
    """The call served a probe: the probe itself, or the review of one."""
    reasoning: tuple[str, ...] = ()
    notes: CallNotes | None = None


class Answered(Event, frozen=True, kw_only=True, gc=False):
    """The producer's output as the coordinator read it."""

    producer: AgentId
    value: str | None
    fault: str = ""
    text: str = ""
    """Text id of the output."""


class ProducerSilent(Event, frozen=True, kw_only=True, gc=False):
    """The producer did not answer in time: a crash-stop fault, evidence of its own kind."""

    producer: AgentId


class FirstLook(Event, frozen=True, kw_only=True, gc=False):
    """One reviewer's scores of the output (several where they were low or near the cut), and what they led to."""

    producer: AgentId
    reviewer: AgentId
    scores: tuple[float, ...]
    unscored: tuple[str, ...] = ()
    decision: Literal["accept", "committee", "unscored"] = "accept"
    why: Literal["", "low", "spread", "suspect", "unscored"] = ""


class CommitteeMet(Event, frozen=True, kw_only=True, gc=False):
    """Independent scores, the scores after the members saw one another's reasons (if they disagreed), the verdict."""

    producer: AgentId
    members: tuple[AgentId, ...]
    scores: tuple[float | None, ...]
    deliberated: tuple[float | None, ...] = ()
    verdict: float | None = None
    split: bool = False


class TookOver(Event, frozen=True, kw_only=True, gc=False):
    """The members answered the task themselves; the plurality of their and the producer's answers is used."""

    producer: AgentId
    members: tuple[AgentId, ...]
    values: tuple[str | None, ...]
    chosen: AgentId
    replaced: bool


class TaskSettled(Event, frozen=True, kw_only=True, gc=False):
    """The one terminal outcome of a task, written by its entry agent."""

    outcome: Outcome
    producer: AgentId | None = None
    author: AgentId | None = None
    """Whose answer is used."""
    value: str | None = None
    usage: Usage = Usage()
    calls: int = 0


# --- the slow timescale ----------------------------------------------------------------------------------------------


class EvidenceShared(Event, frozen=True, kw_only=True, gc=False):
    """A review record left its coordinator for the neighbours of the producer."""

    record: ReviewRecord
    to: tuple[AgentId, ...]


class EvidenceUndelivered(Event, frozen=True, kw_only=True, gc=False):
    """A neighbour did not acknowledge a record within the retries."""

    record: str
    to: AgentId


class SuspicionMoved(Event, frozen=True, kw_only=True, gc=False):
    """The evidence an observer (`node`) holds against an agent crossed a power of two. 1 is no evidence."""

    agent: AgentId
    evidence: float
    record: str = ""
    detector: str = "e-cusum"


class StateChanged(Event, frozen=True, kw_only=True, gc=False):
    """What an observer (`node`) believes of an agent, or of one ability of it (`ability`; empty: the whole agent)."""

    agent: AgentId
    before: State
    to: State
    evidence: float
    ability: Ability = ""
    record: str = ""
    reason: str = ""


class ShadowAlarm(Event, frozen=True, kw_only=True, gc=False):
    """A detector running in shadow would have excluded (`to` = excluded) or suspected the agent."""

    agent: AgentId
    detector: str
    evidence: float


class ExclusionWithheld(Event, frozen=True, kw_only=True, gc=False):
    """The evidence suffices, but a guard keeps the agent in."""

    agent: AgentId
    ability: Ability
    guard: Literal["min_eligible", "max_excluded_fraction"]
    evidence: float


class Probed(Event, frozen=True, kw_only=True, gc=False):
    """A probe of `agent` with a task from the reference bank. `score` None: it could not be judged."""

    agent: AgentId
    reference: TaskId
    score: float | None
    motive: Literal["background", "burst", "recovery"]
    compared: bool = True
    """Judged by comparing answers; False: by a reviewer."""
    unanswered: bool = False


class ProbeSkipped(Event, frozen=True, kw_only=True, gc=False):
    """The neighbour on duty had no reference the agent may be probed with."""

    agent: AgentId
    motive: str


class ReferenceBanked(Event, frozen=True, kw_only=True, gc=False):
    """A settled task became a reference for probes."""

    families: tuple[str, ...]


class ReviewerSidelined(Event, frozen=True, kw_only=True, gc=False):
    """An observer no longer asks (`active`), or asks again, an agent to review."""

    agent: AgentId
    active: bool
    evidence: float


class ReviewersUninformative(Event, frozen=True, kw_only=True, gc=False):
    """Scores of answers that agree with references no longer differ from scores of answers that do not."""

    agreed_mean: float
    disputed_mean: float
    n_agreed: int
    n_disputed: int
    channel: Channel = "probe"


class CorrelatedDegradation(Event, frozen=True, kw_only=True, gc=False):
    """A whole group does worse on references from before than it did then."""

    group: tuple[AgentId, ...]
    expected: float
    observed: float
    evidence: float


AnyEvent = (
    TaskArrived
    | TaskGraded
    | Swapped
    | Crashed
    | Restarted
    | MessageLost
    | AgentFailed
    | WallClockDecided
    | TaskForwarded
    | ProducerAsked
    | ModelCalled
    | Answered
    | ProducerSilent
    | FirstLook
    | CommitteeMet
    | TookOver
    | TaskSettled
    | EvidenceShared
    | EvidenceUndelivered
    | SuspicionMoved
    | StateChanged
    | ShadowAlarm
    | ExclusionWithheld
    | Probed
    | ProbeSkipped
    | ReferenceBanked
    | ReviewerSidelined
    | ReviewersUninformative
    | CorrelatedDegradation
)


class Log(Protocol):
    """Where events go: a file, or memory."""

    def write(self, event: Event) -> None:
        """Append one event."""
        ...

    def text(self, text: str) -> str:
        """Keep a long text once; return its `text_id`."""
        ...
