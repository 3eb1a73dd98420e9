"""Topologies in files: node-link JSON as networkx writes it, and the networks that come with the package."""

from __future__ import annotations

from collections.abc import Callable
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any

from topologies.graph import Topology, from_edges, refuse, to_json
from topologies.shapes import cells, complete

SAVED: dict[int, Callable[[], Topology]] = {
    6: lambda: complete(6),
    36: lambda: cells(36),
    576: lambda: cells(576, bridges=113),
}
"""How the networks in `topologies/networks` were made. 113 bridges: 96 that close the ring of cells and 17
shortcuts.
"""
_FOLDER = Path(__file__).with_name("networks")


def saved(n: int) -> Topology:
    """The saved network of n agents: 6 (complete), 36 and 576 (cells of six)."""
    if n not in SAVED:
        refuse(f"no network of {n} agents is saved; there are {', '.join(map(str, SAVED))}")
    return load(_FOLDER / f"{n}.json")


def write_saved(folder: Path = _FOLDER) -> None:
    """Write every saved network anew."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, make in SAVED.items():
        save(make(), folder / f"{n}.json")


def save(topology: Topology, path: str | Path) -> None:
    """Write node-link JSON."""
    try:
        Path(path).write_text(to_json(topology), encoding="utf-8")
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror}; choose another place")


def load(path: str | Path) -> Topology:
    """Read node-link JSON. Raises UsageError with the path where it cannot be read or is no topology."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}; check the path")
    except UnicodeDecodeError:
        refuse(f"{path} is not UTF-8 text; write it with networkx.node_link_data(graph, edges='edges')")
    return from_json(text, source=str(path))


def from_json(text: str, source: str = "node-link JSON") -> Topology:
    """Read node-link JSON: ids 0 to n-1 in any order, undirected edges each once under `edges` (or `links`).

    Nodes may carry `abilities` (a list of names) and `cell` (a number); either all do or none. Other
    attributes are ignored. Raises UsageError naming `source` and what is wrong.
    """
    try:
        data = loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, JSONDecodeError) else ""
        refuse(f"{source} is not complete JSON{where}; it may have been cut: write it again")
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
        refuse(f"{source} has no list 'nodes'; write it with networkx.node_link_data(graph, edges='edges')")
    if data.get("directed") is True:
        refuse(f"{source} is a directed graph; topologies are undirected: write graph.to_undirected()")
    links = data.get("edges", data.get("links"))
    if not isinstance(links, list):
        refuse(f"{source} has no list 'edges'; write it with networkx.node_link_data(graph, edges='edges')")
    nodes = _in_order(data["nodes"], source)
    about = data.get("graph")
    name = about.get("name", "") if isinstance(about, dict) else ""
    return from_edges(
        len(nodes),
        _edges(links, len(nodes), source),
        abilities=_abilities(nodes, source),
        name=name if isinstance(name, str) else "",
        cells=_cells(nodes, source),
    )


def _in_order(nodes: list[Any], source: str) -> list[dict[str, Any]]:
    """The nodes by id, which must be 0 to n-1."""
    n = len(nodes)
    if not n:
        refuse(f"{source} has no nodes; a network needs at least one agent")
    placed: dict[int, dict[str, Any]] = {}
    for node in nodes:
        number = node.get("id") if isinstance(node, dict) else None
        if type(number) is not int or not 0 <= number < n:
            refuse(f"{source}: node id {number!r} is not one of 0 to {n - 1}; number the nodes without gaps")
        if number in placed:
            refuse(f"{source}: node {number} stands there twice; keep one")
        placed[number] = node
    return [placed[i] for i in range(n)]


def _edges(links: list[Any], n: int, source: str) -> list[tuple[int, int]]:
    seen: set[tuple[int, int]] = set()
    for link in links:
        link = link if isinstance(link, dict) else {}
        low: Any = link.get("source")
        high: Any = link.get("target")
        for end in (low, high):
            if type(end) is not int or not 0 <= end < n:
                refuse(f"{source}: edge {low!r} - {high!r} names an unknown node; nodes are 0 to {n - 1}")
        low, high = min(low, high), max(low, high)
        if low == high:
            refuse(f"{source}: agent {low} has an edge to itself; remove it")
        if (low, high) in seen:
            refuse(f"{source}: edge {low} - {high} stands there twice; keep one")
        seen.add((low, high))
    return list(seen)


def _abilities(nodes: list[dict[str, Any]], source: str) -> tuple[tuple[str, ...], ...]:
    if not _carried_by_all(nodes, "abilities", source):
        return ()
    for i, node in enumerate(nodes):
        held = node["abilities"]
        if not isinstance(held, list) or not all(isinstance(ability, str) and ability for ability in held):
            refuse(f"{source}: the abilities of agent {i} are not a list of names")
    return tuple(tuple(node["abilities"]) for node in nodes)


def _cells(nodes: list[dict[str, Any]], source: str) -> tuple[int, ...]:
    if not _carried_by_all(nodes, "cell", source):
        return ()
    for i, node in enumerate(nodes):
        if type(node["cell"]) is not int:
            refuse(f"{source}: the cell of agent {i} is not a number")
    return tuple(node["cell"] for node in nodes)


def _carried_by_all(nodes: list[dict[str, Any]], attribute: str, source: str) -> bool:
    without = [i for i, node in enumerate(nodes) if attribute not in node]
    if without and len(without) < len(nodes):
        refuse(f"{source}: agent {without[0]} has no {attribute!r}, others have; give it to all or to none")
    return not without
