"""Which agents a degradation strikes: spread so that healthy majorities remain, or at random."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from meshheal.rng import Stream
from meshheal.types import AgentId
from topologies.graph import Topology, refuse


def _count(topology: Topology, fraction: float) -> int:
    if not 0 <= fraction <= 1:
        refuse(f"placement: fraction={fraction} must be 0 to 1, the share of degraded agents")
    return round(fraction * len(topology))


def random_placement(topology: Topology, fraction: float = 1 / 3, seed: int = 0) -> tuple[AgentId, ...]:
    """round(fraction * n) agents drawn without replacement, in ascending order."""
    agents = list(range(len(topology)))
    Stream("topology", "placement", seed, len(agents)).shuffle(agents)
    return tuple(sorted(agents[: _count(topology, fraction)]))


def outnumbered(topology: Topology, degraded: tuple[AgentId, ...]) -> tuple[AgentId, ...]:
    """Observers among whose neighbours the healthy are no majority."""
    ill = set(degraded)
    return tuple(
        agent
        for agent, peers in enumerate(topology.neighbours)
        if 2 * sum(1 for peer in peers if peer in ill) >= max(len(peers), 1)
    )


def stratified(topology: Topology, fraction: float = 1 / 3) -> tuple[AgentId, ...]:
    """round(fraction * n) agents spread so that observers keep a healthy majority where possible, in
    ascending order.

    Where there are cells, each gets its share (two of six by default). Agents are added one at a time where
    they add least to the sum of squares of degraded neighbours per observer and per ability: every observer's
    load stays even, and the degraded of one cell do not hold the same abilities. Then single agents are moved
    while that leaves fewer observers outnumbered.
    """
    total = _count(topology, fraction)
    spread = _Spread(topology, total)
    spread.fill(total)
    spread.relieve()
    return tuple(agent for agent, ill in enumerate(spread.ill) if ill)


class _Spread:
    """Degraded agents being placed, with each observer's count of degraded neighbours, whole and by ability."""

    def __init__(self, topology: Topology, total: int) -> None:
        self.topology = topology
        n = len(topology)
        self.ill = [False] * n
        self.seen = [0] * n
        self.cell = topology.cells or (0,) * n
        sizes: dict[int, int] = {}
        for number in self.cell:
            sizes[number] = sizes.get(number, 0) + 1
        # Rounded up: with a remainder some cells get one more than others.
        self.room = {number: -(-total * size // n) for number, size in sizes.items()}
        self.seen_of: list[dict[str, int]] = [dict.fromkeys(topology.ability_names, 0) for _ in range(n)]

    def cost(self, agent: AgentId) -> float:
        """What making the agent degraded would add."""
        held = self.topology.held(agent)
        added = 0.0
        for observer in self.topology.neighbours[agent]:
            added += (2 * self.seen[observer] + 1) / len(self.topology.neighbours[observer])
            of = self.seen_of[observer]
            for ability in held:
                added += (2 * of[ability] + 1) / (len(self.topology.neighbours[observer]) * len(held))
        return added

    def put(self, agent: AgentId, ill: bool) -> None:
        self.ill[agent] = ill
        step = 1 if ill else -1
        self.room[self.cell[agent]] -= step
        for observer in self.topology.neighbours[agent]:
            self.seen[observer] += step
            for ability in self.topology.held(agent):
                self.seen_of[observer][ability] += step

    def fill(self, total: int) -> None:
        """Place `total` agents, always the one of least cost; costs only grow, so that a stale one is a lower
        bound.
        """
        queue = [(self.cost(agent), agent) for agent in range(len(self.ill))]
        heapify(queue)
        while total and queue:
            _, agent = heappop(queue)
            if self.room[self.cell[agent]] <= 0:
                continue
            now = self.cost(agent)
            if queue and (now, agent) > queue[0]:
                heappush(queue, (now, agent))
                continue
            self.put(agent, True)
            total -= 1

    def _over(self, agents: set[AgentId]) -> int:
        return sum(1 for a in agents if 2 * self.seen[a] >= max(len(self.topology.neighbours[a]), 1))

    def relieve(self) -> None:
        """Move single agents to where they outnumber fewer observers, until no move helps."""
        neighbours = self.topology.neighbours
        for _ in range(4):
            moved = False
            for observer in range(len(self.ill)):
                if 2 * self.seen[observer] >= max(len(neighbours[observer]), 1):
                    moved |= self._relieve(observer)
            if not moved:
                return

    def _relieve(self, observer: AgentId) -> bool:
        neighbours = self.topology.neighbours
        for old in [peer for peer in neighbours[observer] if self.ill[peer]]:
            for new in self._candidates(old):
                touched = {*neighbours[old], *neighbours[new]}
                before = self._over(touched)
                self.put(old, False)
                self.put(new, True)
                if self._over(touched) < before:
                    return True
                self.put(new, False)
                self.put(old, True)
        return False

    def _candidates(self, old: AgentId) -> list[AgentId]:
        """Healthy agents that may become degraded instead: of the same cell, or those two or three steps
        away.
        """
        neighbours = self.topology.neighbours
        if self.topology.cells:
            near = {a for a in neighbours[old] if self.cell[a] == self.cell[old]}
        else:
            near = {b for a in neighbours[old] for b in neighbours[a]}
            near |= {c for b in sorted(near) for c in neighbours[b][:8]}
        return sorted(a for a in near if not self.ill[a])[:64]
