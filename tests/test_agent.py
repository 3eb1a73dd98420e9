"""An agent among its peers: evidence, exclusion and return, probes, notices, and going on from a checkpoint."""

from __future__ import annotations

import pickle
from collections import Counter
from heapq import heapify

import pytest
from scripted import FAMILIES, Played, Script, by_agent, failing, make_world

from meshheal.events import (
    EvidenceShared,
    Probed,
    ProducerAsked,
    ReferenceBanked,
    StateChanged,
    TaskSettled,
)
from meshheal.network import Advert, Forward, Notice, Tell
from meshheal.types import ReviewRecord
from sim.faults import swap
from sim.local import LocalRun
from sim.workloads import AnswerSheet

pytestmark = pytest.mark.conformance

PROBING = {"budget": 0.5, "burst": 4}


def degraded(n=200, agent=2, at=60, back=120, **options):
    """Agent 2 runs on a bad model for a while."""
    settings = {"recovery": PROBING, **options.pop("settings", {})}
    return make_world(n, settings=settings, faults=[swap(agent=agent, to="foul-z", at=at, back=back)], **options)


@pytest.fixture(scope="module")
def healed(runtime):  # noqa: ARG001 (made anew for each)
    """A run in which an agent falls, is excluded, recovers and comes back."""
    return Played(degraded())


# --- evidence ---


def test_a_record_goes_to_each_neighbour_of_the_producer_and_never_to_the_producer(healed):
    for shared in healed.of(EvidenceShared):
        assert sorted(shared.to) == sorted(set(range(6)) - {shared.record.producer})


def test_records_carry_the_coordinator_the_reviewers_and_how_the_score_was_obtained(healed):
    for shared in healed.of(EvidenceShared):
        record = shared.record
        assert record.coordinator == shared.node
        assert record.producer not in record.reviewers
        assert 0.0 <= record.score <= 1.0
    assert {e.record.channel for e in healed.of(EvidenceShared)} == {"first_look", "probe"}


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_a_record_that_arrives_twice_counts_once():
    played = Played(make_world())
    agent = played.run.agents[0]
    record = ReviewRecord(
        id="9.9.9",
        task="t",
        producer=1,
        ability="algebra",
        kind="",
        channel="first_look",
        score=0.3,
        reviewers=(2,),
        coordinator=3,
        time=0.0,
    )
    for other in (2, 3, 4, 5):
        for i in range(20):
            agent.beliefs.observe(
                ReviewRecord(
                    **{
                        **{f: getattr(record, f) for f in record.__struct_fields__},
                        "producer": other,
                        "id": f"{other}.{i}",
                        "score": 0.9,
                    }
                )
            )
    played.serve(agent.id, 3, Tell((record, record)))
    once = agent.beliefs.evidence(1)
    played.serve(agent.id, 4, Tell((record,)))
    assert agent.beliefs.evidence(1) == once > 1.0


def test_an_agent_does_not_judge_itself():
    played = Played(degraded())
    assert not [e for e in played.of(StateChanged) if e.node == e.agent]


def test_each_neighbour_judges_for_itself_and_all_come_to_the_same_from_the_same_records(healed):
    excluded = Counter(e.node for e in healed.of(StateChanged) if e.agent == 2 and e.to == "excluded")
    assert set(excluded) == {0, 1, 3, 4, 5}


def test_ids_of_records_and_events_are_unique(healed):
    ids = [e.id for e in healed.log.events]
    assert len(ids) == len(set(ids))
    records = [e.record.id for e in healed.of(EvidenceShared)]
    assert len(records) == len(set(records))


def test_what_an_event_names_as_its_causes_happened_before_it(healed):
    seen = set()
    for event in healed.log.events:
        assert set(event.causes) <= seen, event
        seen.add(event.id)


# --- exclusion ---


def test_an_excluded_agent_gets_no_ordinary_work_not_even_from_itself_as_coordinator(healed):
    """Once most neighbours exclude it and have told it so, it spares its own tasks its own work."""
    excluders, own = set(), 0
    for event in healed.log.events:
        if isinstance(event, StateChanged) and event.agent == 2 and not event.ability:
            (excluders.add if event.to == "excluded" else excluders.discard)(event.node)
        elif isinstance(event, ProducerAsked):
            if event.node in excluders:
                assert event.producer != 2
            if event.node == 2 and len(excluders) == 5:
                assert event.producer != 2
                own += 1
    assert own > 3


def test_an_excluded_agent_still_coordinates_its_own_tasks_and_they_are_right(healed):
    during = set()
    excluders = set()
    for event in healed.log.events:
        if isinstance(event, StateChanged) and event.agent == 2 and not event.ability:
            (excluders.add if event.to == "excluded" else excluders.discard)(event.node)
        elif isinstance(event, TaskSettled) and event.node == 2 and len(excluders) == 5:
            during.add(event.value)
    assert during == {"A"}


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_exclusion_and_return_are_told_to_the_agent_they_concern():
    played = Played(make_world())
    agent = played.run.agents[2]
    for by in (0, 1, 3):
        played.serve(2, by, Notice(True))
    assert agent.beliefs.shunned
    played.serve(2, 3, Notice(False))
    assert not agent.beliefs.shunned


def test_one_that_recovers_is_back_healthy_with_all_neighbours_and_works_again(healed):
    last = {}
    for event in healed.of(StateChanged):
        if event.agent == 2 and not event.ability:
            last[event.node] = event.to
    assert set(last.values()) == {"healthy"}
    assert [e for e in healed.of(ProducerAsked)[-40:] if e.producer == 2]


def test_nobody_else_is_excluded(healed):
    assert {e.agent for e in healed.of(StateChanged) if e.to == "excluded"} == {2}


# --- probes ---


def test_a_probe_never_goes_to_an_agent_that_helped_to_settle_its_reference(healed):
    repeated = 0
    seen = {}
    for event in healed.log.events:
        kind = type(event).__name__
        if kind == "ModelCalled" and not event.probing:
            seen.setdefault(event.task, set()).add(event.node)
        elif kind == "Probed":
            repeated += event.agent in seen.get(event.reference, set())
    assert healed.of(Probed)
    assert repeated == 0


def test_with_three_families_in_good_standing_a_reference_never_comes_from_the_probed_agents_own():
    played = Played(make_world(150, settings={"recovery": {"budget": 1.0}}))
    banked = {(e.node, e.task): e.families for e in played.of(ReferenceBanked)}
    assert len(played.of(Probed)) > 100
    for probed in played.of(Probed):
        assert FAMILIES[probed.agent] not in banked[probed.node, probed.reference]
        assert len(banked[probed.node, probed.reference]) >= 2
    assert {e.record.family for e in played.of(EvidenceShared) if e.record.channel == "probe"} == {"other"}


def test_a_probe_is_in_an_ability_that_the_agent_holds(healed):
    held = healed.run.world.abilities
    by_id = {t.id: t for t in healed.run.world.tasks}
    for probed in healed.of(Probed):
        assert by_id[probed.reference].ability in held[probed.agent]


def test_a_probe_costs_one_call_and_no_reviewer_where_answers_compare(healed):
    asked = Counter((c.task, c.node) for c in healed.calls("probe"))
    for probed in healed.of(Probed):
        assert asked[probed.reference, probed.agent] >= 1
    assert not [c for c in healed.calls("review") if c.probing]


def test_a_probe_cannot_be_told_from_work(healed):
    """The probed agent's prompt is the one that producers got."""
    for call in healed.calls("probe"):
        produced = healed.calls("produce", call.task)
        assert produced
        assert call.prompt_hash == produced[0].prompt_hash


def test_an_excluded_agent_is_probed_by_one_neighbour_at_a_time(healed):
    arrivals, counts = 0, Counter()
    for event in healed.log.events:
        if type(event).__name__ == "TaskArrived":
            arrivals += 1
        elif isinstance(event, Probed) and event.motive == "recovery":
            counts[arrivals] += 1
    assert counts
    assert max(counts.values()) == 1


def test_recovery_probes_share_the_duty(healed):
    probers = {e.node for e in healed.of(Probed) if e.motive == "recovery"}
    assert len(probers) >= 2


def test_suspicion_brings_a_burst_of_probes_no_longer_than_allowed(healed):
    arrivals, counts = 0, Counter()
    for event in healed.log.events:
        if type(event).__name__ == "TaskArrived":
            arrivals += 1
        elif isinstance(event, Probed) and event.motive == "burst":
            counts[arrivals, event.agent] += 1
    assert counts
    assert max(counts.values()) <= PROBING["burst"]


def test_without_bursts_and_background_nobody_healthy_is_probed():
    played = Played(degraded(settings={"recovery": {"budget": 0.0, "burst": 0}}))
    assert {e.motive for e in played.of(Probed)} <= {"recovery"}


def test_a_probe_that_is_not_answered_is_no_score():
    script = Script()
    for agent in range(6):
        script.say(failing(), "probe", agent)
    played = Played(make_world(60, script=script, settings={"recovery": PROBING}))
    assert played.of(Probed)
    assert all(e.unanswered and e.score is None for e in played.of(Probed))
    assert not [e for e in played.of(EvidenceShared) if e.record.channel == "probe"]


def test_probes_of_the_plain_form_are_reviewed():
    played = Played(degraded(method="meshheal-seed"))
    probes = [e for e in played.of(Probed) if e.score is not None]
    assert probes
    assert not any(e.compared for e in probes)
    reviewed = [e.record for e in played.of(EvidenceShared) if e.record.channel == "probe" and e.record.reviewers]
    assert reviewed
    assert {r.family for r in reviewed} == {"reviewed"}


# --- the whole agent ---


def test_what_is_right_plays_no_part_in_what_agents_do():
    """Other gold answers, the same run: only the grades differ."""

    def log(gold):
        world = degraded(80)
        world.sheet = AnswerSheet({t.id: gold for t in world.tasks})
        events = [e for e in Played(world).log.events if type(e).__name__ != "TaskGraded"]
        return by_agent(events)

    assert log("A") == log("B")


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_a_task_handed_over_again_gives_the_settled_result_and_no_new_work():
    played = Played(make_world())
    settled, task = played.outcome(), played.run.world.tasks[0]
    agent = played.run.agents[settled.node]
    calls = len(played.calls())
    again = played.serve(agent.id, 4, Forward(task, (4,), 3))
    assert again.value == settled.value
    assert len(played.calls()) == calls


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_an_advert_that_is_news_is_passed_on_and_an_old_one_is_not():
    played = Played(make_world(1, size=7, edges=[(a, a + 1) for a in range(6)], abilities=[("geometry",)] * 7))
    agent = played.run.agents[3]
    before = agent._advert
    played.serve(agent.id, 2, Advert(10**6, (("algebra", 1),)))
    assert agent._advert == before + 1
    played.serve(agent.id, 2, Advert(10**6 - 1, (("algebra", 0),)))
    assert agent._advert == before + 1


@pytest.mark.conformance("local")
@pytest.mark.parametrize("cut", [30, 66, 75, 100, 130])
def test_agents_go_on_from_their_states_as_if_nothing_had_happened(cut, monkeypatch):
    """All agents are built anew and restored at some arrival: the rest of the run is the same."""
    straight = Played(degraded())
    advance = LocalRun._advance

    async def replacing(run, index):
        if index == cut:
            for agent in range(run.world.size):
                _replace(run, agent)
        await advance(run, index)

    monkeypatch.setattr(LocalRun, "_advance", replacing)
    assert _told(Played(degraded())) == _told(straight)


def _replace(run, agent):
    old, new = run.agents[agent], run._build(agent)
    new.caller.binding = old.caller.binding
    new.journal.seq = old.journal.seq
    run._wakes = [w for w in run._wakes if w[1] != agent]
    heapify(run._wakes)
    run.agents[agent] = new
    new.restore(pickle.loads(pickle.dumps(old.state())))


def _told(played):
    """What happened, without the numbers of events, which a restart's own events shift."""
    numbering = ("seq", "causes", "inputs")
    return [
        (type(e).__name__, [getattr(e, f) for f in e.__struct_fields__ if f not in numbering])
        for e in played.log.events
        if getattr(e, "reason", "") != "restored"
    ]
