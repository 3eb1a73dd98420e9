"""`meshheal swarm`: draw worlds at random, run them through faults, heal and quiet, and check what must hold."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer

from meshheal.errors import UsageError
from meshheal.sweep import Message, Report, Sweep
from sim.swarm import Verdict, run
from sim.swarm.sometimes import SOMETIMES

CORES = os.cpu_count() or 1
ENOUGH = 200
"""Worlds after which everything that sometimes happens must have happened."""
TWICE_EVERY = 10
"""One world in so many is run a second time, to see that its seed decides everything."""
_SHOWN = 5
"""Violations of one world that are printed."""

ParallelOption = Annotated[int, typer.Option("--parallel", help="Worlds at a time; 0: in this process.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the findings as JSON to standard output.")]


def swarm(
    seeds: Annotated[int, typer.Option("--seeds", help="Number of worlds.")] = ENOUGH,
    first: Annotated[int, typer.Option("--first", help="Seed of the first world.")] = 0,
    seed: Annotated[int | None, typer.Option("--seed", help="Run this one world, twice.")] = None,
    parallel: ParallelOption = CORES,
    as_json: JsonOption = False,
) -> None:
    """Draw worlds, run and check them. Exit 0: all held, 1: something did not, 3: there was nothing to judge."""
    if seeds < 1 or parallel < 0:
        raise UsageError(f"--seeds {seeds} --parallel {parallel}: needs at least one world, and 0 or more processes")
    chosen = [seed] if seed is not None else list(range(first, first + seeds))
    verdicts = _sweep(chosen, 0 if len(chosen) == 1 else parallel, lone=seed is not None)
    findings = summary(verdicts)
    if as_json:
        print(json.dumps(findings, indent=1))
    _print(verdicts, findings, full=seed is not None)
    code: int = findings["exit"]
    if code:
        raise SystemExit(code)


def work(job: tuple[int, bool], report: Report) -> Verdict:
    """One world, in a worker process."""
    del report
    return run(job[0], twice=job[1])


def _sweep(seeds: list[int], parallel: int, lone: bool) -> list[Verdict]:
    jobs = [(s, lone or s % TWICE_EVERY == 0) for s in seeds]
    done: list[Verdict] = []
    progress = _Progress(len(jobs))
    messages = Sweep(work, jobs, parallel).messages()
    try:
        for message in messages:
            if isinstance(message, Message) and message.kind == "done":
                done.append(message.value)
                progress.tell(message.value, len(done))
    except KeyboardInterrupt:
        print(f"meshheal: interrupted after {len(done)} of {len(jobs)} worlds", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        messages.close()
    return sorted(done, key=lambda v: v.seed)


class _Progress:
    """Plain lines on standard error: now and then, and at once where something fails."""

    def __init__(self, worlds: int) -> None:
        self._worlds = worlds
        self._started = self._told = time.monotonic()

    def tell(self, verdict: Verdict, done: int) -> None:
        now = time.monotonic()
        if verdict.violations:
            print(f"seed {verdict.seed}: {verdict.violations[0].line()}", file=sys.stderr)
        if now - self._told >= 5 or done == self._worlds:
            self._told = now
            left = (now - self._started) / done * (self._worlds - done)
            print(f"{done}/{self._worlds} worlds, about {left:.0f} s left", file=sys.stderr, flush=True)


def summary(verdicts: list[Verdict]) -> dict[str, Any]:
    """The findings of a swarm as plain values; `exit` is the command's exit code."""
    sometimes = {name: [v.seed for v in verdicts if v.sometimes[name]] for name in SOMETIMES}
    never = [name for name in SOMETIMES if not sometimes[name]] if len(verdicts) >= ENOUGH else []
    failed = [v for v in verdicts if v.violations]
    fates: Counter[str] = Counter()
    for v in verdicts:
        fates.update(v.fates)
    reviewed = sum(v.reviewed for v in verdicts)
    return {
        "worlds": len(verdicts),
        "tasks": sum(v.tasks for v in verdicts),
        "reviewed": reviewed,
        "run_twice": sum(v.twice for v in verdicts),
        "pairs": dict(sorted(fates.items())),
        "recovered": sum(v.recovered for v in verdicts),
        "sometimes": {name: len(where) for name, where in sometimes.items()},
        "never_seen": never,
        "sometimes_checked": len(verdicts) >= ENOUGH,
        "failed": [
            {
                "seed": v.seed,
                "world": v.world,
                "violations": msgspec.to_builtins(v.violations),
                "repeat": repeat(v.seed),
            }
            for v in failed
        ],
        "exit": 1 if failed or never else 3 if not reviewed else 0,
    }


def repeat(seed: int) -> str:
    """The one command that runs a world again."""
    return f"meshheal swarm --seed {seed}"


def say(text: str) -> None:
    """A line for people: standard output is the JSON's."""
    print(text, file=sys.stderr)


def _print(verdicts: list[Verdict], findings: dict[str, Any], full: bool) -> None:
    for v in verdicts:
        if not v.violations and not full:
            continue
        say(f"\nseed {v.seed}: {v.world}")
        for violation in v.violations[:_SHOWN]:
            say(f"  FAILED {violation.line()}")
        if len(v.violations) > _SHOWN:
            say(f"  and {len(v.violations) - _SHOWN} more")
        if v.violations:
            say(f"  repeat with: {repeat(v.seed)}")
        if full:
            say(f"  event hash {v.event_hash}")
    pairs = ", ".join(f"{n} {fate}" for fate, n in findings["pairs"].items()) or "none"
    say(
        f"\n{findings['worlds']} worlds, {findings['tasks']} tasks, {findings['run_twice']} worlds run twice; "
        f"{len(findings['failed'])} failed"
    )
    say(f"degraded agents, by observer: {pairs}; recovered agents: {findings['recovered']}")
    say("worlds with " + ", ".join(f"{name}: {n}" for name, n in findings["sometimes"].items()))
    if not findings["sometimes_checked"]:
        say(f"(whether each of these occurs is checked from {ENOUGH} worlds on)")
    for name in findings["never_seen"]:
        say(f"FAILED sometimes: {name!r} occurred in none of {findings['worlds']} worlds")
    if findings["exit"] == 3:
        say("unknown: no output was reviewed, so there was nothing to judge")
