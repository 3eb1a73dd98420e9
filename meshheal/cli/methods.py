"""`meshheal methods` lists them. `python -m meshheal.cli.methods` prints docs/METHODS.md; given a path, it writes it there."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from inspect import getdoc
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from meshheal.methods import METHODS, Named
from meshheal.tuning import flat

JsonOption = Annotated[bool, typer.Option("--json", help="Print the list as JSON.")]

_HEAD = """# Methods

Every way of settling a task that can be named in `--methods`, on the same network, models, tasks and random draws; every
model call of each is counted. Written by `python -m meshheal.cli.methods docs/METHODS.md` from the methods' own
docstrings and `meshheal/methods/registry.py`; `meshheal methods` prints the list.

*Oracles* are told the truth (the answer sheet or the schedule of faults): bounds, not rivals. In *centralised* ones something
knows the whole network. A method that *excludes* holds beliefs that take agents out, so that its detection is measured; the
others show "–" there. *Recorded* says whether it can run on recorded models: not where it puts prompts of its own, whose
replies nobody recorded. Calls are those of one task, with the source's parameters; M are planners, K steps of a plan.

On simulated models (docs/MODELS.md) an answer given after seeing others' is the model's own, or with some chance the plurality
of what it sees; plans and routing decisions are text without an effect, whose tokens count.
"""


def methods(as_json: JsonOption = False) -> None:
    """Every method there is: name, marks, what it is."""
    if as_json:
        rows = [
            {"name": m.name, "oracle": m.oracle, "centralised": m.centralised, "label": m.label}
            for m in METHODS.values()
        ]
        print(json.dumps(rows, indent=1))
        return
    width = max(map(len, METHODS))
    for m in METHODS.values():
        print(f"{m.name:{width}}  {f'({m.marks}) ' if m.marks else ''}{m.label}")


def page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD, "| method | what it is | source | calls | marks | excludes | recorded |", "| --- " * 7 + "|"]
    parts += [_row(m) for m in METHODS.values()]
    parts += ["", "## Sources, parameters, deviations", ""]
    ordered = sorted(
        METHODS.values(), key=lambda m: list(dict.fromkeys(map(_module, METHODS.values()))).index(_module(m))
    )
    for module, of in groupby(ordered, key=_module):
        parts += [f"### {', '.join(f'`{m.name}`' for m in of)}", "", _text(module), ""]
    return "\n".join([*parts, _tuned()])


def _row(m: Named) -> str:
    cells = (
        f"`{m.name}`",
        m.label,
        m.source,
        m.calls,
        m.marks,
        "yes" if m.excludes else "–",
        "yes" if m.recorded else "no",
    )
    return "| " + " | ".join(cells) + " |"


def _module(m: Named) -> str:
    judge: Any = m.judges()
    of = m.settle if m.judges is Named.judges or not _made_in_methods(judge) else judge
    return str(getattr(of, "__module__", type(of).__module__))


def _made_in_methods(judge: Any) -> bool:
    return str(getattr(judge, "__module__", "")).startswith("meshheal.methods")


def _text(module: str) -> str:
    """A module's docstring, its named paragraphs as a list."""
    doc = getdoc(sys.modules[module]) or ""
    for name in ("Source", "Parameters", "Deviations"):
        head, mark, tail = doc.partition(f"\n{name}: ")
        doc = f"{head}\n\n**{name}.** {tail[0].upper()}{tail[1:]}" if mark else doc
    return doc.replace("\n\n\n", "\n\n")


_TUNING = """## Tuning

Defaults are the sources' own where they have any, and nobody is tuned unless asked. For the same budget each method below has
eight configurations, its defaults first, declared before any was tried; MeshHeal's vary one thing at a time. Of these
`experiments/tuning.py` chooses on development seeds (1000 and up, which no table uses) the one with the highest accuracy in
the degraded phase over BBH, MATH and MMLU-Pro, within .005 of it the cheapest; `--tuned FILE` runs a study both ways.

Some configurations come to the same on six agents of whom four hold an ability: six proposers are four, and what DyLAN keeps
does not matter in two rounds. Not tuned are `unprotected`, which has nothing to set; `vote`, whose one setting makes it cost
MeshHeal's tokens; the oracles, which are bounds; MeshHeal's parts, which are to differ from it in one thing only.

| method | configurations |
| --- | --- |"""


def _tuned() -> str:
    rows = [f"| `{m.name}` | {'; '.join(map(configuration, m.grid))} |" for m in METHODS.values() if m.grid]
    return "\n".join([_TUNING, *rows, ""])


def configuration(settings: Mapping[str, Any]) -> str:
    """Settings in a few words: names without their sections."""
    return ", ".join(f"{name.rpartition('.')[2]} {value:g}" for name, value in flat(settings))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(page(), end="")
    else:
        Path(sys.argv[1]).write_text(page())
