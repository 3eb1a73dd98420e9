"""How many messages of the protocol went around."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from meshheal.types import AgentId


class Traffic(Struct):
    """Messages that crossed a link: requests and replies, and evidence apart from them; to agents two hops away too."""

    requests: int = 0
    evidence: int = 0
    two_hops: int = 0

    def count(self, near: frozenset[AgentId], to: Sequence[AgentId], *, evidence: bool) -> None:
        """Note a message to each of `to`; `near` are the sender's neighbours."""
        if evidence:
            self.evidence += len(to)
        else:
            self.requests += len(to)
        self.two_hops += len(to) - len(near.intersection(to))

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.requests + other.requests, self.evidence + other.evidence, self.two_hops + other.two_hops)
