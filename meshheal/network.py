"""How an agent reaches its peers: the messages, and the only clock it sees. Each runtime implements `Network` once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from meshheal.errors import NetworkError
from meshheal.events import EventId, Outcome
from meshheal.model import Purpose
from meshheal.types import Ability, AgentId, Answer, Message, Review, ReviewRecord, Task, Usage

T = TypeVar("T")


# --- requests, and the replies to them -------------------------------------------------------------------------------


class Produce(Struct, frozen=True, tag=True):
    """Answer the task. `purpose` is `produce`, or `probe` where the answer is compared with a reference."""

    task: Task
    purpose: Purpose = "produce"
    n: int = 0
    step: int = 0
    cause: EventId | None = None


class ReviewIt(Struct, frozen=True, tag=True):
    """Score an answer `samples` times in one request; with `opinions`, after having seen the other members' reasons."""

    task: Task
    answer: Answer
    samples: int = 1
    n: int = 0
    opinions: tuple[Review, ...] = ()
    step: int = 0
    cause: EventId | None = None
    probing: bool = False
    """The answer was given to a probe."""


class TakeOver(Struct, frozen=True, tag=True):
    """Answer the task yourself, seeing a rejected answer and what was said against it."""

    task: Task
    answer: Answer
    criticisms: tuple[str, ...]
    step: int = 0
    cause: EventId | None = None


class Consult(Struct, frozen=True, tag=True):
    """Put `messages` to your model, on behalf of a method that has prompts of its own; `samples` texts in one request.

    `max_output` caps a completion's tokens, where the method does.
    """

    task: Task
    purpose: Purpose
    messages: tuple[Message, ...]
    n: int = 0
    samples: int = 1
    max_output: int | None = None
    step: int = 0
    cause: EventId | None = None


class Forward(Struct, frozen=True, tag=True):
    """Coordinate the task, or pass it on; `path` are the agents it has visited."""

    task: Task
    path: tuple[AgentId, ...]
    ttl: int
    cause: EventId | None = None


class Tell(Struct, frozen=True, tag=True):
    """Review records for a neighbour of their producers. Acknowledged by returning."""

    records: tuple[ReviewRecord, ...]
    cause: EventId | None = None


class Notice(Struct, frozen=True, tag=True):
    """Tells an agent that the sender excludes it, or no longer does; it then spares its own coordinator its work."""

    excluded: bool


class TakeDuty(Struct, frozen=True, tag=True):
    """Probe `agent` in the sender's place, which has no reference left for it. Replied to with whether a probe was sent."""

    agent: AgentId
    motive: Literal["burst", "recovery"]


class Advert(Struct, frozen=True, tag=True):
    """Hops from the sender to the nearest agent able to coordinate each ability; later `number`s replace earlier ones."""

    number: int
    hops: tuple[tuple[Ability, int], ...]


class Produced(Struct, frozen=True, tag=True):
    """What an agent's model wrote. `failure` names the boundary that failed; the text is then empty."""

    text: str
    finish: str
    usage: Usage
    call: EventId
    failure: str = ""


class Consulted(Struct, frozen=True, tag=True):
    """What an agent's model wrote, one text a sample. `failure` names the boundary that failed; there is no text then."""

    texts: tuple[str, ...]
    finish: str
    usage: Usage
    call: EventId
    failure: str = ""


class Reviewed(Struct, frozen=True, tag=True):
    """One review per sample asked for."""

    reviews: tuple[Review, ...]
    usage: Usage
    call: EventId


class Settled(Struct, frozen=True, tag=True):
    """A coordinator's result, before the entry agent makes it the task's outcome."""

    outcome: Outcome
    producer: AgentId | None = None
    author: AgentId | None = None
    value: str | None = None
    usage: Usage = Usage()
    calls: int = 0
    cause: EventId | None = None


Request = Produce | ReviewIt | TakeOver | Consult | Forward | Tell | Notice | TakeDuty | Advert
Reply = Produced | Reviewed | Consulted | Settled | bool


class Network(Protocol):
    """One agent's view of the world around it."""

    def now(self) -> float:
        """The local clock in seconds: virtual on the simulator, real on a cluster."""
        ...

    def beat(self) -> int:
        """Mean inter-arrival times of the task stream since the start: the clock that probing is scheduled on."""
        ...

    async def ask(self, to: AgentId, message: Any, timeout: float) -> Any:
        """Send a request to an agent and wait for its reply.

        Raises `NetworkError` when none came within `timeout` seconds (the peer may have done the work all the same).
        """
        ...

    async def tell(self, to: Sequence[AgentId], message: Any, timeout: float) -> list[AgentId]:
        """Send one message to several agents; return those that did not acknowledge within `timeout` seconds."""
        ...

    async def gather(self, calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run the calls at the same time; results in their order. The first exception is raised after all have ended."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], patient: bool = False) -> None:
        """Run `work` in the background for as long as the agent lives.

        A closed stream admits its next task once background work is done, except where it is `patient` (waits for
        peers that may be gone for long).
        """
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def elapse(self, seconds: float) -> None:
        """Let the `seconds` go by that a simulated or recorded model would have taken.

        A virtual clock waits for them; a real one does not: there they are only told in the log.
        """
        ...

    def wake(self, beats: float, action: Callable[[], Awaitable[None]]) -> None:
        """Run `action` once, `beats` mean inter-arrival times from now (rounded up, at least one)."""
        ...


async def unreached(network: Network, to: Sequence[AgentId], message: Any, timeout: float) -> list[AgentId]:
    """Ask several agents the same, at the same time; those that did not reply within `timeout` seconds."""

    async def replied(agent: AgentId) -> bool:
        try:
            await network.ask(agent, message, timeout)
        except NetworkError:
            return False
        return True

    found = await network.gather([replied(agent) for agent in to])
    return [agent for agent, ok in zip(to, found, strict=True) if not ok]
