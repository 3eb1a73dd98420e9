"""Methods: how a coordinator brings a task to a settled answer. One file each; this is the list of their names."""

from __future__ import annotations

from meshheal.errors import UsageError
from meshheal.methods import meshheal, registry
from meshheal.methods.named import LADDER, Named

__all__ = ["LADDER", "METHODS", "Named", "find", "meshheal"]

METHODS: dict[str, Named] = {m.name: m for m in registry.every()}


def find(name: str) -> Named:
    """The method of that name. Raises `UsageError`."""
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    return METHODS[name]
