"""`python -m meshheal.cli.settings` prints docs/SETTINGS.md; given the page's path, it writes it there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from meshheal.config import Settings

_HEAD = """# Settings

Everything about the protocol that can be set, with its unit and what it trades. Written by `python -m
meshheal.cli.settings docs/SETTINGS.md` from `meshheal/config.py` and `meshheal/rivals.py`.

A setting is changed on the command line (`--set detector.drop=0.08`, as often as wanted), in a TOML file
given with `--config` (`[detector]`, then `drop = 0.08`), or in an experiment (`settings={"detector":
{"drop": 0.08}}`); the command line wins over the file, the file over the experiment. What a method fixes by
definition (`meshheal-seed` has no own offset, no bursts, no background probes) wins over all. Lists are
written as in TOML: `--set 'detector.bets=[0.5, 2.0]'`. A value out of its range, or a name that is not
here, ends in one line and exit code 2. Groups in a section are named with dots: `--set
methods.symphony.planners=1`. What tuning chose for single methods (`--tuned`, docs/METHODS.md)
stands in place of the defaults here, where nothing else is said.

A *beat* is the mean time between two arrivals of tasks in an agent's closed neighbourhood. *Evidence*
against an agent is a factor, 1 where there is none: chance alone raises it tenfold about once in ten times
as many observations.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        parts += _section(name, field)
    return "\n".join(parts)


def _section(name: str, field: FieldInfo) -> list[str]:
    """A section's heading and table; the groups inside it come after, as sections of their own."""
    section = field.annotation
    assert isinstance(section, type)
    assert issubclass(section, BaseModel)
    parts = [f"{'##' if '.' not in name else '###'} `[{name}]`", "", (section.__doc__ or "").strip(), ""]
    groups = {k: f for k, f in section.model_fields.items() if _is_group(f)}
    rows = [_row(k, f) for k, f in section.model_fields.items() if k not in groups]
    if rows:
        parts += ["| setting | default | may be | what it is |", "| --- | --- | --- | --- |", *rows, ""]
    for key, inner in groups.items():
        parts += _section(f"{name}.{key}", inner)
    return parts


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _row(key: str, field: FieldInfo) -> str:
    about = (field.description or "").replace("|", "\\|")
    return f"| `{key}` | `{_toml(field.default)}` | {_allowed(field)} | {about} |"


def _toml(value: Any) -> str:
    """A default as it would be written in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _allowed(field: FieldInfo) -> str:
    """The type and the range of a setting, in words."""
    kind = field.annotation
    if get_origin(kind) is tuple:
        some = any(isinstance(m, MinLen) for m in field.metadata)
        return f"list of {'at least one' if some else 'any'} of: {_type(get_args(kind)[0])}"
    return ", ".join([_type(kind), *_bounds(field.metadata)])


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return {int: "whole number", float: "number", bool: "true or false", str: "text"}[kind]


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for bound in metadata:
        match bound:
            case Ge():
                yield f"at least {bound.ge}"
            case Gt():
                yield f"above {bound.gt}"
            case Le():
                yield f"at most {bound.le}"
            case Lt():
                yield f"below {bound.lt}"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(page(), end="")
    else:
        Path(sys.argv[1]).write_text(page())
