"""Where agents stand in the drawing of a network: the same graph, the same picture."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from meshheal.types import AgentId

if TYPE_CHECKING:
    import networkx as nx

_CIRCLE = 12
"""Up to so many agents stand on a circle."""
_SPRINGS = 150
"""Up to so many points distances are computed between; more are grouped first."""
_ROUNDS = 60


class Layout(Struct):
    """Coordinates by agent, each 0 to 1000."""

    x: list[int]
    y: list[int]


def layout(neighbours: Sequence[Sequence[AgentId]]) -> Layout:
    """Positions for a graph: a circle where it is small, else dense groups of agents side by side."""
    n = len(neighbours)
    if n <= _CIRCLE:
        return _scaled([(sin(2 * pi * i / n), -cos(2 * pi * i / n)) for i in range(n)])
    import networkx as nx

    graph = nx.Graph([(a, b) for a, around in enumerate(neighbours) for b in around if a < b])
    graph.add_nodes_from(range(n))
    return _scaled(_points(graph, n))


def _points(graph: nx.Graph[int], n: int) -> list[tuple[float, float]]:
    import networkx as nx

    if n <= _SPRINGS:
        found = _springs(graph)
        return [found[i] for i in range(n)]
    groups = [sorted(group) for group in nx.community.louvain_communities(graph, seed=0, resolution=_resolution(n))]
    groups.sort()
    of = {agent: g for g, group in enumerate(groups) for agent in group}
    coarse: nx.Graph[int] = nx.Graph()
    coarse.add_nodes_from(range(len(groups)))
    for a, b in graph.edges:
        if of[a] != of[b]:
            coarse.add_edge(of[a], of[b])
    centres = _apart(_springs(coarse)) if len(groups) <= 4 * _SPRINGS else _rows(len(groups))
    return _members(graph, groups, centres)


def _apart(points: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Push points that are too near to each other apart, so that a group has room about each."""
    import numpy as np

    at = np.array([points[i] for i in range(len(points))])
    at = (at - at.min(axis=0)) / (np.ptp(at, axis=0) + 1e-9)
    wanted = 0.85 / sqrt(len(at))
    for _ in range(120):
        gaps = at[:, None, :] - at[None, :, :]
        distances = np.sqrt((gaps**2).sum(axis=2)) + 1e-9
        np.fill_diagonal(distances, np.inf)
        push = np.clip(wanted - distances, 0, None) / distances
        at += 0.4 * (gaps * push[:, :, None]).sum(axis=1)
    return {i: (float(x), float(y)) for i, (x, y) in enumerate(at)}


def _resolution(n: int) -> float:
    """Higher gives smaller groups: about a hundred points are easy to place and to look at."""
    return max(1.0, n / 60)


def _members(
    graph: nx.Graph[int], groups: list[list[int]], centres: dict[int, tuple[float, float]]
) -> list[tuple[float, float]]:
    """Each group on a circle about its centre; whoever has links to other groups on the side that they are on."""
    spacing = _nearest(list(centres.values()))
    largest = max(len(group) for group in groups)
    at: dict[int, tuple[float, float]] = {}
    of = {agent: g for g, group in enumerate(groups) for agent in group}
    for g, group in enumerate(groups):
        cx, cy = centres[g]
        outside = {a: [centres[of[b]] for b in graph[a] if of[b] != g] for a in group}
        order = sorted(group, key=lambda a: (_direction(outside[a], cx, cy), a))
        radius = 0.42 * spacing * sqrt(len(group) / largest)
        turn = _direction(outside[order[0]], cx, cy) if outside[order[0]] else 0.0
        for i, agent in enumerate(order):
            angle = turn + 2 * pi * i / len(order)
            at[agent] = (cx + radius * cos(angle), cy + radius * sin(angle)) if len(order) > 1 else (cx, cy)
    return [at[i] for i in range(len(at))]


def _direction(points: list[tuple[float, float]], cx: float, cy: float) -> float:
    from math import atan2

    if not points:
        return 0.0
    return atan2(sum(y - cy for _, y in points), sum(x - cx for x, _ in points))


def _nearest(points: list[tuple[float, float]]) -> float:
    """A spacing that most of the points keep from each other: the tenth percentile of distances to the nearest."""
    if len(points) < 2:
        return 1.0
    distances = sorted(min(_distance(p, q) for q in points if q is not p) for p in points)
    return distances[len(distances) // 10] or 0.01


def _distance(p: tuple[float, float], q: tuple[float, float]) -> float:
    return sqrt((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2)


def _springs(graph: nx.Graph[int]) -> dict[int, tuple[float, float]]:
    """Distances on the page as near as can be to distances in the graph: stress majorization.

    Gansner, Koren and North, "Graph drawing by stress majorization" (2004), from classical scaling as a start.
    """
    import numpy as np

    nodes = sorted(graph)
    wanted = _distances(graph, nodes)
    n = len(nodes)
    if n < 3:
        return {node: (float(i), 0.0) for i, node in enumerate(nodes)}
    centred = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centred @ wanted**2 @ centred)
    at = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 1e-9))
    at *= np.sign(at[np.abs(at).argmax(axis=0), [0, 1]])  # a scaling's sign is arbitrary
    weights = 1 / (wanted + np.eye(n)) ** 2
    np.fill_diagonal(weights, 0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(_ROUNDS):
        gaps = np.sqrt(((at[:, None, :] - at[None, :, :]) ** 2).sum(axis=2))
        pull = -weights * wanted / np.maximum(gaps, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        at = inverse @ (pull @ at)
    return {node: (float(x), float(y)) for node, (x, y) in zip(nodes, at, strict=True)}


def _distances(graph: nx.Graph[int], nodes: list[int]) -> Any:
    """Hops between all pairs; between parts that are not joined, two more than the largest."""
    import numpy as np

    place = {node: i for i, node in enumerate(nodes)}
    found = np.full((len(nodes), len(nodes)), -1.0)
    for start in nodes:
        row, front, hops = found[place[start]], [start], 0
        row[place[start]] = 0
        while front:
            hops += 1
            front = [b for b in {b for a in front for b in graph[a]} if row[place[b]] < 0]
            for b in front:
                row[place[b]] = hops
    found[found < 0] = found.max() + 2
    return found


def _rows(n: int) -> dict[int, tuple[float, float]]:
    """Places row by row, each row the other way round, so that followers are neighbours."""
    width = max(1, round(sqrt(n)))
    return {
        i: (float(i % width if i // width % 2 == 0 else width - 1 - i % width), float(i // width)) for i in range(n)
    }


def _scaled(points: list[tuple[float, float]]) -> Layout:
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    top, bottom = min(y for _, y in points), max(y for _, y in points)
    return Layout(
        [round(1000 * (x - left) / ((right - left) or 1)) for x, _ in points],
        [round(1000 * (y - top) / ((bottom - top) or 1)) for _, y in points],
    )
