"""Who knows whom: generators, ability coverage, checks, node-link JSON."""

from topologies.abilities import Lack, assign, lacks, require
from topologies.covering import cover, coverage, fewest_edges
from topologies.files import from_json, load, save, saved
from topologies.graph import Topology, from_edges, to_json
from topologies.placement import outnumbered, random_placement, stratified
from topologies.shapes import cells, complete, regular, ring, small_world
from topologies.spec import Spec, parse

__all__ = [
    "Lack",
    "Spec",
    "Topology",
    "assign",
    "cells",
    "complete",
    "cover",
    "coverage",
    "fewest_edges",
    "from_edges",
    "from_json",
    "lacks",
    "load",
    "outnumbered",
    "parse",
    "random_placement",
    "regular",
    "require",
    "ring",
    "save",
    "saved",
    "small_world",
    "stratified",
    "to_json",
]
