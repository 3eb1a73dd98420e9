"""A live experiment from its script: starts the servers, runs it on them, says whether they were green all along.

The script's own options come on top of those that every experiment takes: `--dose NAME` chooses what the swapped agents
run on, `--predict` runs the same declaration in the virtual world, on models that are simulated from a calibration.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from meshheal import experiment as declared
from meshheal.cli.app import guarded
from meshheal.errors import ModelError, UsageError
from meshheal.experiment import Experiment
from meshheal.likelihood import cloze, endings
from meshheal.model import CallKey, Request, Sampling
from meshheal.models import OpenAI, Served
from sim.faults import Swap
from sim.live.doses import DOSES, HEALTHY, dose
from sim.live.servers import Fleet
from sim.live.vllm import launches
from sim.workloads import load

HEALTHY_MODEL = "openai/healthy"
SWAPPED_MODEL = "openai/swapped"
PREDICTED_SEEDS = 20
"""Seeds of a prediction, which costs seconds."""


def main(experiment: Experiment) -> None:
    """Run a declaration whose healthy agents run on `openai/healthy` and whose swaps go to `openai/swapped`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--dose", default="q4")
    parser.add_argument("--predict", action="store_true")
    given, rest = parser.parse_known_args(sys.argv[1:])
    sys.argv[1:] = rest
    if {"--help", "-h"} & set(rest):
        print(f"Besides the options below: --dose {'|'.join(DOSES)} (default q4), --predict\n")
        declared.main(experiment)
    elif given.predict:
        guarded(lambda: declared.main(predicted(experiment, given.dose)))
    else:
        guarded(lambda: _live(experiment, given.dose))


def predicted(e: Experiment, name: str) -> Experiment:
    """The same experiment in the virtual world, on models simulated from the calibration that `e.workload.data` names."""
    models = {HEALTHY_MODEL: "calibrated/healthy", SWAPPED_MODEL: f"calibrated/{name}"}
    arm = armed(e, name)
    faults = tuple([replace(f, to=models[f.to]) if isinstance(f, Swap) else f for f in arm.faults])
    return replace(
        arm,
        name=f"{arm.name}_predicted",
        healthy=models[HEALTHY_MODEL],
        outside=models[SWAPPED_MODEL],
        faults=faults,
        seeds=PREDICTED_SEEDS,
        runtime="local",
        hosts=None,
        agents_per_host=None,
        twin=True,
    )


def armed(e: Experiment, name: str) -> Experiment:
    """The experiment with one dose behind its swaps. A dose that is no fault opens no episode."""
    chosen = dose(name)
    faults = tuple([replace(f, degraded=chosen.degraded) if isinstance(f, Swap) else f for f in e.faults])
    return replace(e, name=e.name if name == "q4" else f"{e.name}_{name}", faults=faults)


def _live(e: Experiment, name: str) -> None:
    arm = armed(e, name)
    with serving(name) as served:
        declared.main(replace(arm, endpoints={**served, **arm.endpoints}))


@contextmanager
def serving(name: str) -> Iterator[dict[str, Served]]:
    """Two servers, healthy and dosed, up and warm; where they are, by model name. Tells their health at the end."""
    chosen = dose(name)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    with Fleet(launches((HEALTHY.copy("healthy"), chosen.copy("swapped"))), Path("runs") / f"servers-{stamp}") as fleet:
        served = {"healthy": HEALTHY.served(fleet["healthy"].url), "swapped": chosen.served(fleet["swapped"].url)}
        warm(served)
        try:
            yield served
        finally:
            print("\n".join(health_lines(fleet, name)), file=sys.stderr)


def warm(served: dict[str, Served]) -> None:
    """One request to each server: the first takes a vLLM on a CPU many times longer than the next. Raises `UsageError`."""
    workload = load("facts")
    task = workload.pool["capital"][0]
    of = cloze(task)
    assert of is not None
    request = Request(endings(of), Sampling(), CallKey(task.id, 0, "review", 0), "endings")

    async def one(name: str) -> None:
        model = OpenAI(name, served[name])
        try:
            await model.complete(request)
        except ModelError as error:
            raise UsageError(f"server {name}: ready, but its first reply failed ({error})") from error
        finally:
            await model.aclose()

    async def every() -> None:
        await asyncio.gather(*[one(name) for name in served])

    asyncio.run(every())


def health_lines(fleet: Fleet, name: str) -> list[str]:
    """What the health checks said, a line a server."""
    about = {"healthy": HEALTHY.what, "swapped": dose(name).what}
    lines = []
    for server, health in fleet.health().items():
        state = (
            "green all along" if health.green == health.checks else f"not green {health.checks - health.green} times"
        )
        lines.append(
            f"server {server} ({about[server]}): /health {state}, {health.checks} checks, slowest {health.slowest:.2f} s"
        )
    return [*lines, f"server logs and checks: {fleet.folder}"]
