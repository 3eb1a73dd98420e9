"""Who may produce a task, who may review it, and where it goes when nobody near can do either."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Any

from meshheal.beliefs import Beliefs
from meshheal.config import Routing as Settings
from meshheal.opinion import Neighbour
from meshheal.reviewers import ReviewerWatch
from meshheal.rng import mix
from meshheal.types import ANY, Ability, AgentId

_UNIT = 2.0**-64
FAR = 1 << 20
"""Hops to an ability that cannot be reached."""


class Routing:
    """One agent's view of who is able to do what in its closed neighbourhood (itself and its neighbours)."""

    def __init__(
        self,
        me: Neighbour,
        neighbours: Mapping[AgentId, Neighbour],
        beliefs: Beliefs,
        watch: ReviewerWatch,
        settings: Settings,
        seed: int,
    ) -> None:
        self._me = me.id
        self._beliefs = beliefs
        self._watch = watch
        self._settings = settings
        self._seed = seed
        self._plain = settings.suspicion_weight == 0 and settings.load_weight == 0
        self._everyone: dict[AgentId, Neighbour] = {me.id: me, **neighbours}
        self._holders: dict[Ability, tuple[AgentId, ...]] = {}
        self._families: dict[Ability, frozenset[str]] = {}
        self.load: dict[AgentId, int] = {}
        self.down: dict[AgentId, int] = {}
        """Agents that did not answer, and the beat until which they are left alone."""
        self._hops: dict[AgentId, tuple[int, tuple[tuple[Ability, int], ...]]] = {}

    def holders(self, ability: Ability) -> tuple[AgentId, ...]:
        """All in the closed neighbourhood with the ability, in order of id."""
        found = self._holders.get(ability)
        if found is None:
            found = tuple(sorted(a for a, v in self._everyone.items() if ability == ANY or ability in v.abilities))
            self._holders[ability] = found
        return found

    def mixed(self, ability: Ability, family: str) -> bool:
        """Whether two other model families than `family` hold the ability here and are not excluded from it.

        Then a reference can be settled without the agent's like; else it must do with what there is.
        """
        held_by = self._families.get(ability)
        if held_by is None:
            held_by = self._families[ability] = frozenset([self._everyone[a].family for a in self.holders(ability)])
        if len(held_by) - (family in held_by) < 2:
            return False
        state = self._beliefs.state
        others = {self._everyone[a].family for a in self.holders(ability) if state(a, ability) != "excluded"}
        others.discard(family)
        return len(others) >= 2

    def _up(self, agent: AgentId, beat: int) -> bool:
        until = self.down.get(agent)
        if until is None:
            return True
        if beat >= until:
            del self.down[agent]
            return True
        return False

    def producers(self, ability: Ability, beat: int) -> list[AgentId]:
        """Eligible producers: holders that are not excluded from the ability and not known to be down."""
        state = self._beliefs.state
        eligible = [a for a in self.holders(ability) if state(a, ability) != "excluded"]
        return [a for a in eligible if self._up(a, beat)] if self.down else eligible

    def producer_for(self, item: int, ability: Ability, beat: int, tried: Collection[AgentId] = ()) -> AgentId | None:
        """The producer of the task with hash `item`: first of a ranking drawn per (seed, task, agent).

        Rendezvous hashing with weights (score -log(u) / w, least first): an exclusion moves only the tasks it must.
        """
        base = mix(item, self._seed)
        draws = [(mix(base, agent), agent) for agent in self.producers(ability, beat) if agent not in tried]
        if not draws:
            return None
        if self._plain:
            return max(draws)[1]
        return min([(-log((draw + 1) * _UNIT) / self._weight(agent), agent) for draw, agent in draws])[1]

    def _weight(self, agent: AgentId) -> float:
        s = self._settings
        evidence = max(1.0, self._beliefs.evidence(agent))
        return float(evidence**-s.suspicion_weight * (1.0 + self.load.get(agent, 0)) ** -s.load_weight)

    def reviewers_for(
        self, item: int, ability: Ability, producer: AgentId, beat: int, salt: int, without: Collection[AgentId] = ()
    ) -> list[AgentId]:
        """All eligible reviewers in the order in which they are asked: other model families first, then by a draw.

        Suspects and excluded agents review nothing, nor do those that keep losing votes. The draw does not depend on
        who produced.
        """
        state, family = self._beliefs.state, self._everyone[producer].family if producer in self._everyone else ""
        base = mix(mix(item, self._seed), salt)
        ranked = []
        for agent in self.holders(ability) if self._settings.match_reviewers else sorted(self._everyone):
            if agent == producer or agent in without or not self._watch.trusted(agent) or not self._up(agent, beat):
                continue
            if state(agent, ability) in ("healthy", "probation"):
                ranked.append((self._everyone[agent].family == family, mix(base, agent), agent))
        ranked.sort()
        return [agent for _, _, agent in ranked]

    def can_coordinate(self, ability: Ability, beat: int) -> bool:
        """Whether an eligible producer and a reviewer other than it are here."""
        producers = self.producers(ability, beat)
        if len(producers) >= 2:
            return True
        return bool(producers) and bool(self.reviewers_for(0, ability, producers[0], beat, 0))

    # --- distance table ------------------------------------------------------------------------------------------

    def advert(self, abilities: Sequence[Ability], beat: int) -> dict[Ability, int]:
        """Hops from here to the nearest agent able to coordinate each ability."""
        return {a: 0 if self.can_coordinate(a, beat) else 1 + self._nearest(a)[0] for a in abilities}

    def heard(self, sender: AgentId, number: int, hops: tuple[tuple[Ability, int], ...]) -> bool:
        """Take in a neighbour's advert; True where it is news."""
        known = self._hops.get(sender)
        if known is not None and number <= known[0]:
            return False
        self._hops[sender] = (number, hops)
        return known is None or known[1] != hops

    def _nearest(self, ability: Ability, without: Collection[AgentId] = ()) -> tuple[int, AgentId | None]:
        best: tuple[int, AgentId | None] = (FAR, None)
        for agent, (_, hops) in self._hops.items():
            distance = next((d for a, d in hops if a == ability), FAR)
            if agent not in without and distance < best[0] and distance <= self._settings.max_hops:
                best = (distance, agent)
        return best

    def next_hop(self, ability: Ability, path: Collection[AgentId]) -> AgentId | None:
        """The neighbour nearest to an agent able to coordinate the ability, not yet visited; None: no route."""
        return self._nearest(ability, path)[1]

    def state(self) -> Any:
        return {
            "down": [[a, b] for a, b in self.down.items()],
            "hops": [[a, n, list(h)] for a, (n, h) in self._hops.items()],
        }

    def restore(self, state: Any) -> None:
        self.down = dict(state["down"])
        self._hops = {a: (n, tuple(map(tuple, h))) for a, n, h in state["hops"]}
