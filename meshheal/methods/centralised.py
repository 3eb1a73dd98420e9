"""Centralised MeshHeal: one judge for all agents, with every score of the whole network as its reference.

Source: MeshHeal (arXiv 2609.29015) with its detector in one place: what decentralisation costs.
Parameters: MeshHeal's.
Deviations: the judge's conclusions about an agent reach the neighbours of that agent with the record that led to them, without
delay or loss. Its threshold is that of an observer of all agents. Runs on the one-process runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meshheal.beliefs import Beliefs, Finding
from meshheal.config import Settings
from meshheal.opinion import Neighbour, Opinion
from meshheal.types import Ability, AgentId, ReviewRecord

_REMEMBERED = 4096
"""Records whose conclusions are kept for the neighbours that have yet to hear of them."""


class Centre:
    """Makes the views of one world on a judge that they share."""

    def __init__(self) -> None:
        self._judge: Beliefs | None = None
        self._public: dict[AgentId, Neighbour] = {}
        self._found: dict[str, list[Finding]] = {}

    def __call__(
        self, me: AgentId, mine: Iterable[Ability], neighbours: Mapping[AgentId, Neighbour], settings: Settings
    ) -> Beliefs:
        """One agent's view. All views are made before the first task."""
        if self._judge is None:
            self._judge = Beliefs(_NOBODY, (), self._public, settings)
        for agent, neighbour in neighbours.items():
            if agent not in self._public:
                self._public[agent] = neighbour
                self._judge.opinions[agent] = Opinion(neighbour, settings)
        self._judge.exclude_at = self._judge.exclude_at_of(len(self._public))
        return View(self, self._judge, me, mine, neighbours, settings)

    def conclude(self, record: ReviewRecord) -> list[Finding]:
        """What the judge finds by a record: computed once, told to all who bring it."""
        known = self._found.get(record.id)
        if known is None:
            assert self._judge is not None
            known = self._found[record.id] = self._judge.observe(record)
            if len(self._found) > _REMEMBERED:
                del self._found[next(iter(self._found))]
        return known


_NOBODY: AgentId = -1


class View(Beliefs):
    """What an agent sees of the judge: opinions of its own neighbours."""

    def __init__(
        self,
        centre: Centre,
        judge: Beliefs,
        me: AgentId,
        mine: Iterable[Ability],
        neighbours: Mapping[AgentId, Neighbour],
        settings: Settings,
    ) -> None:
        super().__init__(me, mine, neighbours, settings)
        self._centre = centre
        self._judge = judge
        self.opinions = {a: judge.opinions[a] for a in neighbours}

    def expected(self, record: ReviewRecord) -> float | None:
        return self._judge.expected(record)

    def observe(self, record: ReviewRecord) -> list[Finding]:
        return self._centre.conclude(record)

    def checkpoint(self) -> Any:
        """Nothing: the judge outlives its agents."""
        return {}

    def restore(self, state: Any) -> None:
        del state
