"""Measure a calibration: `python -m sim.live.calibrate FILE` scores a sample of facts on every copy of the live model."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from meshheal.errors import UsageError
from meshheal.likelihood import cloze, endings, read_endings
from meshheal.model import CallKey, Model, Request, Sampling
from meshheal.rng import Stream
from meshheal.types import Ability, Task
from sim.models.calibration import Calibration, Row, as_row
from sim.workloads import load
from sim.workloads.sheet import Workload

ITEMS = 36
"""Items of each ability in a calibration: a standard error of .08 or less on each accuracy."""
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


def measure(copies: Sequence[str], items: int, servers: Path) -> Calibration:
    """Score a sample on each copy, two servers at a time. Raises `UsageError` where they cannot be had."""
    from meshheal.models import OpenAI
    from sim.live.doses import dose
    from sim.live.servers import Fleet
    from sim.live.vllm import SERVED, Copy, launches

    workload = load("facts")
    chosen = sample(workload, items)
    rows: dict[str, dict[Ability, tuple[Row, ...]]] = {}
    weights = {name: dose(name).weights for name in copies}
    needed = sorted(set(weights.values()))
    for pair in [needed[i : i + 2] for i in range(0, len(needed), 2)]:
        with Fleet(launches(tuple([Copy(w, w) for w in pair])), servers) as fleet:

            async def score(name: str) -> dict[Ability, tuple[Row, ...]]:
                model = OpenAI(name, dose(name).served(fleet[weights[name]].url))
                try:
                    return {a: await weigh(model, workload, tasks) for a, tasks in chosen.items()}
                finally:
                    await model.aclose()

            async def all_of(names: Sequence[str]) -> list[dict[Ability, tuple[Row, ...]]]:
                return await asyncio.gather(*[score(n) for n in names])

            here = [name for name in copies if weights[name] in pair]
            rows.update(zip(here, asyncio.run(all_of(here)), strict=True))
    made = datetime.now(UTC).date().isoformat()
    return Calibration(made, SERVED, workload.source, {a: tuple(t.id for t in ts) for a, ts in chosen.items()}, rows)


def table(of: Calibration) -> list[str]:
    """Accuracies as lines of a table: a copy a line, an ability a column."""
    abilities = sorted(of.items)
    lines = [" ".join(["copy".ljust(9), *[a.rjust(10) for a in abilities], "      mean"])]
    for copy in of.rows:
        found = [of.accuracy(copy, a) for a in abilities]
        mean = sum(found) / len(found)
        lines.append(" ".join([copy.ljust(9), *[f"{x:10.3f}" for x in found], f"{mean:10.3f}"]))
    return lines


def _rounded(rows: Mapping[str, Mapping[Ability, tuple[Row, ...]]]) -> dict[str, dict[Ability, tuple[Row, ...]]]:
    """Four decimals are more than a server repeats."""
    return {
        copy: {a: tuple(tuple(round(x, 4) for x in row) for row in by[a]) for a in sorted(by)}
        for copy, by in rows.items()
    }


def main(arguments: Sequence[str]) -> int:
    from sim.live.doses import DOSES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--items", type=int, default=ITEMS, help="items of each ability")
    parser.add_argument("--copies", nargs="*", default=["healthy", *DOSES], help="copies to measure")
    parser.add_argument("--logs", type=Path, default=Path("runs/servers"), help="folder of the servers' logs")
    given = parser.parse_args(arguments)
    try:
        found = measure(given.copies, given.items, given.logs)
    except UsageError as error:
        print(f"meshheal: {error}", file=sys.stderr)
        return 2
    found = msgspec.structs.replace(found, rows=_rounded(found.rows))
    given.file.parent.mkdir(parents=True, exist_ok=True)
    given.file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=0) + b"\n")
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
