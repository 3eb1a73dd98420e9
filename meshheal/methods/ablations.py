"""MeshHeal with a part taken out, and with what its paper's words promise put otherwise.

Source: MeshHeal (arXiv 2609.29015): its ablations, and the properties it names.
Parameters: MeshHeal's.
Deviations: each is MeshHeal but for the one thing that its line names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from meshheal.agent import Agent, Work
from meshheal.beliefs import Beliefs, Finding
from meshheal.config import Settings
from meshheal.methods.meshheal import ladder, share
from meshheal.methods.parts import nobody, produced
from meshheal.network import Settled
from meshheal.opinion import Neighbour
from meshheal.reference import Stratum, Tally, stratum_of
from meshheal.types import Ability, AgentId, ReviewRecord

NO_PROBES: dict[str, Any] = {"budget": 0.0, "burst": 0, "probe_every": 1e9, "backoff_max": 1e9}
"""Settings of `recovery` under which nobody is ever probed."""


async def fast_only(agent: Agent, work: Work) -> Settled:
    """The review ladder alone: no score is shared, nobody is suspected, excluded or probed."""
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    _, ended = await ladder(agent, work, answer)
    return Settled(ended.outcome, answer.producer, ended.author, ended.value, work.usage, work.calls, work.cause)


async def score_to_author(agent: Agent, work: Work) -> Settled:
    """MeshHeal, but the score goes to whoever's answer was used, not to who produced the one that was scored."""
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    look, ended = await ladder(agent, work, answer)
    await share(agent, work, answer, look, ended, credited=ended.author)
    agent.network.spawn(agent.prober.background())
    return Settled(ended.outcome, answer.producer, ended.author, ended.value, work.usage, work.calls, work.cause)


class Unconditioned(Beliefs):
    """References over all scores obtained in one way, whatever the ability and kind of task."""

    def expected(self, record: ReviewRecord) -> float | None:
        return super().expected(replace(record, ability="", kind=""))


class OwnHistory(Beliefs):
    """An agent is compared with its own earlier scores obtained in the same way, not with its peers."""

    def __init__(
        self, me: AgentId, mine: Iterable[Ability], neighbours: Mapping[AgentId, Neighbour], settings: Settings
    ) -> None:
        super().__init__(me, mine, neighbours, settings)
        self._own: dict[tuple[AgentId, Stratum], Tally] = {}
        self._window = settings.detector.window
        self._prior = settings.detector.pool_prior

    def expected(self, record: ReviewRecord) -> float | None:
        own = self._own.get((record.producer, stratum_of(record)))
        if own is None or own.n < self._prior:
            return None
        return own.total / own.n

    def observe(self, record: ReviewRecord) -> list[Finding]:
        found = super().observe(record)
        # As peers' levels are, history is learnt while nothing is suspected.
        opinion = self.opinions.get(record.producer)
        if opinion is not None and opinion.state in ("healthy", "probation"):
            self._own.setdefault((record.producer, stratum_of(record)), Tally()).add(record.score, self._window)
        return found

    def checkpoint(self) -> Any:
        own = [[a, list(s), t.n, t.total] for (a, s), t in self._own.items()]
        return {**super().checkpoint(), "own": own}

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._own = {(a, (s[0], s[1])): Tally(n, total) for a, s, n, total in state["own"]}
