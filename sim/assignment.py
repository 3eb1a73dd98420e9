"""Which host each agent lives on: groups of nearly equal size with few edges between them."""

from __future__ import annotations

from collections.abc import Sequence

from meshheal.types import AgentId
from sim.wire import HostId


def assign_hosts(neighbours: Sequence[Sequence[AgentId]], hosts: int) -> list[HostId]:
    """The host of every agent, from 0; no more hosts than agents.

    Parts the graph again and again, each part in proportion to the hosts it gets; halves by Kernighan and Lin's exchange.
    """
    hosts = max(1, min(hosts, len(neighbours)))
    where = [0] * len(neighbours)
    _split(neighbours, list(range(len(neighbours))), list(range(hosts)), where)
    return where


def crossing(neighbours: Sequence[Sequence[AgentId]], where: Sequence[HostId]) -> int:
    """Edges between agents of different hosts."""
    return sum(where[a] != where[b] for a, around in enumerate(neighbours) for b in around if a < b)


def _split(
    neighbours: Sequence[Sequence[AgentId]], agents: list[AgentId], hosts: list[HostId], where: list[HostId]
) -> None:
    if len(hosts) == 1:
        for agent in agents:
            where[agent] = hosts[0]
        return
    if len(hosts) == len(agents):
        for agent, host in zip(agents, hosts, strict=True):
            where[agent] = host
        return
    left_hosts = len(hosts) // 2
    size = round(len(agents) * left_hosts / len(hosts))
    left, right = _halves(neighbours, agents, min(max(size, left_hosts), len(agents) - (len(hosts) - left_hosts)))
    _split(neighbours, left, hosts[:left_hosts], where)
    _split(neighbours, right, hosts[left_hosts:], where)


def _halves(
    neighbours: Sequence[Sequence[AgentId]], agents: list[AgentId], size: int
) -> tuple[list[AgentId], list[AgentId]]:
    """Two parts, the first of `size` agents: those met first by a walk outwards; halves are then exchanged while that helps."""
    import networkx

    inside = set(agents)
    graph = networkx.Graph()
    graph.add_nodes_from(agents)
    graph.add_edges_from((a, b) for a in agents for b in neighbours[a] if b in inside and a < b)
    order = _outwards(neighbours, agents)
    start = (set(order[:size]), set(order[size:]))
    if size * 2 != len(agents) or graph.number_of_edges() == 0 or graph.number_of_edges() == len(agents) * (len(agents) - 1) // 2:
        return sorted(start[0]), sorted(start[1])
    one, two = networkx.community.kernighan_lin_bisection(graph, partition=start, max_iter=10, seed=0)
    return sorted(one), sorted(two)


def _outwards(neighbours: Sequence[Sequence[AgentId]], agents: list[AgentId]) -> list[AgentId]:
    """All agents, breadth first, so that neighbours stand together."""
    inside, seen, order = set(agents), set[AgentId](), list[AgentId]()
    for root in agents:
        if root in seen:
            continue
        seen.add(root)
        frontier = [root]
        while frontier:
            order += frontier
            reached = []
            for agent in frontier:
                for peer in neighbours[agent]:
                    if peer in inside and peer not in seen:
                        seen.add(peer)
                        reached.append(peer)
            frontier = reached
    return order
