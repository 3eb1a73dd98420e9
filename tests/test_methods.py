"""What becomes of one task, call by call: the review ladder as the methods walk it."""

from __future__ import annotations

import pytest
from scripted import FAMILIES, RIGHT, WRONG, failing, verdict

from meshheal.config import Settings
from meshheal.errors import UsageError
from meshheal.events import (
    Answered,
    CommitteeMet,
    EvidenceShared,
    FirstLook,
    ModelCalled,
    ProducerAsked,
    ProducerSilent,
    StateChanged,
    TaskGraded,
    TookOver,
)
from meshheal.methods import METHODS, find

pytestmark = pytest.mark.conformance

EVERYBODY = range(6)
EMPTY, NOISE = "", "Well."


def one(events):
    (event,) = events
    return event


def everyone_produces(script, line):
    for agent in EVERYBODY:
        script.say(line, "produce", agent)


# --- first look ---


def test_an_accepted_first_look_costs_one_produce_and_one_review_call(world):
    played = world()
    assert [c.purpose for c in played.calls()] == ["produce", "review"]
    settled = played.outcome()
    assert (settled.outcome, settled.value, settled.calls, settled.usage.total) == ("accepted", "A", 2, 220)
    assert settled.producer == settled.author == one(played.of(ProducerAsked)).producer


def test_producer_and_reviewer_hold_the_ability_and_are_two(world):
    played = world(60)
    held = played.run.world.abilities
    for asked in played.of(ProducerAsked):
        look = one(played.of(FirstLook, asked.task))
        assert asked.ability in held[asked.producer]
        assert asked.ability in held[look.reviewer]
        assert look.reviewer != asked.producer


def test_the_reviewer_is_of_another_model_family_where_there_is_a_choice(world):
    played = world(60)
    for look in played.of(FirstLook):
        assert FAMILIES[look.reviewer] != FAMILIES[look.producer]


def test_a_low_first_look_leads_to_a_committee_with_one_vote_per_model(world, script):
    """Three reviewers besides the producer hold the ability: of two families, so the verdict is of two opinions."""
    everyone_produces(script, WRONG)
    played = world(12, families=("one", "two"))
    for met in played.of(CommitteeMet):
        by_family = {}
        for member, score in zip(met.members, met.scores, strict=True):
            by_family.setdefault(member % 2, []).append(score)
        assert len(met.members) == 3
        assert len(by_family) == 2
        means = sorted(sum(v) / len(v) for v in by_family.values())
        assert met.verdict == pytest.approx(sum(means) / 2)
    assert len(played.of(CommitteeMet)) == 12


def test_two_members_on_one_model_cannot_outvote_two_others(world, script):
    """Two of three members run on one model and like the wrong answer; the third runs on another and does not."""
    script.wrong = set(EVERYBODY)
    families = ("like", "like", "like", "two", "like", "like")
    for agent in EVERYBODY:
        script.scores[agent] = 0.9 if families[agent] == "like" else 0.1
    played = world(40, families=families, settings={"review": {"disagree_at": 1.0}})
    split = [m for m in played.of(CommitteeMet) if len(m.scores) == 3 and sum(s > 0.5 for s in m.scores) == 2]
    assert split
    for met in split:
        assert met.verdict == pytest.approx(0.5)  # the median of two opinions, not two votes against one


def test_the_first_look_reviewer_sits_on_the_committee_and_is_not_asked_again(world, script):
    everyone_produces(script, WRONG)
    played = world(settings={"review": {"takeover": False}})
    look, met = one(played.of(FirstLook)), one(played.of(CommitteeMet))
    assert look.reviewer in met.members
    assert len(met.members) == 3
    assert len(played.calls("review")) == 3
    assert len({c.node for c in played.calls("review")}) == 3


def test_members_that_agree_do_not_deliberate_and_those_that_disagree_do(world, script):
    everyone_produces(script, WRONG)
    assert not world().calls("deliberate")
    for agent in EVERYBODY:
        script.scores[agent] = 0.1 if agent % 2 else 0.55
    script.asked.clear()
    played = world(12)
    for met in played.of(CommitteeMet):
        assert met.split is (max(met.scores) - min(met.scores) >= 0.4)
        assert len(played.calls("deliberate", met.task)) == (len(met.members) if met.split else 0)
    assert any(m.split for m in played.of(CommitteeMet))


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_whoever_deliberates_sees_the_others_reasons_and_not_its_own(world, script):
    everyone_produces(script, WRONG)
    for agent in EVERYBODY:
        line = verdict(0.1 if agent % 2 else 0.55, f"reason-of-{agent}")
        script.say(line, "review", agent)
    played = world(12)
    seen = [r for r in script.asked if r.key.purpose == "deliberate"]
    assert seen
    for request in seen:
        met = one(played.of(CommitteeMet, request.key.item))
        text = request.messages[-1].content
        for member in met.members:
            assert (f"reason-of-{member}" in text) is (member != request.key.agent)


def test_a_member_that_has_no_second_opinion_keeps_its_first(world, script):
    everyone_produces(script, WRONG)
    for agent in EVERYBODY:
        script.scores[agent] = 0.1 if agent % 2 else 0.55
        script.say("no opinion", "deliberate", agent)
    played = world(12)
    split = [m for m in played.of(CommitteeMet) if m.split]
    assert split
    assert all(m.deliberated == m.scores for m in split)


def test_a_good_answer_that_one_reviewer_dislikes_is_kept_by_the_committee(world, script):
    for agent in (0, 1, 2):
        script.scores[agent] = 0.4
    played = world(40)
    kept = [m for m in played.of(CommitteeMet) if m.verdict >= 0.5]
    assert kept
    for met in kept:
        settled = played.outcome(met.task)
        assert (settled.outcome, settled.value, settled.author) == ("committee", "A", met.producer)
        assert not played.of(TookOver, met.task)


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_a_low_score_is_repeated_by_the_same_reviewer_in_one_request(world, script):
    everyone_produces(script, WRONG)
    played = world(settings={"review": {"repeats": 4, "takeover": False}})
    look = one(played.of(FirstLook))
    assert len(look.scores) == 4
    asked = [r for r in script.asked if r.key.purpose == "review" and r.key.agent == look.reviewer]
    assert [(r.sampling.n, r.key.n) for r in asked] == [(1, 0), (3, 1)]


# --- takeover, and whose score it is ---


def test_the_score_belongs_to_the_producer_though_the_takeovers_answer_is_used(world, script):
    everyone_produces(script, WRONG)
    played = world()
    record, took, settled = one(played.of(EvidenceShared)).record, one(played.of(TookOver)), played.outcome()
    assert settled.outcome == "takeover"
    assert settled.value == "A"
    assert one(played.of(TaskGraded)).correct is True
    assert took.replaced
    assert took.chosen == settled.author != settled.producer
    assert record.producer == settled.producer
    assert record.score == pytest.approx(0.05)
    assert record.committee == pytest.approx(0.05)


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_each_member_of_a_takeover_sees_the_criticism(world, script):
    everyone_produces(script, WRONG)
    for agent in EVERYBODY:
        script.say(verdict(0.1, f"flaw-{agent}"), "review", agent)
    played = world()
    members = one(played.of(CommitteeMet)).members
    seen = [r for r in script.asked if r.key.purpose == "takeover"]
    assert sorted(r.key.agent for r in seen) == sorted(members)
    for request in seen:
        assert all(f"flaw-{m}" in request.messages[-1].content for m in members)
        assert any(m.content == WRONG for m in request.messages)


def test_the_producer_has_a_vote_in_the_takeover(world, script):
    """Reviewers reject the right answer and take over with different wrong ones: none outnumbers the producer's."""
    for agent in EVERYBODY:
        script.scores[agent] = 0.1
        script.say(f"The answer is ({'BCD'[agent % 3]}).", "takeover", agent)
    played = world()
    took, settled = one(played.of(TookOver)), played.outcome()
    assert dict(zip(took.members, took.values, strict=True))[settled.producer] == "A"
    votes = list(took.values)
    assert votes.count(settled.value) == max(votes.count(v) for v in votes)


def test_a_member_whose_takeover_fails_has_no_vote_and_one_that_stays_silent_does_not_stop_it(world, script):
    everyone_produces(script, WRONG)
    played = world()
    first = one(played.of(CommitteeMet)).members[0]
    script.say(failing(), "takeover", first)
    played = world()
    took = one(played.of(TookOver))
    assert first not in took.members
    assert played.outcome().value == "A"


def test_without_takeover_a_rejected_answer_is_used_as_it_is(world, script):
    everyone_produces(script, WRONG)
    played = world(settings={"review": {"takeover": False}})
    assert not played.calls("takeover")
    assert played.outcome().value == "B"
    assert played.outcome().outcome == "committee"


# --- replies that cannot be read ---


def test_an_unreadable_review_is_unscored_and_the_next_reviewer_is_asked(world, script):
    first = one(world().of(FirstLook)).reviewer
    script.say("Looks fine to me.", "review", first)
    played = world()
    look = one(played.of(FirstLook))
    assert look.reviewer != first
    assert look.scores == (0.95,)
    assert look.unscored == ("no_score",)
    assert [c.node for c in played.calls("review")] == [first, look.reviewer]
    assert played.outcome().outcome == "accepted"


@pytest.mark.parametrize("reply", ["", '{"score": 7}', '{"score": null}', '<think>so {"score": 1}'])
def test_no_bad_reply_of_a_reviewer_ever_becomes_a_number(world, script, reply):
    for agent in EVERYBODY:
        script.say(reply, "review", agent)
    played = world(20)
    assert not any(look.scores for look in played.of(FirstLook))
    assert not played.of(EvidenceShared)
    assert not played.of(StateChanged)
    assert all(s is None for m in played.of(CommitteeMet) for s in m.scores)


def test_a_review_call_that_fails_is_unscored(world, script):
    first = one(world().of(FirstLook)).reviewer
    script.say(failing(), "review", first)
    look = one(world().of(FirstLook))
    assert look.unscored == ("call_failed",)
    assert look.reviewer != first


@pytest.mark.parametrize(("text", "fault"), [(EMPTY, "empty"), ("  \n", "empty"), (NOISE, "unreadable")])
def test_an_output_without_an_answer_is_scored_0_without_a_review(world, script, text, fault):
    everyone_produces(script, text)
    played = world()
    answered, look = one(played.of(Answered)), one(played.of(FirstLook))
    assert (answered.fault, answered.value) == (fault, None)
    assert look.scores == (0.0,)
    assert not played.calls("review")
    record = one(played.of(EvidenceShared)).record
    assert (record.score, record.producer, record.reviewers) == (0.0, answered.producer, ())
    assert played.outcome().value == "A"  # the members took over


def test_a_replica_that_degenerates_into_noise_is_excluded_by_it(world, script):
    script.say(NOISE, "produce", 2)
    script.say(NOISE, "probe", 2)
    played = world(150, settings={"recovery": {"burst": 4}})
    convicted = {e.agent for e in played.of(StateChanged) if e.to == "excluded"}
    assert convicted == {2}


def test_nobody_answers_rightly_and_the_task_ends_without_an_answer_all_the_same(world, script):
    for purpose in ("produce", "takeover"):
        for agent in EVERYBODY:
            script.say(NOISE, purpose, agent)
    played = world()
    settled = played.outcome()
    assert settled.value is None
    assert one(played.of(TaskGraded)).correct is None


# --- producers that do not answer ---


def test_a_producer_that_stays_silent_is_re_routed_and_gets_no_score(world, script):
    first = one(world().of(ProducerAsked)).producer
    script.say(failing(), "produce", first)
    played = world()
    assert [e.producer for e in played.of(ProducerSilent)] == [first]
    assert next(e.producer for e in played.of(ProducerAsked)) == first
    settled = played.outcome()
    assert settled.outcome == "accepted"
    assert settled.producer != first
    assert {e.record.producer for e in played.of(EvidenceShared)} == {settled.producer}


def test_a_reply_that_comes_after_the_deadline_is_silence(world, script):
    script.latency = 50.0
    played = world(settings={"limits": {"call_timeout": 10.0}})
    assert {c.failure for c in played.calls()} == {"timeout"}
    assert played.outcome().outcome == "unanswered"
    assert len(played.of(ProducerSilent)) == 3
    assert len({e.producer for e in played.of(ProducerSilent)}) == 3


def test_a_task_that_no_producer_answers_ends_unanswered_after_its_attempts(world, script):
    everyone_produces(script, failing())
    played = world(settings={"routing": {"attempts": 2}})
    assert len(played.of(ProducerSilent)) == 2
    assert played.outcome().outcome == "unanswered"
    assert played.outcome().value is None


# --- suspects ---


def suspicious(world, script, n=80, bad=2, **options):
    """A world in which one agent answers wrongly half of the time: suspect for long stretches."""
    count = [0]

    def line(_):
        count[0] += 1
        return WRONG if count[0] % 2 else RIGHT

    script.say(line, "produce", bad)
    return world(n, settings={"detector": {"exclude_at": 1e6}}, **options)


def test_a_suspect_always_gets_a_committee(world, script):
    played = suspicious(world, script)
    asked = [e for e in played.of(ProducerAsked) if e.state == "suspect"]
    assert len(asked) > 5
    for e in asked:
        look = one(played.of(FirstLook, e.task))
        assert look.decision == "committee"
        assert played.of(CommitteeMet, e.task)
    assert {one(played.of(FirstLook, e.task)).why for e in asked} == {"low", "suspect"}


def test_a_suspect_gets_a_first_look_too_and_that_is_its_score(world, script):
    played = suspicious(world, script)
    for e in [e for e in played.of(ProducerAsked) if e.state == "suspect"]:
        look, record = one(played.of(FirstLook, e.task)), one(played.of(EvidenceShared, e.task)).record
        assert record.score == pytest.approx(sum(look.scores) / len(look.scores))
        assert record.channel == "first_look"


def test_a_suspect_reviews_nothing_for_whoever_suspects_it(world, script):
    played = suspicious(world, script, 200)
    believes = {}
    checked = 0
    for event in played.log.events:
        if isinstance(event, StateChanged):
            believes[event.node, event.agent] = event.to
        elif isinstance(event, FirstLook) and event.reviewer >= 0:
            assert believes.get((event.node, event.reviewer), "healthy") in ("healthy", "probation")
            checked += believes.get((event.node, 2)) == "suspect"
        elif isinstance(event, CommitteeMet):
            assert all(believes.get((event.node, m), "healthy") != "suspect" for m in event.members)
    assert checked > 20


# --- limits ---


def test_a_task_that_has_used_up_its_calls_ends_with_its_best_answer(world, script):
    everyone_produces(script, WRONG)
    played = world(settings={"limits": {"max_calls": 2}})
    settled = played.outcome()
    assert (settled.outcome, settled.value, settled.calls) == ("budget_exhausted", "B", 2)
    assert one(played.of(EvidenceShared)).record.score == pytest.approx(0.05)


def test_tokens_are_a_limit_too(world, script):
    everyone_produces(script, WRONG)
    assert world(settings={"limits": {"max_tokens": 200}}).outcome().outcome == "budget_exhausted"


@pytest.mark.conformance("local")
def test_seconds_are_a_limit_too(world, script):
    everyone_produces(script, WRONG)
    assert world(settings={"limits": {"max_seconds": 1.5}}).outcome().outcome == "budget_exhausted"


def test_a_tasks_tokens_are_those_of_its_calls(world, script):
    script.wrong = {1, 4}
    script.say("?", "review", 3)
    played = world(80)
    for i in range(80):
        calls = [c for c in played.of(ModelCalled, f"t{i}") if not c.probing]
        assert played.outcome(f"t{i}").usage.total == sum(c.usage.total for c in calls)
        assert played.outcome(f"t{i}").calls == len(calls)


# --- the list of methods ---


def test_without_protection_the_producers_answer_is_used_as_it_is(world, script):
    everyone_produces(script, WRONG)
    played = world(10, method="unprotected")
    assert [c.purpose for c in played.calls()] == ["produce"] * 10
    assert {played.outcome(f"t{i}").outcome for i in range(10)} == {"direct"}
    assert not played.of(EvidenceShared)


def test_methods_see_the_same_producers_and_answers_for_the_same_tasks(world):
    """Common random numbers: a method's name enters no draw."""

    def seen(method):
        played = world(30, method=method)
        return [(e.task, e.producer, e.value) for e in played.of(Answered)]

    assert seen("meshheal") == seen("unprotected") == seen("meshheal-seed")


def test_the_plain_form_probes_nobody_in_the_background_and_has_its_probes_reviewed():
    seed = find("meshheal-seed").settings(Settings())
    assert seed.recovery.budget == 0
    assert seed.recovery.burst == 0
    assert seed.recovery.compare is False
    assert seed.detector.own_offset is False


@pytest.mark.parametrize("name", METHODS)
def test_every_method_brings_every_task_to_one_end(world, script, name):
    script.wrong = {0}
    played = world(60, method=name)
    assert all(played.outcome(f"t{i}").outcome for i in range(60))


def test_an_unknown_method_is_named_with_those_there_are():
    with pytest.raises(UsageError, match="unknown method 'magic'; there are: meshheal"):
        find("magic")
