"""The swarm's liveness checks, and the oracle that says what could have been known."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from swarm_events import Writer, ground

from meshheal.config import Settings
from meshheal.detector import make
from meshheal.events import (
    EvidenceShared,
    ExclusionWithheld,
    StateChanged,
    Swapped,
    TaskArrived,
)
from meshheal.rng import Stream
from meshheal.trace.recorder import MemoryLog
from meshheal.types import AgentId, ReviewRecord
from sim.local import LocalRun
from sim.swarm import draw
from sim.swarm.liveness import RUN_LENGTH, RUN_LENGTH_SR, Judged, liveness, measured_arl0
from sim.swarm.notes import Notes, Noting
from sim.swarm.oracle import Oracle, Scores, average_run_length, best, threshold
from sim.swarm.worlds import Phases, build

NOBODY: frozenset[AgentId] = frozenset()
DETECTOR = Settings().detector


# --- liveness --------------------------------------------------------------------------------------------------------

PHASES = Phases(20, 40, 140, 200)


class History:
    """Scores of four agents, of which agent 0 is degraded from arrival 20 to 140."""

    def __init__(self, bad: float = 0.0) -> None:
        self.w = Writer()
        self.bad = bad
        self.index = 0

    def until(self, index: int) -> History:
        for i in range(self.index, index):
            if i == PHASES.faults:
                self.w.add(Swapped, agent=0, to="worse", index=i, degraded=True)
            if i == PHASES.quiet:
                self.w.add(Swapped, agent=0, to="own", index=i, degraded=False)
            self.w.add(TaskArrived, task=f"t{i}", index=i, entry=1, ability="a")
            for agent in range(4):
                low = agent == 0 and PHASES.faults <= i < PHASES.quiet and i % 20
                to = tuple(b for b in range(4) if b != agent)
                self.w.share(1, agent, self.bad if low else 0.9, to=to, task=f"t{i}")
        self.index = index
        return self

    def state(self, to: str, before: str = "suspect", observers: tuple[int, ...] = (1, 2, 3)) -> History:
        for observer in observers:
            self.w.add(StateChanged, observer, agent=0, before=before, to=to, evidence=99.0)
        return self

    def judge(self, detector: Any = DETECTOR, expected: float = 0.9) -> Judged:
        """With observers that expect the same of every score."""
        events = self.until(PHASES.end).w.events
        shared = {e.record.id: expected for e in events if isinstance(e, EvidenceShared)}
        return liveness(ground(), events, PHASES, detector, dict.fromkeys(range(4), shared), NOBODY)


def test_a_degraded_agent_that_all_exclude_and_take_back_is_fine() -> None:
    judged = History().until(30).state("excluded").until(150).state("probation", "excluded").judge()
    assert judged.found == []
    assert judged.fates == {"excluded": 3}
    assert judged.recovered == 1


def test_a_grossly_degraded_agent_that_nobody_excludes_is_caught() -> None:
    judged = History().judge()
    assert judged.fates == {"missed": 3}
    assert {v.check for v in judged.found} == {"degraded-are-excluded"}
    assert judged.found[0].events
    assert "not even suspected" in judged.found[0].what


def test_a_suspect_of_which_the_oracle_is_sure_many_times_over_must_be_excluded() -> None:
    assert History().until(30).state("suspect", "healthy").judge().fates == {"missed": 3}


def test_a_suspect_of_which_the_oracles_are_only_just_sure_may_wait() -> None:
    history = History(bad=0.75).until(30).state("suspect", "healthy")
    assert history.judge(expected=0.89).fates == {"in doubt": 3}


def test_a_suspect_for_whom_the_observer_has_thin_references_may_wait_a_little_longer() -> None:
    def slow() -> History:
        return History(bad=0.65).until(30).state("suspect", "healthy")

    assert slow().judge(expected=0.9).fates == {"missed": 3}
    assert slow().judge(expected=0.8).fates == {"in doubt": 3}


def test_references_that_say_nothing_excuse_no_observer() -> None:
    judged = History().until(30).state("suspect", "healthy").judge(expected=0.1)
    assert judged.fates == {"missed": 3}
    assert "(knowing the healthy; 7)" in judged.found[0].what


def test_one_observer_that_misses_it_is_enough() -> None:
    history = History().until(30).state("excluded", observers=(1, 3))
    judged = history.until(150).state("probation", "excluded", (1, 3)).judge()
    assert judged.fates == {"excluded": 2, "missed": 1}
    assert "agent 2" in judged.found[0].what


def test_a_drop_too_small_for_the_oracle_too_is_no_violation() -> None:
    judged = History(bad=0.85).judge()
    assert judged.found == []
    assert judged.fates == {"oracle silent": 3}


def test_a_withheld_exclusion_is_no_violation() -> None:
    history = History().until(60)
    for observer in (1, 2, 3):
        history.w.add(ExclusionWithheld, observer, agent=0, ability="a", guard="min_eligible", evidence=99.0)
    assert history.judge().fates == {"withheld": 3}


def test_an_observer_with_mostly_degraded_neighbours_has_nobody_to_compare_with() -> None:
    history = History()
    for agent in (2, 3):
        history.w.add(Swapped, agent=agent, to="worse", index=0, degraded=True)
    assert history.judge().fates["outnumbered"] > 0


def test_a_recovered_agent_that_is_still_excluded_is_caught() -> None:
    judged = History().until(30).state("excluded").until(150).state("probation", "excluded", (1, 2)).judge()
    assert [v.check for v in judged.found] == ["recovered-are-back"]
    assert "agent 3 still excludes agent 0" in judged.found[0].what


def test_a_recovered_agent_that_is_still_excluded_from_one_ability_is_caught() -> None:
    history = History().until(30).state("excluded").until(150).state("probation", "excluded")
    history.w.add(StateChanged, 2, agent=0, ability="b", before="probation", to="excluded", evidence=1.0)
    history.w.events[-1], history.w.events[-2] = history.w.events[-2], history.w.events[-1]
    history.state("excluded", "healthy", (2,))
    assert history.judge().found == []  # it has been back since, and is out by a later mistake
    never = History().until(30)
    never.w.add(StateChanged, 2, agent=0, ability="b", before="healthy", to="excluded", evidence=1.0)
    assert "recovered-are-back" in {v.check for v in never.judge().found}


# --- the oracle ------------------------------------------------------------------------------------------------------


def _record(score: float) -> ReviewRecord:
    return ReviewRecord("r", "t", 0, "a", "", "first_look", score, (), 1, 0.0)


def _scores(degraded: list[float]) -> Scores:
    scores = Scores()
    for score in [1.0] * 90 + [0.0] * 10:
        scores.add(_record(score), degraded=False)
    for score in degraded:
        scores.add(_record(score), degraded=True)
    return scores


def test_the_oracle_bets_nothing_where_the_fall_is_smaller_than_the_drop() -> None:
    assert best([1.0] * 90 + [0.0] * 10, [1.0] * 85 + [0.0] * 15, 0.1).bet < 0.01
    assert best([1.0] * 90 + [0.0] * 10, [1.0] * 30 + [0.0] * 70, 0.1).bet > 1


def test_the_oracle_finds_a_gross_fault_in_a_few_records_and_a_healthy_agent_in_none() -> None:
    oracle = Oracle(_scores([1.0] * 30 + [0.0] * 70), 0.1, 5000)
    assert oracle.strongest([_record(0.0)] * 12) > 1
    assert oracle.strongest(([_record(1.0)] * 9 + [_record(0.0)]) * 100) < 1


def test_the_oracle_of_agents_that_fail_always_needs_no_more_evidence_than_another() -> None:
    always, often = Oracle(_scores([0.0] * 100), 0.1, 5000), Oracle(_scores([1.0] * 30 + [0.0] * 70), 0.1, 5000)
    assert always.level < often.level + 2
    assert always.strongest([_record(0.0)] * 8) > 1


def test_an_oracle_told_the_true_level_is_as_strong_as_one_that_knows_it_and_one_told_less_is_weaker() -> None:
    oracle = Oracle(_scores([1.0] * 30 + [0.0] * 70), 0.1, 5000)
    records = [_record(score) for score in (0.0, 1.0, 0.0, 0.0)]

    def told(expected: float) -> float:
        return oracle.informed(records, {"r": expected})

    assert told(0.9) == pytest.approx(oracle.strongest(records))
    assert told(0.9) > told(0.7) > 0
    assert oracle.informed(records, {}) == 0


@pytest.mark.parametrize(
    ("kind", "exclude_at", "multiple"), [("e-cusum", 20.0, RUN_LENGTH), ("e-sr", 100.0, RUN_LENGTH_SR)]
)
def test_the_oracle_is_given_the_run_length_that_the_test_has_at_the_edge_of_its_null(
    kind: Any, exclude_at: float, multiple: float
) -> None:
    settings = Settings.model_validate({"detector": {"kind": kind, "exclude_at": exclude_at}}).detector
    level, draws, runs, seen = 5 * exclude_at, Stream("edge", kind), 60, 0
    for _ in range(runs):
        wide, narrow = make(kind, settings), [make(kind, settings) for _ in range(2)]
        while (wide.evidence + sum(d.evidence for d in narrow) / 2) / 2 < level:
            seen += 1
            score = float(draws.uniform() < 0.9 - settings.drop)
            wide.update(score, 0.9)
            narrow[draws.index(2)].update(score, 0.9)
    assert measured_arl0(settings, 5) == pytest.approx(multiple * level)
    assert seen / runs == pytest.approx(measured_arl0(settings, 5), rel=0.35)


def test_what_an_observer_expected_is_written_down_before_the_score_counts() -> None:
    drawn = draw(3)
    notes: Notes = {}
    world = build(drawn)
    world.beliefs = partial(Noting, notes)
    runner = LocalRun(world, MemoryLog(), enough=lambda index: index >= 60)
    runner.run()
    values = [b for of in notes.values() for b in of.values()]
    assert len(values) > 100
    assert all(0 <= b <= 1 for b in values)
    assert notes.keys() <= set(range(world.size))


def test_the_oracle_is_silent_on_a_stratum_it_does_not_know() -> None:
    assert Oracle(_scores([]), 0.1, 5000).strongest([_record(0.0)] * 100) == 0


def test_the_threshold_has_the_run_length_asked_for() -> None:
    steps = [(-0.7, 0.8), (1.2, 0.2)]
    level = threshold(steps, 500)
    assert average_run_length(steps, level) == pytest.approx(500, rel=0.1)
    assert threshold(steps, 5000) > level


def test_the_run_length_agrees_with_simulation() -> None:
    draws, lengths = Stream("run length"), []
    for _ in range(400):
        total, n = 0.0, 0
        while total < 4.0:
            total, n = max(0.0, total + (1.2 if draws.uniform() < 0.25 else -0.5)), n + 1
        lengths.append(n)
    assert average_run_length([(1.2, 0.25), (-0.5, 0.75)], 4.0) == pytest.approx(sum(lengths) / len(lengths), rel=0.15)
