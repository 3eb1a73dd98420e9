"""How many messages of the protocol went around."""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec import Struct

from meshheal.types import AgentId


class Traffic(Struct):
    """Messages that crossed a link: requests and replies, and evidence apart from them; to agents two hops away too."""

    requests: int = 0
    evidence: int = 0
    two_hops: int = 0

    def count(self, near: Set[AgentId], to: Sequence[AgentId], *, evidence: bool) -> None:
        """Note a message to each of `to`; `near` are the sender's neighbours."""
        if evidence:
            self.evidence += len(to)
        else:
            self.requests += len(to)
        for agent in to:
            if agent not in near:
                self.two_hops += 1

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.requests + other.requests, self.evidence + other.evidence, self.two_hops + other.two_hops)
