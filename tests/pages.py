"""Runs to show, and the browser that shows them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from meshheal import events as ev
from meshheal.experiment import Experiment
from meshheal.study import Study
from meshheal.trace.recorder import Recorder
from meshheal.trace.rundir import RunDir, create
from meshheal.types import ReviewRecord, Usage
from meshheal.view.library import Library
from meshheal.view.server import Server
from sim.faults import swap
from sim.workloads import gym
from topologies import complete

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASKS = 150
FALLS, RECOVERS = 30, 90
SMALL = Experiment(
    name="small",
    topology=complete(6),
    workload=gym("math", tasks=TASKS),
    healthy="synthetic/gpt-oss-120b",
    outside="synthetic/llama-3.1-8b",
    faults=(swap(agent=2, to="synthetic/llama-3.2-1b", at=FALLS, back=RECOVERS),),
    methods=("meshheal", "unprotected"),
    seeds=1,
)
HOSTILE = (
    "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<!--  \u2028 line \u2029 paragraph \ud800 broken \u202e turned \x00 nul {{STYLE}} &amp; </pre>"
)


def small_run(out: Path, **fields: Any) -> RunDir:
    """A run of six agents, one of which is swapped, by two methods and their twins."""
    study = Study.start(replace(SMALL, **fields), out, NOW)
    study.run(0, lambda *_: None)
    return study.directory


class HandMade:
    """A run written event by event: six agents, all neighbours of each other, one method."""

    def __init__(self, out: Path, name: str = "handmade", agents: int = 6) -> None:
        around = [[b for b in range(agents) if b != a] for a in range(agents)]
        topology = {
            "name": f"complete:{agents}", "agents": agents, "abilities": [["any"]] * agents, "neighbours": around,
        }  # fmt: skip
        declaration = {
            "methods": ["meshheal"], "seeds": 1, "healthy": "synthetic/a", "outside": "synthetic/b", "faults": [],
            "workload": {"name": "w", "tasks": 100},
        }  # fmt: skip
        self.run = create(
            out, name, NOW, {"name": name, "declaration": declaration, "topology": topology, "workload": {"name": "w"}}
        )
        self.log = Recorder(self.run.log_path("meshheal", 0), {"method": "meshheal", "seed": 0, "twin": False})
        self.seq = 0
        self.index = -1
        self.t = 0.0

    def add(self, kind: type[ev.Event], node: int = -1, **fields: Any) -> HandMade:
        self.seq += 1
        self.log.write(kind(node=node, seq=self.seq, t=self.t, **fields))
        return self

    def task(self, reply: str = "It is 4.", correct: bool = True, id: str = "", score: float = 0.9) -> HandMade:
        """A task that agent 1 produces and agent 2 reviews."""
        self.index += 1
        self.t += 10.0
        task = id or f"t/{self.index}"
        prompt, said = self.log.text(f"Task {self.index}: 2 + 2?"), self.log.text(reply)
        self.add(ev.TaskArrived, index=self.index, entry=0, ability="any", task=task, prompt=prompt)
        self.add(ev.ProducerAsked, node=0, task=task, producer=1, ability="any")
        self.add(
            ev.ModelCalled, node=1, task=task, model="synthetic/a", purpose="produce", subject=1, n=0,
            prompt=(("user", prompt),), prompt_hash="0", replies=(said,), usage=Usage(10, 20),
        )  # fmt: skip
        record = ReviewRecord(f"r{self.index}", task, 1, "any", "", "first_look", score, (2,), 0, self.t)
        self.add(ev.EvidenceShared, node=0, task=task, record=record, to=(2, 3))
        self.add(ev.TaskSettled, node=0, task=task, outcome="accepted", producer=1, author=1, value="4", calls=1)
        return self.add(ev.TaskGraded, task=task, correct=correct)

    def swap(self, agent: int, degraded: bool) -> HandMade:
        return self.add(ev.Swapped, agent=agent, to="synthetic/weak", index=self.index + 1, degraded=degraded)

    def believes(
        self, observer: int, agent: int, before: str, to: str, evidence: float = 5.0, **fields: Any
    ) -> HandMade:
        return self.add(
            ev.StateChanged, node=observer, agent=agent, before=before, to=to, evidence=evidence, **fields
        )  # fmt: skip

    def close(self) -> RunDir:
        self.log.close()
        return self.run


@contextmanager
def serving(place: Path) -> Iterator[Server]:
    """A server for a directory, on a free port, in a thread."""
    server = Server(Library(place), 0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def chromium() -> str:
    """Path of a Chromium. Skips the test where there is none, unless this is CI, where it must be there."""
    found = os.environ.get("MESHHEAL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found:
        return found
    why = "no Chromium: install Debian's chromium, or name one with MESHHEAL_CHROMIUM"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(why)
    pytest.skip(why)


FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
