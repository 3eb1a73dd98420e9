"""`meshheal export RUN --as recorded FILE`: a run's model calls as recordings, which stand in for the models anywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from meshheal.errors import UsageError
from meshheal.events import ModelCalled
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import open_run
from sim.workloads.sheet import base_id

_ANSWERS = ("produce", "probe", "takeover")
_BY_LIKELIHOOD = ('{"loglik":', '{"rating":')


class Coverage(msgspec.Struct):
    """What was written of one model: items it answered, samples of them, reviews; and calls that could not be."""

    items: set[str]
    samples: int = 0
    reviews: int = 0
    left_out: int = 0


def export(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run directories, names under --out, or 'latest'.")
    ],
    to: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write; ends in .jsonl.")],
    kind: Annotated[str, typer.Option("--as", help="What to make of the run: recorded.")] = "recorded",
    method: Annotated[str, typer.Option(help="Only the logs of this method.")] = "",
    out: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
) -> None:
    """Write the model calls of runs as recordings, one completion a line."""
    if kind != "recorded":
        raise UsageError(f"--as {kind}: there is recorded only")
    if to.suffix != ".jsonl":
        raise UsageError(f"export to {to}: give a name that ends in .jsonl, by which recordings are found")
    logs = [
        run.log_path(*arm)
        for run in (open_run(r, out) for r in runs)
        for arm in run.arms()
        if method in ("", arm.method)
    ]
    if not logs:
        raise UsageError(
            f"run {', '.join(runs)}: there is no log to export" + (f" of method {method!r}" if method else "")
        )
    found: dict[str, Coverage] = {}
    part = to.with_name(to.name + ".part")
    try:
        with part.open("wb") as lines:
            for path in logs:
                for line in _lines(path, found):
                    lines.write(msgspec.json.encode(line) + b"\n")
        part.replace(to)
    except OSError as error:
        raise UsageError(f"export to {to}: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            part.unlink()
    _show(to, found)


def _lines(path: Path, found: dict[str, Coverage]) -> Iterator[dict[str, Any]]:
    with LogFile(path) as log:
        text = lru_cache(maxsize=4096)(log.text)
        for _, call in log.calls():
            name = model_name(call.model)
            about = found.setdefault(name, Coverage(set()))
            if call.failure or not call.replies:
                continue
            replies = [text(id) for id in call.replies]
            of = _of(call, replies[0])
            if of is None:
                about.left_out += 1
                continue
            if call.purpose in _ANSWERS:
                about.samples += len(replies)
                if call.purpose != "takeover":
                    about.items.add(base_id(call.task))
            else:
                about.reviews += len(replies)
            yield from _of_call(call, name, of, replies)


def _of_call(call: ModelCalled, name: str, of: str, replies: list[str]) -> Iterator[dict[str, Any]]:
    """A line a reply; the tokens of a request of several are shared out between them."""
    each, rest = divmod(call.usage.completion, len(replies))
    for i, reply in enumerate(replies):
        line: dict[str, Any] = {
            "model": name,
            "item": base_id(call.task),
            "purpose": call.purpose,
            "text": reply,
            "usage": {"prompt": call.usage.prompt, "completion": each + (i < rest)},
            "finish": "length" if call.finish == "length" else "stop",
            "nature": _nature(call.model),
        }
        if of:
            line["of"] = of
        yield line


def _of(call: ModelCalled, reply: str) -> str | None:
    """What a review is about, as recordings say it; empty for an answer, None for a call that they cannot hold."""
    if call.purpose in _ANSWERS:
        return ""
    if call.purpose == "deliberate":
        return None  # it answers what the other members said then
    if reply.startswith(_BY_LIKELIHOOD):
        return call.prompt_hash
    return next((text for role, text in reversed(call.prompt) if role == "assistant"), None)


def model_name(model: str) -> str:
    """The recorded model's name: that of a live one as it is, that of a simulated one with its kind, which must show."""
    kind, _, name = model.partition("/")
    if not name:
        return model
    return name.replace("/", "-") if kind in ("openai", "recorded") else f"{kind}-{name}".replace("/", "-")


def _nature(model: str) -> str:
    return {"openai": "live", "recorded": "recorded"}.get(model.partition("/")[0], "simulated")


def _show(to: Path, found: dict[str, Coverage]) -> None:
    table = Table(title=f"{to}", title_justify="left")
    for name in ("model", "items answered", "answers", "reviews", "left out (deliberation)"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name, about in sorted(found.items()):
        table.add_row(f"recorded/{name}", *map(str, (len(about.items), about.samples, about.reviews, about.left_out)))
    console = Console(file=sys.stdout, highlight=False)
    console.print(table)
    common = set[str].intersection(*[a.items for a in found.values()]) if found else set()
    console.print(
        f"{len(common)} items were answered by all of them. Use: --data {to} (or its folder), models recorded/NAME; a world has "
        "the items that all of its recorded models answered."
    )
