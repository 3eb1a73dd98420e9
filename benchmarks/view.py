"""Target: `meshheal view` serves the index of a 1 GB log in under 1 s.

    python benchmarks/view.py [--gigabytes 1] [--cut] [--check]

The log is made by repeating the events of a real run (staggered_math) under new task ids, with prompts and replies as long
as real models write them: 1,500 random characters each, which hardly compress. Measured on a server that has just been
started, one after another as a person asks: the list of runs (with the counts of that log), the run's page, the ids of its
tasks, and the story of its last task. The target is on the first two.
With --cut the log has no end, as that of a run in progress. With --check it exits with 1 where the target is
missed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from meshheal.events import Answered, EvidenceShared, ModelCalled, TaskArrived
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import Recorder
from meshheal.trace.rundir import RunDir, create, open_run
from meshheal.view.library import Library
from meshheal.view.server import Server

TARGET = 1.0
"""Seconds."""
CHARACTERS = 1500


def seed_run(folder: Path) -> RunDir:
    script = Path(__file__).parents[1] / "experiments" / "staggered_math.py"
    command = [
        sys.executable,
        str(script),
        "--out",
        str(folder),
        "--seeds",
        "1",
        "--methods",
        "meshheal",
        "--display",
        "none",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return open_run("latest", folder)


def repeat(seed: RunDir, folder: Path, size: float, *, cut: bool) -> RunDir:
    """A run with one log of about `size` bytes."""
    declared = seed.experiment
    declared["declaration"]["methods"] = ["meshheal"]
    made = create(folder, "large", datetime.now(UTC), declared)
    with LogFile(seed.log_path("meshheal", 0)) as log:
        header, events = log.header, list(log.events())
    path = made.log_path("meshheal", 0)
    recorder = Recorder(path, header)
    draw, arrivals, seq, round_ = random.Random(0), sum(isinstance(e, TaskArrived) for e in events), 0, 0
    while path.stat().st_size < size:
        texts: dict[str, str] = {}

        def long(id: str, texts: dict[str, str] = texts) -> str:
            if id not in texts:
                texts[id] = recorder.text(draw.randbytes(CHARACTERS // 2).hex())
            return texts[id]

        for event in events:
            seq += 1
            changed: dict[str, Any] = {"seq": seq, "task": f"{event.task}/{round_}" if event.task else ""}
            if isinstance(event, TaskArrived):
                changed |= {"index": event.index + round_ * arrivals, "prompt": long(event.prompt)}
            elif isinstance(event, ModelCalled):
                changed |= {
                    "prompt": tuple([(role, long(id)) for role, id in event.prompt]),
                    "replies": tuple([long(id) for id in event.replies]),
                }
            elif isinstance(event, Answered):
                changed |= {"text": long(event.text)} if event.text else {}
            elif isinstance(event, EvidenceShared):
                changed |= {"record": replace(event.record, id=f"{event.record.id}/{round_}", task=changed["task"])}
            recorder.write(replace(event, **changed))
        round_ += 1
    recorder.abort() if cut else recorder.close()
    return made


def ask(server: Server, path: str) -> tuple[float, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    began = time.perf_counter()
    connection.request("GET", path)
    content = connection.getresponse().read()
    took = time.perf_counter() - began
    connection.close()
    return took, json.loads(content)


def measure(run: RunDir) -> dict[str, float]:
    """Seconds of each question."""
    found = {}
    base = f"/api/runs/{run.name}"
    server = Server(Library(run.path), 0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        found["list of runs"], _ = ask(server, "/api/runs")
        found["page of the run"], _ = ask(server, base)
        found["ids of its tasks"], answer = ask(server, f"{base}/arms/meshheal-0/tasks")
        task = answer["ids"][-1]
        found["story of a task"], _ = ask(server, f"{base}/arms/meshheal-0/story?task={quote(task)}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = repeat(seed_run(Path(folder)), Path(folder), args.gigabytes * 1e9, cut=args.cut)
        path = run.log_path("meshheal", 0)
        with LogFile(path) as log:
            counts = log.counts()
            print(
                f"{path.stat().st_size / 1e9:.2f} GB, {sum(counts.values()):,} events, {counts['TaskArrived']:,} tasks"
            )
        trials = [measure(run) for _ in range(5)]
    missed = False
    for number, name in enumerate(trials[0]):
        took = median(trial[name] for trial in trials)
        missed |= number < 2 and took > TARGET
        aim = f" (aim {TARGET:g} s)" if number < 2 else ""
        print(f"{name}: {took:.3f} s, at most {max(trial[name] for trial in trials):.3f} s{aim}")
    if args.check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
