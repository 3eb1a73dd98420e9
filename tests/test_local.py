"""The world in one process: arrivals, faults, links, and that every task ends exactly once whatever happens."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import FAMILIES, RIGHT, WRONG, Played, Script, failing, make_world, started, verdict

from meshheal.agent import Agent
from meshheal.errors import NetworkError, ReplayDivergence, TraceError, UsageError
from meshheal.events import (
    AgentFailed,
    Crashed,
    EvidenceUndelivered,
    MessageLost,
    ModelCalled,
    ProducerAsked,
    Restarted,
    StateChanged,
    Swapped,
    TaskArrived,
    TaskGraded,
    TaskSettled,
)
from meshheal.prober import Prober
from meshheal.service import Service
from meshheal.trace.recorder import MemoryLog
from sim.faults import Crash, Partition, Swap, check, swap
from sim.links import LinkProfile, Links
from sim.local import LocalRun
from sim.world import Closed, Poisson

ROUGH = LinkProfile(latency=0.3, latency_sigma=0.8, loss=0.05, duplicate=0.1)
QUICK = {"limits": {"call_timeout": 20.0, "max_seconds": 200.0}, "evidence": {"ack_timeout": 3.0}}


def assert_ends_once(played, n):
    arrived = Counter(e.task for e in played.of(TaskArrived))
    assert arrived == Counter(e.task for e in played.of(TaskSettled))
    assert arrived == Counter(e.task for e in played.of(TaskGraded))
    assert set(arrived.values()) == {1}
    assert len(arrived) == n


# --- arrivals ---


@pytest.mark.conformance
def test_tasks_arrive_in_order_and_with_one_in_flight_the_next_waits_for_the_last():
    played = Played(make_world(20))
    open_tasks = 0
    for event in played.log.events:
        if isinstance(event, TaskArrived):
            open_tasks += 1
            assert open_tasks == 1
        elif isinstance(event, TaskGraded):
            open_tasks -= 1
    assert [e.index for e in played.of(TaskArrived)] == list(range(20))


@pytest.mark.conformance
def test_entry_agents_are_drawn_by_seed():
    entries = [[e.entry for e in Played(make_world(40, seed=s)).of(TaskArrived)] for s in (1, 1, 2)]
    assert entries[0] == entries[1] != entries[2]
    assert set(entries[0]) == set(range(6))


@pytest.mark.parametrize("stream", [Closed(4), Poisson(0.5), Poisson(5.0)])
def test_every_task_ends_once_with_many_in_flight_too(stream):
    played = Played(make_world(50, stream=stream, settings={"recovery": {"budget": 0.5}}))
    assert_ends_once(played, 50)
    times = {e.task: e.t for e in played.of(TaskArrived)}
    ends = {e.task: e.t for e in played.of(TaskSettled)}
    overlapping = sum(times[f"t{i + 1}"] < ends[f"t{i}"] for i in range(49))
    assert overlapping > 5


def test_many_in_flight_take_less_time_than_one():
    def duration(stream):
        return Played(make_world(40, stream=stream)).run.loop.now

    assert duration(Closed(4)) < 0.5 * duration(Closed(1))


def test_poisson_arrivals_have_the_rate_they_are_given():
    played = Played(make_world(400, stream=Poisson(0.5)))
    assert played.of(TaskArrived)[-1].t == pytest.approx(800, rel=0.2)


def test_a_run_is_the_same_every_time():
    def log(**options):
        return Played(make_world(40, settings=QUICK, **options)).log.event_hash

    assert log() == log()
    assert log(links=ROUGH) == log(links=ROUGH)
    assert log(links=ROUGH, seed=1) != log(links=ROUGH, seed=2)


# --- swaps ---


@pytest.mark.conformance
def test_a_swap_takes_effect_at_its_arrival_and_ends_at_its_return():
    played = Played(make_world(60, faults=[swap(2, "foul-z", 20, 40)]))
    order, now = {}, -1
    for event in played.log.events:
        if isinstance(event, TaskArrived):
            now = event.index
        elif isinstance(event, ModelCalled) and event.node == 2:
            order.setdefault(now, set()).add(event.model)
    assert order
    for index, models in order.items():
        assert models == ({"foul-z"} if 20 <= index < 40 else {f"{FAMILIES[2]}-x"})


@pytest.mark.conformance("local", "realtime")  # looks into its own process
@pytest.mark.parametrize("order", [1, -1])
def test_a_swap_that_begins_where_another_ends_holds_in_whatever_order_they_are_declared(order):
    faults = [swap(2, "foul-one", 10, 20), swap(2, "foul-two", 20, 30)][::order]
    played = Played(make_world(30, faults=faults))
    assert [(e.index, e.to) for e in played.of(Swapped)] == [
        (10, "foul-one"),
        (20, f"{FAMILIES[2]}-x"),
        (20, "foul-two"),
    ]
    assert played.run.agents[2].caller.binding.model("algebra", "produce").name == "foul-two"


def test_a_partition_that_begins_where_another_ends_is_not_healed_by_it():
    faults = [Partition(((0, 1, 2), (3, 4, 5)), 10, 20), Partition(((0, 1, 2, 3, 4), (5,)), 5, 10)]
    played = Played(make_world(21, faults=faults, settings=QUICK))
    lost, index = Counter(), -1
    for event in played.log.events:
        if isinstance(event, TaskArrived):
            index = event.index
        elif isinstance(event, MessageLost):
            lost[index] += 1
    assert any(lost[i] for i in range(10, 20))


@pytest.mark.conformance
def test_both_ends_of_a_swap_are_in_the_log():
    played = Played(make_world(60, faults=[swap(2, "foul-z", 20, 40)]))
    assert [(e.agent, e.to, e.index, e.degraded) for e in played.of(Swapped)] == [
        (2, "foul-z", 20, True),
        (2, f"{FAMILIES[2]}-x", 40, False),
    ]


@pytest.mark.conformance
def test_a_swap_in_some_roles_leaves_the_others_alone():
    played = Played(make_world(60, faults=[swap(2, "foul-z", 0, 60, roles=["review"])]))
    by_purpose = {c.purpose: set() for c in played.calls() if c.node == 2}
    for call in played.calls():
        if call.node == 2:
            by_purpose[call.purpose].add(call.model)
    assert by_purpose["review"] == {"foul-z"}
    assert by_purpose["produce"] == {f"{FAMILIES[2]}-x"}


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_the_family_an_agent_declares_does_not_change_with_a_swap():
    played = Played(make_world(60, faults=[swap(2, "foul-z", 0, 60)]))
    assert played.run.agents[0].neighbours[2].family == FAMILIES[2]


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_work_outside_ones_abilities_runs_on_the_weaker_model_swapped_or_not():
    played = Played(make_world(1, faults=[swap(2, "foul-z", 0, 1)]))
    caller = played.run.agents[2].caller
    outside = next(a for a in ("algebra", "counting", "geometry") if a not in played.run.world.abilities[2])
    assert caller.binding.model(outside, "produce").name == "weak-y"
    assert caller.binding.model(outside, "review").name == "weak-y"
    assert caller.binding.model("any", "produce").name == "foul-z"


@pytest.mark.conformance
def test_a_placebo_changes_what_is_logged_of_the_model_and_no_decision():
    plain = Played(make_world(60))
    placebo = Played(make_world(60, faults=[swap(2, f"{FAMILIES[2]}-x", 20, 40, degraded=False)]))
    drop = (Swapped, TaskArrived, TaskGraded)  # the harness' own events, whose numbers a swap shifts
    decisions = [
        [(type(e).__name__, e.node, e.task) for e in p.log.events if not isinstance(e, drop)] for p in (plain, placebo)
    ]
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ([Swap(6, "m", 0, 5)], "the topology has agents 0 to 5"),
        ([Swap(-1, "m", 0, 5)], "the topology has agents 0 to 5"),
        ([Swap(1, "m", 0, 5), Swap(1, "n", 4, 9)], "overlap"),
        ([Partition(((0, 7),), 0, 5)], "agent 7"),
        ([Crash(0, 5, 5)], "0 <= at < back"),
        ([Partition(((0, 1),), 5, 4)], "0 <= at < back"),
    ],
)
def test_faults_that_cannot_be_are_refused(faults, says):
    with pytest.raises(UsageError, match=says):
        check(faults, 6)


def test_swaps_that_follow_one_another_are_no_overlap():
    check([Swap(1, "m", 0, 5), Swap(1, "n", 5, 9), Swap(2, "m", 0, 9)], 6)


@pytest.mark.parametrize("window", [(5, 5), (5, 4), (-1, 4)])
def test_a_swap_needs_a_window(window):
    with pytest.raises(UsageError, match="at < back"):
        swap(0, "m", *window)


def test_a_swap_in_an_unknown_role_is_refused():
    with pytest.raises(UsageError, match="unknown role 'cook'"):
        swap(0, "m", 0, 5, roles=["cook"])


# --- links ---


@given(st.integers(0, 2**32), st.floats(0, 1), st.floats(0, 1))
def test_a_message_is_lost_or_arrives_once_or_twice_and_never_before_it_was_sent(seed, loss, duplicate):
    links = Links(LinkProfile(latency=0.5, latency_sigma=1.0, loss=loss, duplicate=duplicate), seed)
    for _ in range(20):
        fate = links.fate(0, 1)
        assert fate == "loss" or (1 <= len(fate) <= 2 and all(d >= 0 for d in fate))


def test_losses_and_copies_have_the_rates_they_are_given():
    links = Links(LinkProfile(latency=0.5, loss=0.2, duplicate=0.3), 1)
    fates = [links.fate(0, 1) for _ in range(5000)]
    lost = sum(f == "loss" for f in fates)
    assert lost / 5000 == pytest.approx(0.2, abs=0.02)
    assert sum(len(f) == 2 for f in fates if f != "loss") / (5000 - lost) == pytest.approx(0.3, abs=0.03)


def test_a_partition_cuts_between_its_groups_only_and_heals():
    links = Links(LinkProfile(), 1)
    links.partition(((0, 1), (2, 3)))
    assert links.fate(0, 2) == links.fate(3, 1) == "partition"
    assert links.fate(0, 1) == links.fate(2, 3) == (0.0,)
    assert links.fate(5, 0) == (0.0,)
    assert links.fate(5, 2) == "partition"
    links.partition(None)
    assert links.fate(0, 2) == (0.0,)


def test_every_task_ends_once_over_links_that_lose_and_copy_messages():
    played = Played(make_world(80, links=ROUGH, settings=QUICK, seed=3))
    assert_ends_once(played, 80)
    assert played.of(MessageLost)
    assert not played.of(AgentFailed)
    right = sum(e.correct is True for e in played.of(TaskGraded))
    assert right >= 60


def test_evidence_that_got_lost_is_sent_again_until_it_is_acknowledged():
    played = Played(make_world(60, links=LinkProfile(latency=0.1, loss=0.15), settings=QUICK))
    assert [e for e in played.of(MessageLost) if e.what == "Tell"]
    assert not played.of(EvidenceUndelivered)


def test_evidence_for_a_neighbour_that_never_answers_is_given_up_and_said_so():
    played = Played(
        make_world(
            40,
            faults=[Partition(((0, 1, 2, 3, 4), (5,)), 0, 40)],
            settings={**QUICK, "evidence": {"ack_timeout": 1.0, "attempts": 2}},
        )
    )
    given_up = played.of(EvidenceUndelivered)
    assert given_up
    assert {e.to for e in given_up if e.node != 5} == {5}


def test_a_partitioned_agent_is_routed_around_and_comes_back():
    played = Played(make_world(90, faults=[Partition(((0, 1, 2, 3, 4), (5,)), 20, 50)], settings=QUICK))
    assert_ends_once(played, 90)
    index, used = -1, Counter()
    for event in played.log.events:
        if isinstance(event, TaskArrived):
            index = event.index
        elif isinstance(event, ProducerAsked) and event.node != 5 and event.producer == 5:
            used[20 <= index < 50] += 1
    assert used[True] < used[False]
    inside = [e.correct for e in played.of(TaskGraded)[20:50]]
    assert sum(c is True for c in inside) >= 24


# --- crashes ---


def crashing(n=60, agent=2, at=20, back=35, after=0.5, **options):
    return make_world(n, faults=[Crash(agent, at, back, after)], settings=QUICK, **options)


def test_every_task_ends_once_though_agents_crash_and_restart():
    played = Played(crashing())
    assert_ends_once(played, 60)
    assert [e.agent for e in played.of(Crashed)] == [e.agent for e in played.of(Restarted)] == [2]
    assert not played.of(AgentFailed)


def test_a_task_that_enters_at_an_agent_that_is_down_fails_and_the_harness_says_so():
    played = Played(crashing())
    index, failed = -1, 0
    for event in played.log.events:
        if isinstance(event, TaskArrived):
            index, entry = event.index, event.entry
        elif isinstance(event, TaskSettled) and entry == 2 and 21 <= index < 35:
            assert event.outcome == "failed"
            assert event.node == -1
            failed += 1
    assert failed


def test_a_crashed_agent_says_nothing_until_it_restarts_and_its_events_stay_unique():
    played = Played(crashing())
    down = False
    for event in played.log.events:
        down = True if isinstance(event, Crashed) else False if isinstance(event, Restarted) else down
        assert not (down and event.node == 2)
    ids = [e.id for e in played.log.events]
    assert len(ids) == len(set(ids))
    assert {e.incarnation for e in played.log.events if e.node == 2} == {0, 1}


def test_a_restarted_agent_works_again():
    played = Played(crashing(150))
    index, produced = -1, Counter()
    for event in played.log.events:
        if isinstance(event, TaskArrived):
            index = event.index
        elif isinstance(event, ModelCalled) and event.node == 2 and event.purpose == "produce":
            produced["before" if index < 20 else "down" if index < 35 else "after"] += 1
    assert produced["after"] > produced["before"] / 2
    assert produced["down"] <= 1  # what it was about at arrival 20


def test_a_restarted_agent_has_the_beliefs_of_its_last_checkpoint():
    world = make_world(
        120, faults=[swap(4, "foul-z", 10, 120), Crash(1, 80, 85)], settings={**QUICK, "recovery": {"burst": 4}}
    )
    played = Played(world)
    excluded = [e for e in played.of(StateChanged) if e.node == 1 and e.agent == 4 and e.to == "excluded"]
    assert excluded
    assert played.run.agents[1].beliefs.state(4) == "excluded"
    first = [e for e in excluded if e.incarnation == 0]
    assert first[0].t < played.of(Crashed)[0].t


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 5),
    st.integers(0, 25),
    st.integers(1, 15),
    st.floats(0, 8),
    st.sampled_from([LinkProfile(), ROUGH, LinkProfile(latency=1.0, loss=0.2)]),
    st.sampled_from([Closed(1), Closed(3), Poisson(0.3)]),
)
def test_every_task_ends_exactly_once_whatever_crashes_when(seed, agent, at, length, after, links, stream):
    faults = [Crash(agent, at, at + length, after), Crash((agent + 1) % 6, at + 2, at + length + 3, after / 2)]
    played = Played(make_world(40, faults=faults, links=links, stream=stream, settings=QUICK, seed=seed))
    assert_ends_once(played, 40)
    ids = [e.id for e in played.log.events]
    assert len(ids) == len(set(ids))
    assert not played.of(AgentFailed)


# --- errors ---


def broken_once(monkeypatch, error, cls, name, at=3):
    original, calls = getattr(cls, name), [0]

    async def breaks(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] == at:
            raise error
        return await original(self, *args, **kwargs)

    monkeypatch.setattr(cls, name, breaks)
    return calls


MODES = pytest.mark.parametrize("links", [LinkProfile(), LinkProfile(latency=0.1)], ids=["direct", "carried"])


@MODES
@pytest.mark.parametrize(
    ("part", "method"), [(Service, "review"), (Service, "produce"), (Agent, "coordinate"), (Agent, "share")]
)
def test_an_exception_in_an_agent_is_in_the_log_and_does_not_end_the_run_of_the_others(
    monkeypatch, links, part, method
):
    broken_once(monkeypatch, ZeroDivisionError("a bug"), part, method)
    played = Played(make_world(12, links=links, settings=QUICK))
    assert_ends_once(played, 12)
    (failed,) = played.of(AgentFailed)
    assert "ZeroDivisionError: a bug" in failed.error
    assert sum(e.correct is True for e in played.of(TaskGraded)) >= 11


@MODES
def test_an_exception_while_probing_does_not_end_the_run_either(monkeypatch, links):
    broken_once(monkeypatch, ZeroDivisionError("a bug"), Prober, "probe", at=2)
    script = Script()
    script.say(WRONG, "produce", 2)
    script.say(WRONG, "probe", 2)
    played = Played(
        make_world(60, script=script, links=links, settings={**QUICK, "recovery": {"burst": 4, "budget": 0.0}})
    )
    assert_ends_once(played, 60)
    assert len(played.of(AgentFailed)) == 1


@pytest.mark.conformance("local", "realtime")  # looks into its own process
def test_a_task_that_its_agent_could_not_finish_fails_visibly(monkeypatch):
    broken_once(monkeypatch, ZeroDivisionError("a bug"), Agent, "coordinate", at=1)
    played = Played(make_world(3))
    assert played.outcome("t0").outcome == "failed"
    assert played.outcome("t0").node == -1
    assert played.outcome("t1").outcome == "accepted"


@MODES
@pytest.mark.parametrize("error", [TraceError("disk full"), ReplayDivergence("other call"), UsageError("not recorded")])
@pytest.mark.parametrize(("part", "method"), [(Service, "review"), (Service, "produce"), (Agent, "coordinate")])
def test_what_the_harness_suffers_ends_the_run_and_is_not_blamed_on_an_agent(monkeypatch, links, error, part, method):
    broken_once(monkeypatch, error, part, method)
    log = MemoryLog()
    run = LocalRun(make_world(12, links=links, settings=QUICK), log)
    with pytest.raises(type(error), match=str(error)):
        run.run()
    assert not [e for e in log.events if isinstance(e, AgentFailed)]
    assert len([e for e in log.events if isinstance(e, TaskSettled)]) < 4


@pytest.mark.conformance
def test_a_log_that_cannot_be_written_any_more_ends_the_run_and_loses_no_event_quietly():
    class Full(MemoryLog):
        def write(self, event):
            if len(self.events) >= 60:
                raise TraceError("no space left")
            super().write(event)

    log = Full()
    with pytest.raises(TraceError, match="no space left"):
        started(make_world(50), log).run()
    assert len(log.events) == 60


@pytest.mark.conformance
def test_a_model_that_fails_now_and_then_is_something_agents_suffer():
    script, count = Script(), [0]

    def now_and_then(request):
        count[0] += 1
        if count[0] % 3 == 0:
            raise failing("overloaded")
        return RIGHT if request.key.purpose in ("produce", "takeover", "probe") else verdict(0.9)

    for agent in range(6):
        for purpose in ("produce", "review", "deliberate", "takeover", "probe"):
            script.say(now_and_then, purpose, agent)
    played = Played(make_world(40, script=script))
    assert_ends_once(played, 40)
    assert not played.of(AgentFailed)
    assert {c.failure for c in played.calls()} == {"", "overloaded"}


# --- traffic ---


@pytest.mark.conformance
def test_evidence_costs_a_message_to_each_neighbour_of_the_producer():
    played = Played(make_world(30))
    shared = [e for e in played.log.events if type(e).__name__ == "EvidenceShared"]
    assert played.run.traffic.evidence == sum(len([a for a in e.to if a != e.node]) for e in shared)


def test_asking_a_peer_that_is_not_there_fails_in_time_and_not_before():
    played = Played(make_world(1, links=LinkProfile(latency=0.1)))
    run = played.run
    run._up[3] = False
    before = run.loop.now

    async def ask():
        with pytest.raises(NetworkError, match="agent 3 did not reply within 7"):
            await run.agents[0].network.ask(3, object(), 7.0)

    run.loop.run(ask())
    assert run.loop.now - before == pytest.approx(7.0)
