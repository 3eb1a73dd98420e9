"""What a run came to, folded from events written by hand."""

from __future__ import annotations

import pytest

from meshheal import events as ev
from meshheal.folds.summary import Summary, watchers
from meshheal.model import CallNotes
from meshheal.types import ReviewRecord, Usage

ABILITIES = [("a", "b")] * 4
AROUND = [[b for b in range(4) if b != a] for a in range(4)]


class Story:
    """Writes a run event by event. Agent 0 is the one that falls; 1, 2 and 3 watch it."""

    def __init__(self, phase=None, abilities=ABILITIES):
        self.summary = Summary(watchers(AROUND, abilities), abilities, 7, phase)
        self.seq, self.index, self.t = 0, -1, 0.0

    def add(self, kind, node=-1, **fields):
        self.seq += 1
        self.summary(kind(node=node, seq=self.seq, t=self.t, **fields))
        return self

    def task(self, correct=True, outcome="accepted"):
        self.index += 1
        self.t = 10.0 * self.index
        task = f"t{self.index}"
        self.add(ev.TaskArrived, index=self.index, entry=0, ability="a", task=task)
        self.add(ev.TaskSettled, node=0, task=task, outcome=outcome, value=None if correct is None else "x")
        return self.add(ev.TaskGraded, task=task, correct=correct)

    def tasks(self, n, correct=True):
        for _ in range(n):
            self.task(correct)
        return self

    def swap(self, degraded, agent=0):
        return self.add(ev.Swapped, agent=agent, to="m", index=self.index + 1, degraded=degraded)

    def believes(self, observer, to, agent=0, before=None, ability=""):
        before = before or ("healthy" if to != "healthy" else "probation")
        return self.add(
            ev.StateChanged, node=observer, agent=agent, before=before, to=to, evidence=5.0, ability=ability
        )

    def excluded(self, *observers, agent=0):
        for o in observers:
            self.believes(o, "excluded", agent, "suspect")
        return self

    def returned(self, *observers, agent=0):
        for o in observers:
            self.believes(o, "probation", agent, "excluded")
        return self

    def healthy(self, *observers, agent=0):
        for o in observers:
            self.believes(o, "healthy", agent, "probation")
        return self

    def output(self, agent=0):
        record = ReviewRecord("r", "t", agent, "a", "", "first_look", 0.5, (), 1, self.t)
        return self.add(ev.EvidenceShared, node=1, record=record, to=())

    def end(self):
        return self.summary.finish("hash")


def fall(at=10):
    return Story().tasks(at).swap(True)


# --- accuracy and cost ---


def test_every_arrived_task_counts_and_without_an_answer_it_is_wrong():
    story = Story().task(True).task(False).task(None).task(True)
    story.index += 1
    story.add(ev.TaskArrived, index=story.index, entry=0, ability="a", task="unfinished")
    r = story.end()
    assert r.tasks == 5
    assert r.accuracy_healthy == pytest.approx(2 / 5)
    assert r.accuracy_degraded is None
    assert r.no_answer == 1


def test_the_degraded_phase_runs_from_the_first_onset_to_the_last_recovery():
    story = Story().tasks(3).swap(True).tasks(2, False).swap(True, agent=1).tasks(2, True).swap(False)
    r = story.tasks(1, False).swap(False, agent=1).tasks(2).end()
    assert r.accuracy_degraded == pytest.approx(2 / 5)
    assert r.accuracy_healthy == pytest.approx(1.0)


def test_a_declared_phase_holds_where_the_run_itself_had_no_fault():
    r = Story(phase=(2, 4)).tasks(2).tasks(2, False).tasks(2).end()
    assert (r.accuracy_degraded, r.accuracy_healthy) == (0.0, 1.0)


def test_tokens_and_calls_are_counted_by_purpose_and_probes_apart_from_work():
    def call(story, purpose, probing=False, tokens=100):
        story.add(
            ev.ModelCalled,
            node=0,
            model="m",
            purpose=purpose,
            subject=0,
            n=0,
            prompt=(),
            prompt_hash="",
            usage=Usage(tokens, 0),
            probing=probing,
        )

    story = Story().tasks(2)
    call(story, "produce")
    call(story, "review")
    call(story, "review", probing=True)
    call(story, "probe", probing=True, tokens=60)
    r = story.end()
    assert r.tokens_by_purpose == {"probe": 80.0, "produce": 50.0, "review": 50.0}
    assert sum(r.tokens_by_purpose.values()) == pytest.approx(r.tokens_per_task)
    assert (r.calls_per_task, r.probe_calls_per_task) == (2.0, 1.0)


def test_the_prefix_cache_counts_where_the_server_told_and_is_null_where_it_did_not():
    def call(story, purpose, cached, **notes):
        story.add(
            ev.ModelCalled,
            node=0,
            model="m",
            purpose=purpose,
            subject=0,
            n=0,
            prompt=(),
            prompt_hash="",
            usage=Usage(100, 5, cached),
            notes=CallNotes(**notes),
        )

    story = Story().task()
    call(story, "produce", 0)
    call(story, "review", 80, cache_told=True)
    call(story, "review", 40, cache_told=True)
    call(story, "review", 0)
    call(story, "takeover", 0, cache_told=True)
    call(story, "takeover", 0, estimated=True)
    r = story.end()
    assert r.prefix_cache_hit_rate == {"produce": None, "review": pytest.approx(0.6), "takeover": 0.0}
    assert r.calls_estimated == 1
    assert Story().task().end().prefix_cache_hit_rate is None


def test_outcomes_and_unscored_reviews_are_counted():
    story = Story().task().task(outcome="takeover").task(None, "unanswered")
    story.add(ev.FirstLook, node=0, producer=1, reviewer=2, scores=(), unscored=("no_score", "empty"))
    story.add(ev.CommitteeMet, node=0, producer=1, members=(1, 2), scores=(None, 0.3))
    r = story.end()
    assert r.outcomes == {"accepted": 1, "takeover": 1, "unanswered": 1}
    assert r.unscored == 3


# --- detection ---


def test_detection_is_when_all_live_neighbours_exclude_and_counts_tasks_outputs_and_seconds():
    story = fall(10).task().output().excluded(1).task().output().excluded(2).tasks(3).output().excluded(3)
    d = story.tasks(5).end().detection[0]
    assert (d.agent, d.episode, d.onset_task) == (0, 0, 10)
    assert (d.delay_tasks, d.delay_first_observer, d.delay_median_observer) == (5, 1, 2)
    assert d.delay_outputs == 3
    assert d.delay_seconds == pytest.approx(14 * 10.0 - 9 * 10.0)
    assert d.reason is None


def test_a_neighbour_that_is_down_is_not_waited_for():
    story = fall().tasks(2).add(ev.Crashed, agent=3).excluded(1, 2)
    assert story.end().detection[0].delay_tasks == 2


def test_a_neighbour_without_a_shared_ability_is_not_waited_for():
    story = Story(abilities=[("a",), ("a",), ("a",), ("b",)]).tasks(1).swap(True).tasks(2).excluded(1, 2)
    assert story.end().detection[0].delay_tasks == 2


def test_what_is_not_detected_by_swap_back_is_censored_never_averaged_away():
    r = fall().tasks(4).excluded(1, 2).swap(False).tasks(5).end()
    d = r.detection[0]
    assert (d.delay_tasks, d.reason, d.window_tasks) == (None, "censored", 4)


def test_an_episode_still_open_at_the_end_is_censored_there():
    d = fall(10).tasks(6).end().detection[0]
    assert (d.delay_tasks, d.reason, d.window_tasks) == (None, "censored", 6)


def test_an_agent_that_was_out_already_has_no_delay():
    story = Story().tasks(5).excluded(1, 2, 3).swap(True).tasks(3)
    d = story.end().detection[0]
    assert (d.delay_tasks, d.reason) == (None, "already_excluded")


def test_exclusion_from_all_of_its_abilities_is_exclusion():
    story = fall().task()
    for observer in (1, 2, 3):
        story.believes(observer, "excluded", ability="a", before="suspect")
    assert story.end().detection[0].delay_tasks is None
    story = fall().task()
    for ability in ("a", "b"):
        for observer in (1, 2, 3):
            story.believes(observer, "excluded", ability=ability, before="suspect")
    assert story.end().detection[0].delay_tasks == 1


def test_two_episodes_of_one_agent_are_told_apart():
    story = fall(5).tasks(2).excluded(1, 2, 3).swap(False).tasks(2).returned(1, 2, 3).healthy(1, 2, 3).tasks(2)
    r = story.swap(True).tasks(3).excluded(1, 2, 3).end()
    assert [(d.episode, d.onset_task, d.delay_tasks) for d in r.detection] == [(0, 5, 2), (1, 11, 3)]


# --- reintegration ---


def recovered():
    return fall().tasks(2).excluded(1, 2, 3).tasks(2).swap(False)


def test_the_way_back_ends_when_nobody_excludes_any_more_and_again_when_all_are_healthy():
    r = recovered().tasks(2).returned(1, 2).task().returned(3).healthy(1).tasks(2).healthy(2, 3).tasks(5).end()
    back = r.reintegration[0]
    assert (back.agent, back.recovered_task, back.delay_tasks, back.delay_healthy) == (0, 14, 3, 5)
    assert back.delay_seconds == pytest.approx(16 * 10.0 - 13 * 10.0)
    assert back.reason is None


def test_one_that_does_not_come_back_by_the_end_is_censored():
    back = recovered().tasks(20).returned(1, 2).end().reintegration[0]
    assert (back.delay_tasks, back.reason) == (None, "censored")


def test_one_that_nobody_excluded_has_no_way_back():
    back = fall().tasks(4).swap(False).tasks(4).end().reintegration[0]
    assert (back.delay_tasks, back.reason) == (None, "not_excluded")


def test_a_return_while_still_bad_is_premature_and_counted():
    r = fall().task().excluded(1, 2, 3).tasks(3).returned(2).tasks(2).excluded(2).tasks(2).end()
    assert r.premature_reintegrations == 1
    assert r.detection[0].delay_tasks == 1


# --- false exclusions ---


def test_a_healthy_agent_excluded_is_a_false_exclusion_counted_once_until_it_is_back():
    story = Story().tasks(3).excluded(1, agent=2).excluded(3, agent=2).task()
    assert story.summary.result.false_exclusions == 1
    story.returned(1, agent=2).returned(3, agent=2).tasks(2).excluded(1, agent=2)
    assert story.end().false_exclusions == 2


def test_a_degraded_or_returning_agent_is_no_false_exclusion():
    r = recovered().task().returned(1).believes(1, "excluded", before="probation").tasks(3).end()
    assert r.false_exclusions == 0


def test_observations_of_healthy_agents_are_those_of_nobody_degraded_or_returning():
    story = Story().tasks(2).output(0).output(1).swap(True).task().output(0).output(1)
    r = story.excluded(1, 2, 3).swap(False).task().output(0).output(2).end()
    assert r.observations_healthy == 4


def test_ordinary_work_of_an_excluded_agent_is_counted():
    story = fall().task().excluded(1, 2, 3)
    story.add(ev.ProducerAsked, node=2, producer=0, ability="a", state="healthy")
    story.add(ev.ProducerAsked, node=2, producer=1, ability="a")
    assert story.end().ordinary_tasks_while_excluded == 1


def test_an_exception_in_an_agent_makes_the_run_invalid():
    assert Story().task().add(ev.AgentFailed, error="x").end().failures == 1


def test_the_hash_and_the_seed_are_passed_on():
    r = Story().task().end()
    assert (r.seed, r.event_hash) == (7, "hash")


def test_a_run_without_tasks_has_no_accuracy():
    r = Story().end()
    assert (r.accuracy_healthy, r.accuracy_degraded, r.tasks) == (None, None, 0)
