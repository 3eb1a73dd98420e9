"""Errors by the boundary that was crossed. What an agent suffers is an event; what the harness suffers is one of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshheal.types import Usage


class MeshHealError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what a command ends with."""

    exit_code = 4


class UsageError(MeshHealError):
    """The caller asked for something that cannot be done; the message says what to change. Shown without traceback."""

    exit_code = 2


class ModelError(MeshHealError):
    """A model could not be called or its reply could not be had.

    `boundary` names what was crossed, out of a bounded set (`timeout`, `rate_limited`, ...: see `meshheal.models`); `detail`
    says more for people. `usage` are the tokens that the failed attempts took, where the server told.
    """

    def __init__(self, boundary: str = "", detail: str = "", usage: Usage | None = None) -> None:
        super().__init__(f"{boundary}: {detail}" if detail else boundary)
        self.boundary = boundary
        self.detail = detail
        self.usage = usage

    def __reduce__(self) -> tuple[type[ModelError], tuple[str, str, Usage | None]]:
        return type(self), (self.boundary, self.detail, self.usage)


class NetworkError(MeshHealError):
    """A peer could not be reached, or did not reply in time."""


class TraceError(MeshHealError):
    """A run directory or event log could not be written or read."""


class ReplayDivergence(MeshHealError):
    """A re-executed run asked for a call that the record does not hold."""

    exit_code = 1


class InternalError(MeshHealError):
    """A bug of ours: the message names the invariant that broke."""
