"""How an agent reaches its peers, and the only clock it sees. Each runtime implements this once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from meshheal.types import AgentId

T = TypeVar("T")


class Network(Protocol):
    """One agent's view of the world around it."""

    def now(self) -> float:
        """The local clock in seconds: virtual on the simulator, real on a cluster."""
        ...

    async def ask(self, to: AgentId, message: Any, timeout: float) -> Any:
        """Send `message` to a neighbour (or neighbour's neighbour) and wait for its reply.

        Raises `NetworkError` when no reply came within `timeout` seconds. The peer may have done the work all the same.
        """
        ...

    async def gather(self, calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run the calls at the same time; results in their order. The first exception is raised after all ended."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def wake(self, beats: int, action: Callable[[], Awaitable[None]]) -> None:
        """Run `action` once, `beats` mean inter-arrival times of the task stream from now (at least 1)."""
        ...

    def beat(self) -> int:
        """Mean inter-arrival times passed since the start: the local clock that probing is scheduled on."""
        ...
