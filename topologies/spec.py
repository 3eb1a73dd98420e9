"""Topologies named on the command line: `complete:6`, `coverage:100,at_least=4`, `saved:576`, or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from meshheal.types import Ability
from topologies.abilities import assign
from topologies.covering import coverage
from topologies.files import load, saved
from topologies.graph import Topology, refuse
from topologies.shapes import cells, complete, regular, ring, small_world


@dataclass(frozen=True)
class Kind:
    """A factory and the options that may follow the number of agents, each with the reader of its value."""

    make: Callable[..., Topology]
    options: Mapping[str, Callable[[str], Any]]
    needs: tuple[str, ...] = ()

    def usage(self, name: str) -> str:
        return ",".join([f"{name}:N", *(f"{option}=" for option in self.options)])


KINDS: dict[str, Kind] = {
    "complete": Kind(complete, {}),
    "ring": Kind(ring, {"k": int}),
    "cells": Kind(cells, {"size": int, "bridges": int, "join": str, "seed": int}),
    "regular": Kind(regular, {"degree": int, "seed": int}, ("degree",)),
    "small_world": Kind(small_world, {"k": int, "p": float, "seed": int}, ("k", "p")),
    "coverage": Kind(coverage, {"at_least": int, "abilities": int, "holders": Fraction, "serve": str, "seed": int}),
    "saved": Kind(saved, {}),
}


@dataclass(frozen=True)
class Spec:
    """A topology that was asked for and is made by `build`. `kind` is a key of KINDS, or `file` with a
    `path`.
    """

    text: str
    kind: str
    n: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    path: str = ""

    def build(self, abilities: tuple[Ability, ...] = ()) -> Topology:
        """Make it, with `abilities` given out as `assign` does by default.

        A file that says who holds what is kept as it is; raises UsageError where its abilities are not those
        given.
        """
        if self.kind == "file":
            made = load(self.path)
        elif self.kind == "coverage" and abilities:
            return coverage(self.n, **{**dict(self.options), "abilities": abilities})
        else:
            made = KINDS[self.kind].make(self.n, **dict(self.options))
        if not abilities:
            return made
        if not made.abilities:
            return assign(made, abilities)
        if set(made.ability_names) != set(abilities):
            refuse(
                f"{self.path} gives out {', '.join(made.ability_names)}, not {', '.join(abilities)}; "
                f"rename them in the file, or remove 'abilities' from its nodes to have them given out"
            )
        return made


def parse(text: str) -> Spec:
    """Read `KIND:N,option=value,...` or the path of a node-link JSON file. Raises UsageError with what
    exists.
    """
    text = text.strip()
    head, colon, rest = text.partition(":")
    if head not in KINDS and ("/" in text or "\\" in text or text.endswith(".json")):
        return Spec(text, "file", path=text)
    if head not in KINDS or not colon:
        known = ", ".join(kind.usage(name) for name, kind in KINDS.items())
        refuse(f"{text!r} is not known; use one of {known}, or the path of a node-link .json file")
    kind = KINDS[head]
    number, *pairs = rest.split(",")
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        refuse(f"{text!r}: {number!r} is not a number of agents; use {kind.usage(head)}")
    options: dict[str, Any] = {}
    for pair in pairs:
        option, equals, value = pair.strip().partition("=")
        if option not in kind.options or not equals or option in options:
            refuse(f"{text!r}: {pair!r} is not understood here; use {kind.usage(head)}")
        try:
            options[option] = kind.options[option](value)
        except (ValueError, ZeroDivisionError):
            refuse(f"{text!r}: {value!r} is not a value of {option}; use {kind.usage(head)}")
    missing = [option for option in kind.needs if option not in options]
    if missing:
        refuse(f"{text!r} needs {' and '.join(missing)}; use {kind.usage(head)}")
    return Spec(text, head, int(number), tuple(options.items()))
