"""Topology: who may talk to whom, and what each is able to do. A value; built by the factories of this
package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from json import dumps
from typing import Any, NoReturn

from meshheal.errors import UsageError
from meshheal.types import ANY, Ability, AgentId


def refuse(message: str) -> NoReturn:
    """Raise the UsageError of this package: one line that says what is wrong and what to do."""
    raise UsageError(f"topology: {message}")


@dataclass(frozen=True)
class Topology:
    """An undirected graph without self-loops on agents 0 to n-1.

    `neighbours[i]` are agent i's neighbours in ascending order. `abilities[i]` is what it holds; the whole is
    () until abilities are assigned, and then every agent is good for `any` alone. `cells[i]` numbers the cell
    that agent i belongs to, () where the graph has none. `name` is how it was made, and can be parsed again
    for generated ones. Raises UsageError where these do not fit one another.
    """

    neighbours: tuple[tuple[AgentId, ...], ...]
    abilities: tuple[tuple[Ability, ...], ...] = ()
    name: str = ""
    cells: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.neighbours)
        mirrored: list[list[int]] = [[] for _ in range(n)]
        for agent, peers in enumerate(self.neighbours):
            if peers and (peers[0] < 0 or peers[-1] >= n):
                refuse(f"agent {agent} has a neighbour outside 0..{n - 1}")
            if agent in peers or len(set(peers)) < len(peers):
                refuse(f"agent {agent} has itself or one neighbour twice among its neighbours")
            for peer in peers:
                mirrored[peer].append(agent)
        for agent, peers in enumerate(self.neighbours):
            if tuple(mirrored[agent]) != peers:
                refuse(f"agent {agent} and a neighbour disagree about an edge, or are not in order")
        if not any(self.abilities):
            object.__setattr__(self, "abilities", ())  # nobody holds anything: as good as not given out
        if self.abilities and len(self.abilities) != n:
            refuse(f"{len(self.abilities)} agents have abilities, but there are {n}")
        for agent, held in enumerate(self.abilities):
            if len(set(held)) < len(held):
                refuse(f"agent {agent} holds an ability twice")
        if self.cells and len(self.cells) != n:
            refuse(f"{len(self.cells)} agents have a cell, but there are {n}")

    def __len__(self) -> int:
        """Number of agents."""
        return len(self.neighbours)

    @cached_property
    def edges(self) -> int:
        """Number of undirected edges."""
        return sum(map(len, self.neighbours)) // 2

    @property
    def share_of_complete(self) -> float:
        """Edges as a share of the complete graph's n(n-1)/2; 1 for a single agent."""
        n = len(self)
        return self.edges / (n * (n - 1) / 2) if n > 1 else 1.0

    @cached_property
    def ability_names(self) -> tuple[Ability, ...]:
        """All abilities that somebody holds, sorted; `any` alone where none are assigned."""
        return tuple(sorted({ability for held in self.abilities for ability in held})) or (ANY,)

    def held(self, agent: AgentId) -> tuple[Ability, ...]:
        """What an agent holds; `any` where no abilities are assigned."""
        return self.abilities[agent] if self.abilities else (ANY,)

    @cached_property
    def connected(self) -> bool:
        """Whether every agent can be reached from every other."""
        if not self.neighbours:
            return False
        seen = {0}
        frontier = [0]
        while frontier:
            for peer in self.neighbours[frontier.pop()]:
                if peer not in seen:
                    seen.add(peer)
                    frontier.append(peer)
        return len(seen) == len(self)

    @cached_property
    def hash(self) -> str:
        """16 hex digits of BLAKE2b over the node-link JSON without the name: equal networks have equal
        hashes.
        """
        canonical = replace(self, name="", abilities=tuple(tuple(sorted(held)) for held in self.abilities))
        return blake2b(to_json(canonical).encode(), digest_size=8).hexdigest()

    def edge_list(self) -> list[tuple[AgentId, AgentId]]:
        """Every edge once as (smaller, larger), ascending."""
        return [(low, high) for low, peers in enumerate(self.neighbours) for high in peers if low < high]

    def graph(self) -> Any:
        """The same as a `networkx.Graph` with node attributes `abilities` and `cell` where there are any."""
        import networkx

        graph = networkx.Graph(name=self.name)
        graph.add_nodes_from((agent, _attributes(self, agent)) for agent in range(len(self)))
        graph.add_edges_from(self.edge_list())
        return graph


def from_edges(
    n: int,
    edges: Iterable[tuple[AgentId, AgentId]],
    abilities: tuple[tuple[Ability, ...], ...] = (),
    name: str = "",
    cells: tuple[int, ...] = (),
) -> Topology:
    """A topology of n agents from edges given once each, in any order and direction."""
    peers: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        peers[a].append(b)
        peers[b].append(a)
    return Topology(tuple(tuple(sorted(row)) for row in peers), abilities, name, cells)


def _attributes(topology: Topology, agent: AgentId) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if topology.abilities:
        extra["abilities"] = list(topology.abilities[agent])
    if topology.cells:
        extra["cell"] = topology.cells[agent]
    return extra


def to_json(topology: Topology) -> str:
    """Node-link JSON as `networkx.node_link_data(graph, edges="edges")` has it, one node or edge a line.

    `networkx.node_link_graph(data, edges="edges")` reads it. Equal topologies give equal text.
    """
    rows = ({"id": agent, **_attributes(topology, agent)} for agent in range(len(topology)))
    nodes = ",\n".join(dumps(row, ensure_ascii=False) for row in rows)
    edges = ",\n".join(f'{{"source": {a}, "target": {b}}}' for a, b in topology.edge_list())
    about = dumps({"name": topology.name}, ensure_ascii=False)
    return (
        f'{{"directed": false, "multigraph": false, "graph": {about},\n'
        f'"nodes": [\n{nodes}\n],\n"edges": [\n{edges}\n]}}\n'
    )
