"""Making a graph connected without spending edges: two parts exchange the ends of two like edges."""

from __future__ import annotations

from collections import defaultdict

from meshheal.rng import Stream

Edge = tuple[int, int]
Offers = list[tuple[int, ...]]
Kind = tuple[tuple[int, ...], tuple[int, ...]]


class _Part:
    """A connected part: its agents, and by the kinds of their ends the edges of a spanning tree and all
    others.

    Without one of the others, which are its loops, the part stays connected.
    """

    def __init__(self, start: int) -> None:
        self.agents = [start]
        self.tree: dict[Kind, list[Edge]] = defaultdict(list)
        self.loops: dict[Kind, list[Edge]] = defaultdict(list)

    def size(self) -> tuple[int, int, int]:
        return len(self.agents), sum(map(len, self.loops.values())), -self.agents[0]

    def absorb(self, other: _Part) -> None:
        self.agents += other.agents
        for mine, theirs in ((self.tree, other.tree), (self.loops, other.loops)):
            for kind, edges in theirs.items():
                mine[kind] += edges


def join(peers: list[set[int]], offers: Offers, draw: Stream) -> None:
    """Connect the parts of a graph, in place.

    Edges (a, b) and (c, d) of two parts become (a, d) and (c, b), where a and c hold the same, and b and d:
    nobody's neighbourhood changes in what it holds. One of the two must be a loop, else its part would fall
    in two. Where there is no such pair an edge is added.
    """
    parts = sorted(_parts(peers, offers), key=_Part.size, reverse=True)
    main = parts[0]
    for part in parts[1:]:
        taken = _exchange(main, part, draw)
        main.absorb(part)
        if taken is None:
            edge = (main.agents[draw.index(len(main.agents) - len(part.agents))], draw.choice(part.agents))
            _file(main.tree, edge, offers)
            _set(peers, edge, present=True)
            continue
        (a, b), (c, d), both_loops = taken
        for edge, present in (((a, b), False), ((c, d), False), ((a, d), True), ((c, b), True)):
            _set(peers, edge, present)
        _file(main.tree, (a, d), offers)
        _file(main.loops if both_loops else main.tree, (c, b), offers)


def _exchange(main: _Part, part: _Part, draw: Stream) -> tuple[Edge, Edge, bool] | None:
    """Take an edge out of each part that can exchange ends, best both of them loops; None where there are
    none.
    """
    for ours, theirs in ((main.loops, part.loops), (main.loops, part.tree), (main.tree, part.loops)):
        kinds = [kind for kind, edges in theirs.items() if edges and ours.get(kind)]
        if kinds:
            kind = draw.choice(kinds)
            both_loops = ours is main.loops and theirs is part.loops
            return _take(ours[kind], draw), _take(theirs[kind], draw), both_loops
    return None


def _take(edges: list[Edge], draw: Stream) -> Edge:
    i = draw.index(len(edges))
    edges[i], edges[-1] = edges[-1], edges[i]
    return edges.pop()


def _file(where: dict[Kind, list[Edge]], edge: Edge, offers: Offers) -> None:
    a, b = edge if offers[edge[0]] <= offers[edge[1]] else edge[::-1]
    where[offers[a], offers[b]].append((a, b))


def _parts(peers: list[set[int]], offers: Offers) -> list[_Part]:
    parts = []
    parent: dict[int, int] = {}
    for start in range(len(peers)):
        if start in parent:
            continue
        parent[start] = -1
        part = _Part(start)
        parts.append(part)
        for here in part.agents:  # grows while it is walked
            for peer in sorted(peers[here]):
                if peer not in parent:
                    parent[peer] = here
                    part.agents.append(peer)
                    _file(part.tree, (here, peer), offers)
                elif here < peer and here != parent[peer] and peer != parent[here]:
                    _file(part.loops, (here, peer), offers)
    return parts


def _set(peers: list[set[int]], edge: Edge, present: bool) -> None:
    for a, b in (edge, edge[::-1]):
        (peers[a].add if present else peers[a].discard)(b)
