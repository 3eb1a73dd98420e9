"""The seam between the model and whatever sends its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct


class Answered(Struct, frozen=True):
    """An HTTP reply, read to its end. `headers` holds those that are used, names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Unreached(Exception):
    """The server could not be reached, or the connection broke before the reply was whole. The text holds no request."""


class Transport(Protocol):
    """Sends requests to a model's endpoints, on one event loop."""

    async def post(self, endpoint: str, path: str, body: bytes) -> Answered:
        """Send JSON and read the whole reply, whatever its status. Raises `Unreached`."""
        ...

    async def aclose(self) -> None: ...


Connect = Callable[[Mapping[str, str | None], int, bool], Transport]
"""Makes a transport: keys by endpoint, connections at a time to each, whether proxies of the environment may be used."""
