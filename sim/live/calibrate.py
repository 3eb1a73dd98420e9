"""Measure a calibration: `python -m sim.live.calibrate FILE` scores a sample of facts on every copy of the live model."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from meshheal.errors import MeshHealError, UsageError
from meshheal.likelihood import cloze, endings, read_endings
from meshheal.model import CallKey, Model, Request, Sampling
from meshheal.models import OpenAI
from meshheal.rng import Stream
from meshheal.types import Ability, Task
from sim.live.doses import DOSES, dose
from sim.live.servers import Fleet
from sim.live.vllm import SERVED, Copy, launches
from sim.models.calibration import Calibration, Row, as_row, read
from sim.workloads import load
from sim.workloads.sheet import Workload

ITEMS = 32
"""Items of each ability in a calibration: a standard error of .09 or less on each accuracy."""
_AT_ONCE = 8


def sample(workload: Workload, items: int) -> dict[Ability, tuple[Task, ...]]:
    """The first `items` of each ability in an order that is drawn once for all."""
    chosen = {}
    for ability, tasks in workload.pool.items():
        deck = list(tasks)
        Stream("calibration", ability).shuffle(deck)
        chosen[ability] = tuple(deck[:items])
    return chosen


async def weigh(model: Model, workload: Workload, tasks: Sequence[Task]) -> tuple[Row, ...]:
    """The rows of `tasks` as `model` finds them. Raises `ModelError`, and `UsageError` for what is no such reply."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(task: Task) -> Row:
        of = cloze(task)
        assert of is not None
        request = Request(endings(of), Sampling(), CallKey(task.id, 0, "review", 0), "endings")
        async with gate:
            done = await model.complete(request)
        loglik = read_endings(done.texts[0], of)
        if loglik is None:
            raise UsageError(f"{model.name} gave no likelihoods for {task.id}")
        return as_row(loglik, task.form.options.index(workload.sheet.gold(task.id)))

    return tuple(await asyncio.gather(*[one(task) for task in tasks]))


Scored = dict[Ability, tuple[Row, ...]]


def measure(
    copies: Sequence[str], chosen: Mapping[Ability, Sequence[Task]], workload: Workload, logs: Path
) -> Iterator[tuple[str, Scored]]:
    """Score a sample on each copy, on two servers at a time, and give each as it is done.

    Raises `UsageError` where the servers cannot be had.
    """
    needed = list(dict.fromkeys(dose(name).weights for name in copies))
    for pair in [needed[i : i + 2] for i in range(0, len(needed), 2)]:
        with Fleet(launches(tuple([Copy(w, w) for w in pair])), logs) as fleet:
            for name in copies:
                if dose(name).weights in pair:
                    model = OpenAI(name, dose(name).served(fleet[dose(name).weights].url))
                    yield name, asyncio.run(_score(model, workload, chosen))


async def _score(model: OpenAI, workload: Workload, chosen: Mapping[Ability, Sequence[Task]]) -> Scored:
    try:
        return {a: await weigh(model, workload, tasks) for a, tasks in sorted(chosen.items())}
    finally:
        await model.aclose()


def table(of: Calibration) -> list[str]:
    """Accuracies as lines of a table: a copy a line, an ability a column."""
    abilities = sorted(of.items)
    lines = [" ".join(["copy".ljust(9), *[a.rjust(10) for a in abilities], "      mean"])]
    for copy in of.rows:
        found = [of.accuracy(copy, a) for a in abilities]
        mean = sum(found) / len(found)
        lines.append(" ".join([copy.ljust(9), *[f"{x:10.3f}" for x in found], f"{mean:10.3f}"]))
    return lines


def _rounded(rows: Scored) -> Scored:
    """Four decimals are more than a server repeats."""
    return {a: tuple([tuple([round(x, 4) for x in row]) for row in rows[a]]) for a in rows}


def main(arguments: Sequence[str]) -> int:
    """Measure what the file lacks, and write it after each copy. 2 or 4 with one line where that cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--items", type=int, default=ITEMS, help="items of each ability")
    parser.add_argument("--copies", nargs="*", default=["healthy", *DOSES], help="copies to measure")
    parser.add_argument("--logs", type=Path, default=Path("runs/servers"), help="folder of the servers' logs")
    given = parser.parse_args(arguments)
    workload = load("facts")
    chosen = sample(workload, given.items)
    items = {a: tuple([t.id for t in tasks]) for a, tasks in chosen.items()}
    found = Calibration(datetime.now(UTC).date().isoformat(), SERVED, workload.source, items, {})
    try:
        if given.file.is_file() and (before := read(given.file)).items == items:
            found = before
        missing = [c for c in given.copies if c not in found.rows]
        for copy, rows in measure(missing, chosen, workload, given.logs):
            found = replace(found, rows={**found.rows, copy: _rounded(rows)})
            given.file.parent.mkdir(parents=True, exist_ok=True)
            given.file.write_bytes(msgspec.json.encode(found).replace(b"]],", b"]],\n") + b"\n")
            print(f"measured {copy}", file=sys.stderr, flush=True)
    except MeshHealError as error:
        print(f"meshheal: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"meshheal: interrupted; {given.file} keeps what was measured, the same command goes on", file=sys.stderr)
        return 130
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
