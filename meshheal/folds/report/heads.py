"""What stands about each arm at the top of a page: figures, sentences, accuracy over time, tokens."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from meshheal.folds.report.about import About
from meshheal.folds.report.incidents import Incident
from meshheal.folds.report.layout import Layout, layout
from meshheal.folds.report.sentences import sentences
from meshheal.folds.summary import SeedResult

_BINS = 240


class Curve(Struct):
    """Graded and right tasks in stretches of `width` arrivals, the last maybe shorter."""

    width: int
    done: list[int]
    right: list[int]


class Head(Struct):
    """One arm. `key` names its log; `folded` is the share of its log (0 to 1) that the figures are from."""

    key: str
    method: str
    seed: int
    twin: bool
    complete: bool
    events: int
    hash: str
    arrivals: int
    seconds: float
    figures: SeedResult
    curve: Curve
    models: dict[str, int]
    sentences: list[str] = field(default_factory=list)
    folded: float = 1.0


class Network(Struct):
    """The graph as it is drawn. `edges` lists both ends of each edge, one edge after another."""

    name: str
    agents: int
    at: Layout
    edges: list[int]
    abilities: list[list[str]]


def network(about: About) -> Network:
    """The drawing of a run's network."""
    flat = [end for edge in about.edges for end in edge]
    at = layout(about.neighbours)
    return Network(about.topology, len(about.neighbours), at, flat, about.abilities)


def curve(graded: bytearray) -> Curve:
    """Right tasks over time, from `ArmFold.graded`."""
    width = max(1, -(-len(graded) // _BINS))
    parts = [graded[i : i + width] for i in range(0, len(graded), width)]
    right = [part.count(b"1") for part in parts]
    return Curve(width, [r + part.count(b"0") for r, part in zip(right, parts, strict=True)], right)


def speak(about: About, heads: list[Head], incidents: dict[str, list[Incident]]) -> None:
    """Give every head its twin's accuracy and its three sentences."""
    twins: dict[Any, float | None] = {(h.method, h.seed): h.figures.accuracy_degraded for h in heads if h.twin}
    for h in heads:
        if not h.twin:
            h.figures.accuracy_twin = twins.get((h.method, h.seed))
        if h.key in incidents:
            ended = h.complete and h.folded >= 1
            h.sentences = sentences(about, h.figures, incidents[h.key], h.seconds, h.figures.accuracy_twin, ended=ended)
