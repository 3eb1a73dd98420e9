"""Links between agents: latency, loss, duplication, partition."""

from __future__ import annotations

from math import exp
from typing import Literal

from msgspec import Struct

from meshheal.rng import Stream
from meshheal.types import AgentId


class LinkProfile(Struct, frozen=True):
    """How messages travel. Probabilities per message and direction; latency is lognormal with its median in seconds."""

    latency: float = 0.0
    latency_sigma: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0

    @property
    def perfect(self) -> bool:
        return self.latency == 0.0 and self.loss == 0.0 and self.duplicate == 0.0


class Links:
    """The links of one world: draws the fate of each message from one stream."""

    def __init__(self, profile: LinkProfile, seed: int) -> None:
        self.profile = profile
        self._draws = Stream(seed, "links")
        self._sides: dict[AgentId, int] | None = None

    def partition(self, groups: tuple[tuple[AgentId, ...], ...] | None) -> None:
        """Cut the network into groups (agents named in none stay with the first); None heals it."""
        self._sides = None if groups is None else {a: i for i, g in enumerate(groups) for a in g}

    def fate(self, sender: AgentId, to: AgentId) -> tuple[float, ...] | Literal["loss", "partition"]:
        """Delays in seconds of the copies that arrive, or why none does."""
        sides = self._sides
        if sides is not None and sides.get(sender, 0) != sides.get(to, 0):
            return "partition"
        p = self.profile
        if p.perfect:
            return (0.0,)
        if p.loss and self._draws.uniform() < p.loss:
            return "loss"
        first = self._delay()
        if p.duplicate and self._draws.uniform() < p.duplicate:
            return (first, self._delay())
        return (first,)

    def _delay(self) -> float:
        p = self.profile
        if p.latency_sigma == 0.0:
            return p.latency
        return p.latency * exp(p.latency_sigma * self._draws.normal())
