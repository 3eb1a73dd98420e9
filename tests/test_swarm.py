"""The swarm: worlds hold what they must, a seed decides everything, and the command says what it found."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from swarm_events import Writer, ground
from typer.testing import CliRunner

from meshheal.events import (
    CommitteeMet,
    CorrelatedDegradation,
    Crashed,
    Event,
    ExclusionWithheld,
    StateChanged,
    Swapped,
    TaskArrived,
    TookOver,
)
from meshheal.recovery import on_duty
from meshheal.trace.recorder import MemoryLog
from sim.faults import Crash, Partition, Swap, Weather
from sim.links import LinkProfile
from sim.local import LocalRun
from sim.loop import Stalled
from sim.swarm import draw, run
from sim.swarm import trial as running
from sim.swarm.ground import Views, Violation
from sim.swarm.sometimes import SOMETIMES, Seen
from sim.swarm.worlds import build

# --- a run that goes wrong -------------------------------------------------------------------------------------------


def test_a_network_that_goes_idle_with_open_tasks_is_a_violation_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def stalled(_: LocalRun) -> None:
        raise Stalled("idle")

    monkeypatch.setattr(LocalRun, "run", stalled)
    assert [v.check for v in run(3).violations] == ["no-task-hangs"]


def test_a_run_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_EVENTS_PER_TASK", 2)
    assert "no-task-hangs" in {v.check for v in run(3).violations}


def test_a_log_that_hides_a_belief_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    write, seed = MemoryLog.write, _with_exclusions()

    def forgetful(self: MemoryLog, event: Event) -> None:
        if not (type(event) is StateChanged and event.to == "healthy"):
            write(self, event)

    monkeypatch.setattr(MemoryLog, "write", forgetful)
    assert "log-tells-beliefs" in {v.check for v in run(seed).violations}


def test_a_second_run_that_goes_another_way_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1000))

    def drifting(drawn: Any) -> Any:
        world = build(drawn)
        world.seed += next(calls)
        return world

    monkeypatch.setattr(running, "build", drifting)
    assert "same-seed-same-log" in {v.check for v in run(3, twice=True).violations}


def _with_exclusions() -> int:
    """A small world with a lasting gross fault."""
    return next(s for s in range(200) if draw(s).phases.quiet < 170 and "excluded" in run(s).fates)


# --- sometimes -------------------------------------------------------------------------------------------------------


def test_each_thing_that_must_happen_sometimes_is_recognised() -> None:
    w, known = Writer(), ground()
    w.add(TookOver, 0, producer=1, members=(2, 1), values=("1", "2"), chosen=2, replaced=True)
    w.add(CommitteeMet, 0, producer=1, members=(2, 3), scores=(0.0, 1.0), split=True)
    w.add(ExclusionWithheld, 0, agent=1, ability="a", guard="min_eligible", evidence=9.0)
    w.add(CorrelatedDegradation, 0, group=(1, 2), expected=0.9, observed=0.2, evidence=99.0)
    w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=9.0)
    duty = next(i for i in range(99) if on_duty(1, i, known.neighbours[1]) == 3)
    w.add(Crashed, agent=3)
    w.add(TaskArrived, task="t", index=duty, entry=0, ability="a")
    seen = Seen(known)
    for event in w.events:
        seen(event)
    assert seen.counts == dict.fromkeys(SOMETIMES, 1)


def test_an_exclusion_of_a_degraded_agent_or_a_restored_one_is_not_a_false_one() -> None:
    w = Writer()
    w.add(Swapped, agent=1, to="worse", index=0, degraded=True)
    w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=9.0)
    w.add(StateChanged, 0, agent=2, before="healthy", to="excluded", evidence=9.0, reason="restored")
    seen = Seen(ground())
    for event in w.events:
        seen(event)
    assert seen.counts["false exclusion"] == 0


# --- views -----------------------------------------------------------------------------------------------------------


def test_a_view_counts_exclusion_by_whole_agent_and_by_ability() -> None:
    views, w = Views(), Writer()
    w.add(StateChanged, 0, agent=1, ability="a", before="healthy", to="excluded", evidence=9.0)
    views(w.events[-1])
    assert views.excludes(0, 1, "a")
    assert not views.excludes(0, 1, "b")
    assert not views.excludes_all(0, 1, ("a", "b"))
    w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=9.0)
    views(w.events[-1])
    assert views.excludes_all(0, 1, ("a", "b"))
    w.add(StateChanged, 0, agent=1, before="excluded", to="probation", evidence=1.0)
    views(w.events[-1])
    assert not views.excludes(0, 1, "a")


# --- worlds ----------------------------------------------------------------------------------------------------------


def test_worlds_of_a_seed_are_equal_and_of_different_seeds_differ() -> None:
    assert draw(5) == draw(5)
    assert len({draw(s).describe() for s in range(50)}) == 50


def test_two_hundred_worlds_have_every_kind_of_fault_stream_and_topology() -> None:
    worlds = [draw(s) for s in range(200)]
    faults = [f for w in worlds for f in w.faults]
    swaps = [f for f in faults if isinstance(f, Swap)]
    assert {type(f) for f in faults} == {Swap, Crash, Partition, Weather}
    assert any(f.roles for f in swaps)
    assert any(not f.degraded for f in swaps)
    swapped = [[f.agent for f in w.faults if isinstance(f, Swap)] for w in worlds]
    assert any(len(set(agents)) < len(agents) for agents in swapped), "no agent flaps"
    weather = [f.links for f in faults if isinstance(f, Weather)]
    assert any(w.loss for w in weather)
    assert any(w.duplicate for w in weather)
    assert any(w.latency for w in weather)
    kinds = {"cells", "regular", "small_world", "coverage", "ring", "complete"}
    assert {w.topology.partition(":")[0] for w in worlds} == kinds
    assert {type(w.stream).__name__ for w in worlds} == {"Closed", "Poisson"}
    assert {len(w.healthy) for w in worlds} == {1, 3}
    sizes = [int(re.match(r"\w+:(\d+)", w.topology).group(1)) for w in worlds]  # type: ignore[union-attr]
    assert min(sizes) == 6
    assert max(sizes) > 40


def test_links_crashes_and_partitions_are_well_when_the_network_heals_and_backends_when_it_is_quiet() -> None:
    for drawn in (draw(s) for s in range(100)):
        for fault in drawn.faults:
            end = drawn.phases.quiet if isinstance(fault, Swap) else drawn.phases.heal
            assert drawn.phases.faults <= fault.at < fault.back <= end


def test_weather_comes_and_goes() -> None:
    drawn = next(d for d in (draw(s) for s in range(100)) if any(isinstance(f, Weather) for f in d.faults))
    runner = LocalRun(build(drawn), MemoryLog(keep=False))
    assert not runner.direct
    fault = next(f for f in drawn.faults if isinstance(f, Weather))
    runner.loop.run(runner._advance(fault.at))
    assert runner.links.profile == fault.links
    runner.loop.run(runner._advance(fault.back))
    assert runner.links.profile == drawn.links != LinkProfile(loss=1)


# --- the swarm -------------------------------------------------------------------------------------------------------


def assert_held(seeds: range) -> None:
    wrong = [(v.seed, x.line()) for v in (run(s, twice=s % 6 == 0) for s in seeds) for x in v.violations]
    assert wrong == [], "repeat with: " + "; ".join(sorted({f"meshheal swarm --seed {s}" for s, _ in wrong}))


@pytest.mark.parametrize("first", [0, 4, 8])
def test_twelve_worlds_hold_everything(first: int) -> None:
    assert_held(range(first, first + 4))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12, 72, 10))
def test_sixty_more_worlds_hold_everything(first: int) -> None:
    assert_held(range(first, first + 10))


# --- the command -----------------------------------------------------------------------------------------------------


def _command(*arguments: str) -> Any:
    from meshheal.cli.app import build as app

    return CliRunner().invoke(app(), ["swarm", *arguments])


def test_the_command_reports_json_on_standard_output_and_exits_0() -> None:
    result = _command("--seeds", "2", "--first", "3", "--parallel", "0", "--json")
    assert result.exit_code == 0, result.stderr
    findings = json.loads(result.stdout)
    assert findings["worlds"] == 2
    assert findings["failed"] == []
    assert findings["sometimes_checked"] is False
    assert "is checked from 200 worlds on" in result.stderr


def test_a_failure_prints_the_seed_the_world_the_events_and_the_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, twice: bool = False) -> Any:
        verdict = run(seed, twice)
        verdict.violations.append(Violation("no-work-for-excluded", "agent 0 did it", ((0, 0, 7),), "t"))
        return verdict

    monkeypatch.setattr("meshheal.cli.swarm.run", broken)
    result = _command("--seed", "3")
    assert result.exit_code == 1
    assert "seed 3:" in result.stderr
    assert draw(3).topology in result.stderr
    assert "no-work-for-excluded: agent 0 did it [task t] (events 0.0.7)" in result.stderr
    assert "meshheal swarm --seed 3\n" in result.stderr


def test_nothing_to_judge_is_unknown_and_exits_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(seed: int, twice: bool = False) -> Any:
        verdict = run(seed, twice)
        verdict.reviewed = 0
        return verdict

    monkeypatch.setattr("meshheal.cli.swarm.run", idle)
    assert _command("--seed", "3").exit_code == 3


def test_two_hundred_worlds_without_a_takeover_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(3)
    counts: Any = {**dict.fromkeys(SOMETIMES, 1), "takeover": 0}

    def same(seed: int, twice: bool = False) -> Any:
        return type(one)(seed, "w", [], counts, {}, 0, 1, 1, "h", twice)

    monkeypatch.setattr("meshheal.cli.swarm.run", same)
    result = _command("--parallel", "0")
    assert result.exit_code == 1
    assert "'takeover' occurred in none of 200 worlds" in result.stderr
    assert _command("--parallel", "0", "--seeds", "199").exit_code == 0


def test_an_interrupted_swarm_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("meshheal.cli.swarm.run", stop)
    assert _command("--seeds", "2", "--parallel", "0").exit_code == 130
