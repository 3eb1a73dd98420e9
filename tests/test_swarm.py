"""The swarm: worlds hold what they must, a seed decides everything, and each check catches what it is there for."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from meshheal.config import Settings
from meshheal.detector import make
from meshheal.events import (
    AgentFailed,
    Answered,
    CommitteeMet,
    CorrelatedDegradation,
    Crashed,
    Event,
    EventId,
    EvidenceShared,
    ExclusionWithheld,
    FirstLook,
    ModelCalled,
    Probed,
    ProducerAsked,
    Restarted,
    StateChanged,
    Swapped,
    TaskArrived,
    TaskGraded,
    TaskSettled,
    TookOver,
)
from meshheal.recovery import on_duty
from meshheal.rng import Stream
from meshheal.trace.recorder import MemoryLog
from meshheal.types import AgentId, ReviewRecord, Usage
from sim.faults import Crash, Partition, Swap, Weather
from sim.links import LinkProfile
from sim.local import LocalRun
from sim.loop import Stalled
from sim.swarm import draw, run
from sim.swarm import trial as running
from sim.swarm.ground import Ground, Views, Violation
from sim.swarm.liveness import RUN_LENGTH, RUN_LENGTH_SR, Judged, liveness, measured_arl0
from sim.swarm.notes import Notes, Noting
from sim.swarm.oracle import Oracle, Scores, average_run_length, best, threshold
from sim.swarm.safety import safety
from sim.swarm.sometimes import SOMETIMES, Seen
from sim.swarm.worlds import Phases, build

NOBODY: frozenset[AgentId] = frozenset()
DETECTOR = Settings().detector


class Writer:
    """Writes events by hand, numbered as an agent's journal does."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.texts: dict[str, str] = {}

    def add(self, kind: type[Event], node: int = -1, **fields: Any) -> EventId:
        event = kind(node=node, seq=len(self.events) + 1, t=float(len(self.events)), **fields)
        self.events.append(event)
        return event.id

    def called(self, node: int, purpose: str, subject: int, *replies: str, task: str = "t", **fields: Any) -> EventId:
        for reply in replies:
            self.texts[reply] = reply
        return self.add(
            ModelCalled,
            node,
            task=task,
            model="m",
            purpose=purpose,
            subject=subject,
            n=0,
            prompt=(),
            prompt_hash="",
            replies=replies,
            **fields,
        )

    def share(
        self, coordinator: int, producer: int, score: float, task: str = "t", to: tuple[int, ...] = (), **fields: Any
    ) -> EventId:
        told = {"channel": "first_look", "score": score, "reviewers": (), "coordinator": coordinator, "time": 0.0}
        record = ReviewRecord(
            id=f"{coordinator}.{len(self.events)}",
            task=task,
            producer=producer,
            ability="a",
            kind="",
            **{**told, **fields},
        )
        return self.add(EvidenceShared, coordinator, task=task, record=record, to=to)


def ground(**fields: Any) -> Ground:
    """Four agents that all know one another and hold the abilities a and b."""
    made = Ground([[b for b in range(4) if b != a] for a in range(4)], [("a", "b")] * 4)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def task(w: Writer, reviewer: int = 2, score: float = 0.9, reply: str = '{"score": 0.9}') -> None:
    """A sound task: agent 0 coordinates, agent 1 produces, `reviewer` looks at it."""
    w.add(TaskArrived, task="t", index=0, entry=0, ability="a")
    w.add(ProducerAsked, 0, task="t", producer=1, ability="a")
    w.called(1, "produce", 1, "42", usage=Usage(10, 5))
    w.add(Answered, 0, task="t", producer=1, value="42")
    w.called(reviewer, "review", 1, reply, usage=Usage(20, 5))
    w.add(FirstLook, 0, task="t", producer=1, reviewer=reviewer, scores=(score,))
    w.share(0, 1, score)
    w.add(TaskSettled, 0, task="t", outcome="accepted", producer=1, author=1, value="42", usage=Usage(30, 10), calls=2)
    w.add(TaskGraded, task="t", correct=True)


def found(w: Writer, **fields: Any) -> list[Violation]:
    return safety(ground(texts=w.texts, **fields), w.events)


def names(w: Writer, **fields: Any) -> set[str]:
    return {v.check for v in found(w, **fields)}


# --- every check can fail ----------------------------------------------------------------------------------------


def test_a_sound_task_violates_nothing() -> None:
    w = Writer()
    task(w)
    assert found(w) == []


def test_work_for_an_excluded_agent_is_caught_with_both_events() -> None:
    w = Writer()
    excluded = w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=99.0)
    task(w)
    (violation,) = found(w)
    assert violation.check == "no-work-for-excluded"
    assert violation.task == "t"
    assert violation.events[0] == excluded


def test_work_in_the_one_ability_an_agent_is_excluded_from_is_caught() -> None:
    w = Writer()
    w.add(StateChanged, 0, agent=1, ability="a", before="healthy", to="excluded", evidence=99.0)
    task(w)
    assert names(w) == {"no-work-for-excluded"}


def test_work_for_an_agent_excluded_from_another_ability_or_by_another_observer_is_allowed() -> None:
    w = Writer()
    w.add(StateChanged, 0, agent=1, ability="b", before="healthy", to="excluded", evidence=99.0)
    w.add(StateChanged, 3, agent=1, before="healthy", to="excluded", evidence=99.0)
    task(w)
    assert found(w) == []


def test_an_observer_that_restarts_from_an_older_checkpoint_may_have_forgotten_an_exclusion() -> None:
    w = Writer()
    w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=99.0)
    w.add(Crashed, agent=0)
    w.add(Restarted, agent=0)
    task(w)
    assert found(w) == []


def test_an_exclusion_restored_from_the_checkpoint_binds_again() -> None:
    w = Writer()
    w.add(Restarted, agent=0)
    w.add(StateChanged, 0, agent=1, before="healthy", to="excluded", evidence=99.0, reason="restored")
    task(w)
    assert names(w) == {"no-work-for-excluded"}


def test_a_first_look_at_ones_own_output_is_caught() -> None:
    w = Writer()
    task(w, reviewer=1)
    assert names(w) == {"nobody-reviews-itself"}


@pytest.mark.parametrize("where", ["call", "committee", "record"])
def test_self_review_is_caught_wherever_it_shows(where: str) -> None:
    w = Writer()
    task(w)
    if where == "call":
        w.called(1, "deliberate", 1, '{"score": 1}')
    elif where == "committee":
        w.called(2, "review", 1, '{"score": 1}')
        w.add(CommitteeMet, 0, task="t", producer=1, members=(2, 1), scores=(1.0, None))
    else:
        w.share(0, 1, 0.9, reviewers=(1,))
    assert "nobody-reviews-itself" in names(w, exact=False)


def test_a_score_given_to_somebody_who_did_not_produce_is_caught() -> None:
    w = Writer()
    task(w)
    w.share(0, 3, 0.9)
    assert names(w) == {"scores-belong-to-producers"}


def test_a_score_that_nobody_gave_is_caught() -> None:
    w = Writer()
    task(w)
    w.share(0, 1, 0.2)
    assert names(w) == {"scores-belong-to-producers"}


def test_the_score_of_a_takeovers_author_instead_of_the_producers_is_caught() -> None:
    w = Writer()
    task(w)
    w.called(2, "takeover", 2, "43", usage=Usage())
    w.add(TookOver, 0, task="t", producer=2, members=(2, 1), values=("43", "42"), chosen=2, replaced=True)
    assert names(w, exact=False) == {"scores-belong-to-producers"}


def test_an_answer_whose_producer_never_called_a_model_is_caught() -> None:
    w = Writer()
    task(w)
    w.add(Answered, 0, task="t", producer=3, value="42")
    assert names(w) == {"scores-belong-to-producers"}


def test_a_probe_record_must_carry_the_probes_score_and_agent() -> None:
    w = Writer()
    task(w)
    w.called(3, "probe", 3, "42", probing=True)
    w.add(Probed, 0, task="t", agent=3, reference="t", score=1.0, motive="background", compared=True)
    w.share(0, 3, 1.0, channel="probe")
    assert found(w) == []
    w.share(0, 3, 0.0, channel="probe")
    assert names(w) == {"scores-belong-to-producers"}


def test_an_exclusion_that_leaves_too_few_producers_is_caught() -> None:
    w = Writer()
    for agent in (1, 2, 3):
        w.add(StateChanged, 0, agent=agent, before="suspect", to="excluded", evidence=99.0)
    assert names(w, min_eligible=1) == set()
    (first, *_) = found(w, min_eligible=2)
    assert first.check == "exclusions-leave-producers"
    assert "1 producers" in first.what


def test_an_exclusion_from_one_ability_counts_for_that_ability() -> None:
    w = Writer()
    for agent in (1, 2, 3):
        w.add(StateChanged, 0, agent=agent, ability="a", before="healthy", to="excluded", evidence=99.0)
    assert {v.check for v in found(w, min_eligible=2)} == {"exclusions-leave-producers"}
    assert len(found(w, min_eligible=2)) == 1


def test_tokens_that_the_task_does_not_own_up_to_are_caught_where_nothing_is_lost() -> None:
    w = Writer()
    task(w)
    w.called(2, "review", 1, '{"score": 0.9}', usage=Usage(7, 0))
    assert names(w, exact=True) == {"tokens-add-up"}
    assert names(w, exact=False) == set()


def test_tokens_that_no_call_took_are_caught_even_where_messages_are_lost() -> None:
    w = Writer()
    task(w)
    settled = w.events.pop(-2)
    w.events.insert(-1, type(settled)(**{**_fields(settled), "usage": Usage(31, 10)}))
    assert names(w, exact=False) == {"tokens-add-up"}


def test_tokens_of_probes_belong_to_no_task() -> None:
    w = Writer()
    task(w)
    w.called(3, "probe", 3, "42", probing=True, usage=Usage(10, 5))
    assert found(w) == []


@pytest.mark.parametrize(("kind", "times"), [(TaskSettled, 0), (TaskSettled, 2), (TaskGraded, 0), (TaskGraded, 2)])
def test_a_task_must_end_and_be_graded_exactly_once(kind: type[Event], times: int) -> None:
    w = Writer()
    task(w)
    (event,) = [e for e in w.events if type(e) is kind]
    if times == 0:
        w.events.remove(event)
    else:
        w.events.append(event)
    assert "each-task-ends-once" in names(w, exact=False)


def test_an_outcome_of_a_task_that_never_arrived_is_caught() -> None:
    w = Writer()
    w.add(TaskSettled, 0, task="ghost", outcome="failed")
    assert names(w) == {"each-task-ends-once"}


@pytest.mark.parametrize("reply", ["I like it.", '{"score": null}', '{"score": 9}', '{"score": 0.3}'])
def test_a_score_that_does_not_stand_in_the_reply_is_caught(reply: str) -> None:
    w = Writer()
    task(w, score=0.9, reply=reply)
    assert names(w) == {"parse-failures-are-no-scores"}


def test_a_parse_failure_turned_into_a_zero_is_caught() -> None:
    w = Writer()
    task(w, score=0.0, reply="Looks fine to me!")
    assert names(w) == {"parse-failures-are-no-scores"}


def test_a_committee_vote_without_a_readable_reply_is_caught() -> None:
    w = Writer()
    task(w)
    w.called(3, "review", 1, "no verdict", usage=Usage())
    w.add(CommitteeMet, 0, task="t", producer=1, members=(2, 3), scores=(0.9, 0.0))
    assert names(w, exact=False) == {"parse-failures-are-no-scores"}


def test_a_member_that_keeps_its_first_look_in_the_committee_is_allowed() -> None:
    w = Writer()
    task(w)
    w.called(3, "review", 1, '{"score": 0.1}', usage=Usage())
    w.add(CommitteeMet, 0, task="t", producer=1, members=(2, 3), scores=(0.9, 0.1), deliberated=(0.9, 0.1), split=True)
    assert names(w, exact=False) == set()


def test_an_unreadable_output_scored_zero_without_a_reviewer_is_allowed() -> None:
    w = Writer()
    w.add(FirstLook, 0, task="t", producer=1, reviewer=-1, scores=(0.0,))
    assert "parse-failures-are-no-scores" not in names(w)
    w.add(FirstLook, 0, task="t", producer=1, reviewer=-1, scores=(0.5,))
    assert "parse-failures-are-no-scores" in names(w)


def test_an_exception_in_an_agent_is_caught() -> None:
    w = Writer()
    w.add(AgentFailed, error="agent 3: KeyError: 'x'")
    assert names(w) == {"nobody-fails"}


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


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


def _held(seeds: range) -> None:
    wrong = [(v.seed, x.line()) for v in (run(s, twice=s % 6 == 0) for s in seeds) for x in v.violations]
    assert wrong == [], "repeat with: " + "; ".join(sorted({f"meshheal swarm --seed {s}" for s, _ in wrong}))


@pytest.mark.parametrize("first", [0, 4, 8])
def test_twelve_worlds_hold_everything(first: int) -> None:
    _held(range(first, first + 4))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12, 72, 10))
def test_sixty_more_worlds_hold_everything(first: int) -> None:
    _held(range(first, first + 10))


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
