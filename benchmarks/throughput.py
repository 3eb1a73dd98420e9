"""Claim: a simulated model call, from prompt to parsed reply and logged, costs at most 15 bare asyncio queue messages.

    python benchmarks/throughput.py [--rounds 5] [--tasks 1500] [--agents 100] [--check] [--json]

The whole protocol runs on a sparse graph with generated tasks and its event log on: routing, prompts, models, reading,
reviews, evidence to all neighbours, detectors, probes. Beside it, interleaved in the same process, since rates of a
machine drift and ratios do not:

- `queue`: messages through asyncio queues on a virtual clock, one task switch each, nothing else;
- `autogen`: `send_message` of autogen-core's runtime to an agent that does nothing (where autogen-core is installed);
- `sketch`: a prompt through the simulated model and the parser of its reply, without protocol, agents or log.

Each round runs all of them once; medians over the rounds are printed. Rates are per second of this process on a
processor, so that other work on the machine takes little part in them. With --check it exits with 1 where a target is
missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from meshheal import prompts
from meshheal.answers import to_answer
from meshheal.events import Event, ModelCalled
from meshheal.experiment import Arm, Experiment, Prepared, prepare, world
from meshheal.model import CallKey, Request, Sampling
from meshheal.trace.recorder import Recorder
from sim.local import LocalRun
from sim.workloads import gym
from topologies import parse

QUEUE_SHARE = 1 / 15
"""Least share of the bare queue's messages a second that model calls must reach."""
AUTOGEN_FACTOR = 5.0
"""Least multiple of autogen-core's messages a second."""


def experiment(agents: int, tasks: int) -> Experiment:
    """Healthy agents on a sparse graph: what is measured is the ordinary path with its background probes."""
    return Experiment(
        name="throughput",
        topology=parse(f"coverage:{agents},at_least=4"),
        workload=gym("math", tasks=tasks),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        methods=("meshheal",),
        seeds=1,
    )


class Calls:
    """Fold: how many model calls there were."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, event: Event) -> None:
        self.n += type(event) is ModelCalled


def protocol(prepared: Prepared, seed: int, folder: Path) -> float:
    """Model calls a second of a whole run with its log; making tasks and agents is not counted."""
    made, calls = world(prepared, Arm("meshheal", seed)), Calls()
    with Recorder(folder / f"{seed}.jsonl.zst", {"seed": seed}) as log:
        log.subscribe(calls)
        run = LocalRun(made, log)
        gc.collect()
        start = time.process_time()
        run.run()
        log.close()
        return calls.n / (time.process_time() - start)


def sketch(prepared: Prepared, seed: int) -> float:
    """Calls a second of the bare path: an answer and a review of each task, sampled and read."""
    made = world(prepared, Arm("meshheal", seed))
    model: Any = made.model("synthetic/gpt-oss-120b")
    sampling = Sampling()
    start = time.process_time()
    for task in made.tasks:
        asked = Request(prompts.produce(task), sampling, CallKey(task.id, 0, "produce", 0))
        done = model.sample(asked, task)
        answer = to_answer(task, 0, done.texts[0], done.finish)
        reviewed = Request(prompts.review(task, answer.text), sampling, CallKey(task.id, 1, "review", 0))
        prompts.read_review(model.sample(reviewed, task).texts[0])
    return 2 * len(made.tasks) / (time.process_time() - start)


# --- bare asyncio ------------------------------------------------------------------------------------------------


class VirtualClock(asyncio.SelectorEventLoop):
    """An asyncio loop whose time stands still while there is work and jumps to the next timer when there is none."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-6
        inner: Any = self  # what asyncio keeps to itself
        select = inner._selector.select

        def jump(timeout: float | None = None) -> Any:
            if timeout is None:
                raise RuntimeError("deadlock: nothing is scheduled")
            if timeout > 0:
                self._now = max(self._now, inner._scheduled[0].when())
            return select(0)

        inner._selector.select = jump

    def time(self) -> float:
        return self._now


async def _ring(messages: int, agents: int) -> float:
    """Messages a second around a ring of agents, each with a queue of its own: a put, a get and a task switch each."""
    inboxes: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(agents)]

    async def agent(me: int) -> None:
        inbox, onwards = inboxes[me], inboxes[(me + 1) % agents]
        while True:
            left = await inbox.get()
            await onwards.put(left - 1)
            if left <= 0:
                return

    members = [asyncio.create_task(agent(a)) for a in range(agents)]
    await asyncio.sleep(0)
    start = time.process_time()
    for a in range(0, agents, 10):
        await inboxes[a].put(messages * 10 // agents)
    await asyncio.wait(members, return_when=asyncio.FIRST_COMPLETED)
    elapsed = time.process_time() - start
    for member in members:
        member.cancel()
    await asyncio.gather(*members, return_exceptions=True)
    return messages / elapsed


def queue(messages: int = 100_000, agents: int = 100) -> float:
    """Queue messages a second on the virtual clock."""
    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        return runner.run(_ring(messages, agents))


# --- autogen-core ------------------------------------------------------------------------------------------------


@dataclass
class Ping:
    n: int


async def _sent(messages: int) -> float:
    from autogen_core import (  # type: ignore[import-not-found,unused-ignore]
        AgentId,
        BaseAgent,
        SingleThreadedAgentRuntime,
    )

    class Echo(BaseAgent):  # type: ignore[misc]
        async def on_message_impl(self, message: Ping, ctx: Any) -> Ping:  # noqa: ARG002
            return message

    runtime = SingleThreadedAgentRuntime()
    await Echo.register(runtime, "echo", lambda: Echo("echo"))
    runtime.start()
    to = AgentId("echo", "default")
    await runtime.send_message(Ping(0), to)
    start = time.process_time()
    for n in range(messages):
        await runtime.send_message(Ping(n), to)
    elapsed = time.process_time() - start
    await runtime.stop()
    return messages / elapsed


def autogen(messages: int = 2_000) -> float:
    """Messages a second of autogen-core's `send_message`, request and reply, one at a time."""
    return asyncio.run(_sent(messages))


# --- the comparison ----------------------------------------------------------------------------------------------


def measured(rounds: int, contenders: dict[str, Callable[[int], float]]) -> dict[str, list[float]]:
    """Rates of each contender, one a round, all of them in every round; a first round warms up and does not count."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            rate = run(number)
            if number:
                rates[name].append(rate)
    return rates


def report(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, the ratios the targets are about, and whether they are reached. Ratios are taken within rounds."""
    found: dict[str, Any] = {"per_second": {name: median(values) for name, values in rates.items()}}

    def ratio(other: str) -> float:
        return median([a / b for a, b in zip(rates["meshheal"], rates[other], strict=True)])

    found["of_queue"], found["of_sketch"] = ratio("queue"), ratio("sketch")
    found["reached"] = {"of_queue": found["of_queue"] >= QUEUE_SHARE}
    if "autogen" in rates:
        found["times_autogen"] = ratio("autogen")
        found["reached"]["times_autogen"] = found["times_autogen"] >= AUTOGEN_FACTOR
    return found


def show(found: dict[str, Any]) -> None:
    for name, rate in found["per_second"].items():
        print(f"{name:10} {rate:12,.0f} a second   {1e6 / rate:8.2f} us each")
    share, target = 1 / found["of_queue"], 1 / QUEUE_SHARE
    print(f"model calls to bare queue messages: 1/{share:.1f}   (target: at least 1/{target:.0f})")
    if "times_autogen" in found:
        times = found["times_autogen"]
        print(f"model calls to autogen-core messages: {times:.1f}   (target: at least {AUTOGEN_FACTOR:.0f})")
    else:
        print("autogen-core is not installed: not compared (pip install autogen-core)")
    print(f"whole protocol to the bare path: 1/{1 / found['of_sketch']:.1f}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=1500)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    prepared = prepare(experiment(given.agents, given.tasks))
    with tempfile.TemporaryDirectory() as folder:
        contenders: dict[str, Callable[[int], float]] = {
            "queue": lambda _: queue(agents=given.agents),
            "meshheal": lambda seed: protocol(prepared, seed, Path(folder)),
            "sketch": lambda seed: sketch(prepared, 1000 + seed),
        }
        if importlib.util.find_spec("autogen_core"):
            contenders["autogen"] = lambda _: autogen()
        found = report(measured(given.rounds, contenders))
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    return 1 if given.check and not all(found["reached"].values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
