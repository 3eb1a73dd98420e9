"""Logs as the tests of the event log write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshheal import events as ev
from meshheal.rng import Stream
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import MemoryLog, Recorder
from meshheal.types import Usage


def call(seq: int, task: str, **fields: object) -> ev.ModelCalled:
    usual = {
        "model": "synthetic/a",
        "purpose": "produce",
        "subject": 0,
        "n": 0,
        "prompt": (),
        "prompt_hash": "00",
    }
    return ev.ModelCalled(node=0, seq=seq, t=float(seq), task=task, **{**usual, **fields})  # type: ignore[arg-type]


def write_run(log: Recorder | MemoryLog, tasks: int) -> None:
    """A run of five events and two texts a task, as like as can be to a real one."""
    draws = Stream("test-run")
    for i in range(tasks):
        task = f"math-{i}"
        prompt = log.text(f"What is {i} + {i}? " + "Reason step by step. " * 8)
        log.write(ev.TaskArrived(node=ev.WORLD, seq=i, t=i / 4, task=task, index=i, entry=i % 6, ability="algebra"))
        reply = log.text(f"It is {2 * i}, since {draws.uniform()} says so.")
        log.write(call(i, task, prompt=(("user", prompt),), replies=(reply,), usage=Usage(40, 12)))
        log.write(ev.FirstLook(node=1, seq=i, t=i / 4, task=task, producer=0, reviewer=2, scores=(draws.uniform(),)))
        log.write(ev.TaskSettled(node=1, seq=i, t=i / 4, task=task, outcome="accepted", value=str(2 * i)))
        log.write(ev.TaskGraded(node=ev.WORLD, seq=i, t=i / 4, task=task, correct=True))


def recorded(path: Path, events: Sequence[ev.Event], texts: Sequence[str] = (), **options: int) -> LogFile:
    path.unlink(missing_ok=True)
    with Recorder(path, {"seed": 1}, **options) as log:
        for text in texts:
            log.text(text)
        for event in events:
            log.write(event)
    return LogFile(path)
