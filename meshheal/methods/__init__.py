"""Methods: how a coordinator brings a task to a settled answer. One file each; this is the list of their names."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from meshheal.agent import Method
from meshheal.config import Settings
from meshheal.errors import UsageError
from meshheal.methods import meshheal, unprotected


class Named(Struct, frozen=True):
    """A method under its name: the coroutine, and the settings that make this form of it."""

    name: str
    settle: Method
    overrides: dict[str, dict[str, Any]]
    about: str

    def settings(self, base: Settings) -> Settings:
        """`base` with what this method fixes."""
        data = base.model_dump()
        for section, values in self.overrides.items():
            data[section].update(values)
        return Settings.model_validate(data)


_ALL = (
    Named("meshheal", meshheal.settle, {}, "the protocol"),
    Named(
        "meshheal-seed",
        meshheal.settle,
        {"detector": {"own_offset": False}, "recovery": {"burst": 0, "budget": 0.0, "compare": False}},
        "the paper's plain form: no own offset, no bursts, no background probes, probes are reviewed",
    ),
    Named("unprotected", unprotected.settle, {}, "the producer's answer as it is"),
)
METHODS = {m.name: m for m in _ALL}


def find(name: str) -> Named:
    """The method of that name. Raises `UsageError`."""
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    return METHODS[name]
