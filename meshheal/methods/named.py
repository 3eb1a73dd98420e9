"""Named: a method with all that tables, checks and tuning need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from msgspec import Struct

from meshheal.agent import Method
from meshheal.beliefs import Beliefs
from meshheal.config import Settings

Overrides = Mapping[str, Mapping[str, Any]]
"""Settings by section; the section `methods` has groups inside."""
Judge = Callable[..., Beliefs]
"""Makes one agent's beliefs, as the class `Beliefs` does."""

LADDER = ("produce", "review", "deliberate", "takeover", "probe")
"""Purposes of the calls that MeshHeal makes."""


class Named(Struct, frozen=True):
    """A method under its name.

    `label` is what it is in one line, `source` where it comes from, `calls` what a task costs. `needs` are the purposes of
    its calls. `excludes`: it holds beliefs that exclude agents, so that detection is measured. `oracle`: it is told the truth.
    `centralised`: something in it knows the whole network. `fixed` settings make this form of the method, whatever is asked;
    `grid` are the configurations that tuning tries, what it does unless told otherwise being the first.
    """

    name: str
    settle: Method
    label: str
    source: str
    calls: str
    needs: tuple[str, ...] = ("produce",)
    fixed: Overrides = {}
    excludes: bool = False
    centralised: bool = False
    oracle: bool = False
    own_prompts: bool = False
    """Some produce calls carry more than the task's own messages."""
    judges: Callable[[], Judge] = lambda: Beliefs
    """Called once a world, for what makes the beliefs of its agents."""
    grid: tuple[Overrides, ...] = ()

    def settings(self, base: Settings) -> Settings:
        """The defaults, overridden by what `base` sets explicitly, overridden by what this method fixes."""
        data = Settings().model_dump()
        for layer in (base.model_dump(exclude_unset=True), self.fixed):
            merge(data, layer)
        return Settings.model_validate(data)

    @property
    def recorded(self) -> bool:
        """Whether a recording of plain answers holds all that this method asks for."""
        return not self.own_prompts and set(self.needs) <= set(LADDER)

    @property
    def marks(self) -> str:
        """`oracle`, `centralised`, both or nothing, for tables."""
        return ", ".join([m for m, held in (("oracle", self.oracle), ("centralised", self.centralised)) if held])


def merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put nested values over those in `into`."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def grid(section: str, **choices: tuple[Any, ...]) -> tuple[Overrides, ...]:
    """Every combination of values in a section of settings; `methods.debate` names a group in a section."""
    combinations = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    outer, _, group = section.partition(".")
    return tuple([{outer: {group: c}} if group else {outer: c} for c in combinations])
