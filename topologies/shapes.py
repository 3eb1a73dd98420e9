"""The classical graphs, all connected: complete, ring, cells, random regular, small world."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Literal

from meshheal.rng import Stream
from topologies.graph import Topology, from_edges, refuse

Edge = tuple[int, int]
MOST_COMPLETE = 5000


def _named(kind: str, n: int, **options: object) -> str:
    return ",".join([f"{kind}:{n}", *(f"{key}={value}" for key, value in options.items())])


def _enough(kind: str, n: int, least: int = 1) -> None:
    if n < least:
        refuse(f"{kind} needs at least {least} agent{'s' * (least > 1)}, not {n}")


def complete(n: int) -> Topology:
    """Everybody knows everybody: n(n-1)/2 edges. At most MOST_COMPLETE agents."""
    _enough("complete", n)
    if n > MOST_COMPLETE:
        refuse(f"complete: {n} agents would have {n * (n - 1) // 2} edges; use coverage or cells")
    everyone = tuple(range(n))
    return Topology(tuple(everyone[:i] + everyone[i + 1 :] for i in everyone), name=_named("complete", n))


def ring(n: int, k: int = 1) -> Topology:
    """Each agent knows the k next ones on either side: kn edges (fewer where the sides meet)."""
    _enough("ring", n, 3)
    if k < 1:
        refuse(f"ring: k={k} must be at least 1, the number of neighbours on each side")
    edges = {_edge(i, (i + step) % n) for i in range(n) for step in range(1, min(k, n // 2) + 1)}
    return from_edges(n, edges, name=_named("ring", n, k=k))


def cells(
    n: int,
    size: int = 6,
    bridges: int | None = None,
    join: Literal["rewired", "added"] = "rewired",
    seed: int = 0,
) -> Topology:
    """Cliques of `size` (the remainder spread over them), joined in a ring by single edges.

    `join="rewired"`: each cell gives up the edge between its first two members for the bridges that start and
    end there, as in Watts' connected caveman graph. Nobody's degree changes, and whoever loses a peer gains
    the one at the same place of another cell, which holds the same abilities: cells of six keep four holders
    of each ability in every closed neighbourhood at 5n/2 edges, which for two of three abilities an agent is
    the fewest possible.
    `join="added"`: cliques stay whole and bridges come on top.
    `bridges` counts the edges between cells: one a cell by default; more become shortcuts between random
    agents. Raises UsageError where they do not connect the cells (rewired: one a cell; added: one less).
    """
    _enough("cells", n)
    if size < 2 or (join == "rewired" and size < 3):
        refuse(f"cells: size={size} is too small; join=rewired needs 3 or more, join=added 2 or more")
    if join not in ("rewired", "added"):
        refuse(f"cells: join={join!r} is not known; use rewired or added")
    count = max(n // size, 1)
    cell = tuple(i * count // n for i in range(n))
    members: list[list[int]] = [[] for _ in range(count)]
    for agent, number in enumerate(cell):
        members[number].append(agent)
    ring_of = 0 if count == 1 else count
    total = ring_of if bridges is None else bridges
    least = ring_of if join == "rewired" else count - 1
    if total < least:
        refuse(f"cells: {count} cells need at least {least} bridges (join={join}), not {total}")
    edges = {pair for group in members for pair in combinations(group, 2)}
    if join == "rewired" and count > 1:
        edges -= {(group[0], group[1]) for group in members}
        edges |= {_edge(members[i][0], members[(i + 1) % count][1]) for i in range(count)}
    else:
        edges |= {_edge(members[i][-1], members[(i + 1) % count][0]) for i in range(min(total, ring_of))}
    _add_shortcuts(edges, cell, total - min(total, ring_of), Stream("topology", "cells", seed, n, size))
    options = {"size": size, "bridges": total, "join": join, "seed": seed}
    return from_edges(n, edges, name=_named("cells", n, **options), cells=cell)


def _add_shortcuts(edges: set[Edge], cell: tuple[int, ...], count: int, draw: Stream) -> None:
    """Add edges between random agents of different cells, in place."""
    n = len(cell)
    within = sum(size * size for size in Counter(cell).values())
    free = (n * n - within) // 2 - sum(1 for a, b in edges if cell[a] != cell[b])
    if count > free:
        refuse(f"cells: there is room for {free} more bridges, not for {count}; ask for fewer")
    while count:
        a, b = draw.index(n), draw.index(n)
        if cell[a] != cell[b] and _edge(a, b) not in edges:
            edges.add(_edge(a, b))
            count -= 1


def regular(n: int, degree: int, seed: int = 0) -> Topology:
    """A connected random graph in which every agent has `degree` neighbours.

    Made from a circulant graph by random switches of two edges, which keep every degree. n * degree must be
    even.
    """
    _enough("regular", n, 2)
    if not 1 <= degree < n or n * degree % 2 or (degree == 1 and n > 2):
        refuse(
            f"regular: no connected graph of {n} agents with degree {degree}; "
            f"the degree must be 2 to {n - 1} and n * degree even"
        )
    edges = [(i, (i + step) % n) for i in range(n) for step in range(1, degree // 2 + 1)]
    if degree % 2:
        edges += [(i, i + n // 2) for i in range(n // 2)]
    draw = Stream("topology", "regular", seed, n, degree)
    name = _named("regular", n, degree=degree, seed=seed)
    present = {_edge(a, b) for a, b in edges}
    for _ in range(100):
        _switch(edges, present, 5 * len(edges), draw)
        made = from_edges(n, edges, name=name)
        if made.connected:
            return made
    return refuse(f"regular: found no connected graph of {n} agents with degree {degree}; use another seed")


def _switch(edges: list[Edge], present: set[Edge], attempts: int, draw: Stream) -> None:
    """Replace (a,b),(c,d) by (a,d),(c,b) again and again where both are new, in place."""
    for _ in range(attempts):
        i, j = draw.index(len(edges)), draw.index(len(edges))
        (a, b), (c, d) = edges[i], edges[j]
        if draw.uniform() < 0.5:
            c, d = d, c
        if len({a, b, c, d}) < 4 or _edge(a, d) in present or _edge(c, b) in present:
            continue
        present -= {_edge(a, b), _edge(c, d)}
        present |= {_edge(a, d), _edge(c, b)}
        edges[i], edges[j] = (a, d), (c, b)


def small_world(n: int, k: int, p: float, seed: int = 0) -> Topology:
    """Watts and Strogatz: a ring in which each knows its k nearest (k even), each edge moved with probability
    p.

    An edge moves at one end, to a random agent that is not yet a neighbour. Drawn again until connected.
    """
    _enough("small_world", n, 3)
    if k < 2 or k % 2 or k >= n:
        refuse(f"small_world: k={k} must be even, 2 or more and below n={n}: half of them on each side")
    if not 0 <= p <= 1:
        refuse(f"small_world: p={p} must be 0 to 1, the probability that an edge is moved")
    draw = Stream("topology", "small_world", seed, n, k)
    name = _named("small_world", n, k=k, p=p, seed=seed)
    for _ in range(100):
        peers = [{(i + step) % n for step in range(-(k // 2), k // 2 + 1)} - {i} for i in range(n)]
        for step in range(1, k // 2 + 1):
            for i in range(n):
                if draw.uniform() < p and len(peers[i]) < n - 1:
                    _move(peers, i, (i + step) % n, draw)
        made = Topology(tuple(tuple(sorted(row)) for row in peers), name=name)
        if made.connected:
            return made
    return refuse(f"small_world: none of 100 graphs with k={k}, p={p} was connected; raise k or lower p")


def _move(peers: list[set[int]], agent: int, old: int, draw: Stream) -> None:
    new = draw.index(len(peers))
    while new == agent or new in peers[agent]:
        new = draw.index(len(peers))
    peers[agent] ^= {old, new}
    peers[old].discard(agent)
    peers[new].add(agent)


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)
