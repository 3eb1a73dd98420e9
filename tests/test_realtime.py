"""Worlds in real time: the same decisions as under virtual time, hosts that exchange batches, live models and their faults."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from scripted import FAMILIES, RIGHT, Played, Script, Scripted, by_agent, make_world
from test_local import broken_once

from meshheal.agent import Agent
from meshheal.errors import NetworkError, ReplayDivergence, TraceError, UsageError
from meshheal.events import (
    AgentFailed,
    Crashed,
    ModelCalled,
    ProducerSilent,
    Restarted,
    StateChanged,
    Swapped,
    TaskArrived,
    TaskGraded,
    TaskSettled,
)
from meshheal.experiment import Arm, Experiment, prepare, world
from meshheal.network import Produce
from meshheal.prober import Prober
from meshheal.service import Service
from meshheal.trace.recorder import MemoryLog
from sim.faults import Crash, Partition, check, swap, timed_swap
from sim.links import LinkProfile
from sim.local import LocalRun
from sim.realtime import RealtimeRun
from sim.wire import HostLost
from sim.workloads import gym
from sim.world import Closed, Poisson
from topologies import complete

PROBING = {"recovery": {"budget": 0.5, "burst": 4}}


def played(made, **options):
    log = MemoryLog()
    run = RealtimeRun(made, log, **options)
    run.run()
    return log.events


def of(events, kind):
    return [e for e in events if isinstance(e, kind)]


# --- the same decisions ---


def staggered(tasks=190, agents=6, **fields):
    """The staggered experiment, shortened: two agents fall and come back."""
    experiment = Experiment(
        name="staggered",
        topology=complete(agents),
        workload=gym("math", tasks=tasks),
        healthy="synthetic/gpt-oss-120b",
        outside="synthetic/llama-3.1-8b",
        faults=(swap(0, "synthetic/llama-3.2-1b", 30, 90), swap(3, "synthetic/llama-3.2-1b", 60, 130)),
        methods=("meshheal",),
        **fields,
    )
    return prepare(experiment)


@pytest.fixture(scope="module")
def virtual():
    """The staggered experiment on the local runtime."""
    prepared, log = staggered(), MemoryLog()
    LocalRun(world(prepared, Arm("meshheal", 0)), log).run()
    assert {e.agent for e in of(log.events, StateChanged) if e.to == "excluded"} == {0, 3}
    return prepared, log.events


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_with_one_task_in_flight_every_agent_does_the_same_as_under_virtual_time(virtual, hosts):
    prepared, events = virtual
    assert by_agent(played(world(prepared, Arm("meshheal", 0)), hosts=hosts)) == by_agent(events)


def test_a_swap_of_scripted_models_is_found_in_the_same_words_and_order():
    def make():
        return make_world(120, faults=[swap(2, "foul-z", 30, 80)], settings=PROBING)

    local, real = Played(make()).log.events, played(make(), hosts=3)
    assert by_agent(local) == by_agent(real)
    assert of(real, StateChanged)


def test_with_nothing_but_forwarding_all_hosts_are_waited_for():
    """On a line of agents tasks are forwarded across hosts; their coordinators work on after the entry agent has its result."""

    def make():
        edges = [(a, a + 1) for a in range(11)]
        return make_world(
            40, size=12, edges=edges, abilities=[("algebra",)] * 6 + [("geometry",)] * 6, settings=PROBING
        )

    assert by_agent(Played(make()).log.events) == by_agent(played(make(), hosts=4))


def test_latency_of_simulated_models_is_told_and_not_waited_for():
    ticks = iter(range(10**9))
    script = Script()
    script.latency = 500.0
    events = played(make_world(10, script=script), clock=lambda: next(ticks) * 1e-6)
    assert {e.latency for e in of(events, ModelCalled)} == {500.0}
    assert events[-1].t < 1.0


# --- streams ---


@pytest.mark.parametrize("stream", [Closed(4), Poisson(400.0)])
@pytest.mark.parametrize("hosts", [1, 3])
def test_every_task_ends_once_with_many_in_flight(stream, hosts):
    log = MemoryLog()
    RealtimeRun(make_world(80, stream=stream, settings=PROBING), log, hosts=hosts).run()
    arrived = Counter(e.task for e in of(log.events, TaskArrived))
    assert arrived == Counter(e.task for e in of(log.events, TaskSettled))
    assert set(arrived.values()) == {1}
    assert not of(log.events, AgentFailed)


# --- between hosts ---


def doubling(transport):
    """A transport that delivers everything twice, the copy after three later deliveries (the last three once)."""
    late = []

    async def carry(to, data):
        await transport(to, data)
        late.append((to, data))
        if len(late) > 3:
            await transport(*late.pop(0))

    return carry


def test_what_arrives_twice_is_done_once():
    def make():
        return make_world(60, faults=[swap(2, "foul-z", 10, 50)], settings=PROBING)

    assert by_agent(Played(make()).log.events) == by_agent(played(make(), hosts=3, through=doubling))


def test_a_copy_of_a_request_under_way_waits_for_the_first_ones_reply():
    """The same bytes delivered three times at once: one call of the model, and one reply."""

    def tripling(transport):
        async def carry(to, data):
            await asyncio.gather(*[transport(to, data) for _ in range(3)])

        return carry

    events = played(make_world(30), hosts=6, through=tripling)
    calls = Counter((e.task, e.node, e.purpose, e.subject, e.n) for e in of(events, ModelCalled))
    assert set(calls.values()) == {1}
    assert Counter(e.task for e in of(events, TaskSettled)) == Counter({f"t{i}": 1 for i in range(30)})


def test_a_host_that_cannot_be_reached_is_worked_around():
    def cutting(transport):
        async def carry(to, data):
            if to == 1:
                raise HostLost("cut")
            await transport(to, data)

        return carry

    settings = {**PROBING, "limits": {"call_timeout": 0.1, "max_seconds": 5.0}, "evidence": {"ack_timeout": 0.05}}
    script = Script()
    script.latency = 0.01
    events = played(make_world(60, script=script, settings=settings), hosts=3, through=cutting)
    assert len(of(events, TaskSettled)) == len(of(events, TaskGraded)) == 60
    assert of(events, ProducerSilent)
    assert sum(e.correct is True for e in of(events, TaskGraded)) >= 40


def test_a_text_that_no_json_can_hold_crosses_hosts_unchanged():
    script = Script()
    for agent in range(6):
        script.say(f"Hmm \ud800. {RIGHT}", "produce", agent)
    events = played(make_world(12, script=script), hosts=6)
    assert {e.outcome for e in of(events, TaskSettled)} <= {"accepted", "committee", "takeover"}
    assert not of(events, AgentFailed)


# --- errors ---


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize(
    ("part", "method"), [(Service, "review"), (Service, "produce"), (Agent, "coordinate"), (Agent, "share")]
)
def test_an_exception_in_an_agent_is_in_the_log_and_ends_no_other_agents_work(monkeypatch, hosts, part, method):
    broken_once(monkeypatch, ZeroDivisionError("a bug"), part, method)
    events = played(make_world(12), hosts=hosts)
    (failed,) = of(events, AgentFailed)
    assert "ZeroDivisionError: a bug" in failed.error
    assert len(of(events, TaskSettled)) == 12
    assert sum(e.correct is True for e in of(events, TaskGraded)) >= 11


def test_an_exception_while_taking_in_evidence_is_that_agents_and_no_other_misses_the_evidence(monkeypatch):
    receive, calls = Agent.receive, [0]

    def breaks(self, record, cause):
        calls[0] += 1
        if calls[0] == 4:
            raise ZeroDivisionError("a bug")
        receive(self, record, cause)

    monkeypatch.setattr(Agent, "receive", breaks)
    events = played(make_world(12), hosts=3)
    assert len(of(events, AgentFailed)) == 1
    assert len(of(events, TaskSettled)) == 12


def test_an_exception_while_probing_does_not_end_the_run(monkeypatch):
    broken_once(monkeypatch, ZeroDivisionError("a bug"), Prober, "probe", at=2)
    events = played(make_world(60, settings={"recovery": {"budget": 0.5}}), hosts=2)
    assert len(of(events, AgentFailed)) == 1
    assert len(of(events, TaskSettled)) == 60


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("error", [TraceError("disk full"), ReplayDivergence("other call"), UsageError("not recorded")])
@pytest.mark.parametrize(("part", "method"), [(Service, "review"), (Service, "produce"), (Agent, "coordinate")])
def test_what_the_harness_suffers_ends_the_run(monkeypatch, error, part, method, hosts):
    broken_once(monkeypatch, error, part, method)
    log = MemoryLog()
    with pytest.raises(type(error), match=str(error)):
        RealtimeRun(make_world(12), log, hosts=hosts).run()
    assert not of(log.events, AgentFailed)
    assert len(of(log.events, TaskSettled)) < 4


@pytest.mark.parametrize(
    "fields",
    [{"links": LinkProfile(latency=0.1)}, {"faults": [Partition(((0, 1), (2, 3)), 0, 5)]}],
    ids=["links", "cut"],
)
def test_simulated_links_are_refused_in_one_line(fields):
    with pytest.raises(UsageError, match="run it with --runtime local"):
        RealtimeRun(make_world(1, **fields), MemoryLog())


# --- crashes of agents ---


def test_an_agent_that_crashes_comes_back_from_its_checkpoint():
    faults = [swap(4, "foul-z", 5, 80), Crash(1, 60, 65)]
    log = MemoryLog()
    run = RealtimeRun(make_world(90, faults=faults, settings=PROBING), log, hosts=2)
    run.run()
    assert len(of(log.events, TaskSettled)) == 90
    assert [e.agent for e in of(log.events, Crashed)] == [e.agent for e in of(log.events, Restarted)] == [1]
    restored = [e for e in of(log.events, StateChanged) if e.node == 1 and e.reason == "restored"]
    assert [(e.agent, e.to) for e in restored] == [(4, "excluded")]
    ids = [e.id for e in log.events]
    assert len(ids) == len(set(ids))


@pytest.mark.conformance
def test_an_agent_that_left_by_plan_comes_back_without_a_memory():
    faults = [swap(4, "foul-z", 5, 80), Crash(1, 60, 65, planned=True)]
    played = Played(make_world(90, faults=faults, settings=PROBING))
    assert [e.agent for e in played.of(Crashed)] == [e.agent for e in played.of(Restarted)] == [1]
    believed = [e for e in played.of(StateChanged) if e.node == 1 and e.agent == 4]
    assert any(e.to == "excluded" for e in believed)
    assert not [e for e in played.of(StateChanged) if e.reason == "restored"]


# --- live models ---


class Live(Scripted):
    """A model that answers when it is let, as one behind a server would."""

    nature = "live"
    closed = 0

    def __init__(self, name, script, gate=None):
        super().__init__(name, script)
        self.gate = gate

    async def complete(self, request):
        if self.gate is not None:
            await self.gate(self, request)
        return await super().complete(request)

    async def aclose(self):
        Live.closed += 1


def live_world(n, gate=None, **options):
    script = Script()
    made = make_world(n, script=script, **options)
    models = {}
    made.model = lambda name: models.setdefault(name, Live(name, script, gate))
    return made


def test_models_are_closed_at_the_end_of_a_run():
    Live.closed = 0
    made = live_world(3)
    played(made)
    assert Live.closed == len(made.model_names()) == 4


def test_a_call_under_way_keeps_its_model_and_the_next_one_has_the_new():
    """Task 0 is being answered by agent p while the swap of arrival 2 takes effect; its call ends on the old model."""
    begun, swapped = [], asyncio.Event()

    async def gate(model, request):
        begun.append((request.key.item, request.key.purpose, request.key.agent, model.name))
        if len(begun) == 1:
            async with asyncio.timeout(5):
                await swapped.wait()

    class Watched(MemoryLog):
        def write(self, event):
            super().write(event)
            if isinstance(event, Swapped):
                swapped.set()

    probe = live_world(1)
    played(probe)
    log = Watched()
    first = Played(make_world(1)).of(ModelCalled)[0].node
    RealtimeRun(live_world(12, gate, stream=Closed(2), faults=[swap(first, "foul-z", 2, 12)]), log).run()
    calls = [e for e in of(log.events, ModelCalled) if e.node == first]
    assert begun[0] == ("t0", "produce", first, f"{FAMILIES[first]}-x")
    assert [e.model for e in calls if e.task == "t0" and e.purpose == "produce"] == [f"{FAMILIES[first]}-x"]
    later = [name for item, _, agent, name in begun[1:] if agent == first]
    assert set(later) == {"foul-z"}
    assert len(of(log.events, TaskSettled)) == 12


def test_a_swap_by_the_clock_takes_effect_while_tasks_are_in_flight():
    async def gate(*_):
        await asyncio.sleep(0.005)  # so that the stream outlasts the swap on a fast machine

    faults = [timed_swap(2, "foul-z", 0.05, 0.2)]
    events = played(live_world(120, gate, stream=Closed(3), faults=faults))
    begins, ends = of(events, Swapped)
    assert (begins.to, begins.degraded, ends.to, ends.degraded) == ("foul-z", True, f"{FAMILIES[2]}-x", False)
    assert 0.05 <= begins.t < ends.t
    assert ends.t >= 0.2
    models = {e.model for e in of(events, ModelCalled) if e.node == 2}
    assert models == {"foul-z", f"{FAMILIES[2]}-x"}
    for call in of(events, ModelCalled):
        if call.node == 2 and call.model == "foul-z":
            assert begins.t <= call.t <= ends.t + 0.1
    assert len(of(events, TaskSettled)) == 120


@pytest.mark.conformance
def test_a_swap_by_the_clock_is_found_and_undone(runtime):
    span = (60.0, 200.0) if runtime == "local" else (0.05, 0.25)
    late = 60.0 if runtime == "ray" else 0.1  # there the clock runs while the hosts start
    made = make_world(400, faults=[timed_swap(2, "foul-z", *span)], settings=PROBING)
    played = Played(made)
    begins, ends = played.of(Swapped)
    assert span[0] - 0.1 <= begins.t <= span[0] + late
    assert ends.index >= begins.index
    assert len(played.of(TaskSettled)) == 400


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ([timed_swap(1, "m", 0, 5), timed_swap(1, "n", 4, 9)], "overlap"),
        ([timed_swap(1, "m", 0, 5), swap(1, "n", 4, 9)], "by arrivals and by the clock"),
        ([timed_swap(7, "m", 0, 5)], "the topology has agents 0 to 5"),
    ],
)
def test_swaps_by_the_clock_that_cannot_be_are_refused(faults, says):
    with pytest.raises(UsageError, match=says):
        check(faults, 6)


def test_a_swap_by_the_clock_needs_a_window():
    with pytest.raises(UsageError, match="at_seconds < back_seconds"):
        timed_swap(0, "m", 5, 5)


def test_a_model_server_that_stalls_does_not_stall_the_network():
    """Agent 2's server never answers: whoever asked it goes on after its timeout, and the others are not held up."""

    async def gate(_, request):
        if request.key.agent == 2:
            await asyncio.Event().wait()

    settings = {"limits": {"call_timeout": 0.2, "max_seconds": 20.0}}
    events = played(live_world(40, gate, stream=Closed(4), settings=settings), hosts=2)
    ended = of(events, TaskSettled)
    assert len(ended) == 40
    assert sum(e.correct is True for e in of(events, TaskGraded)) >= 36
    silent = of(events, ProducerSilent)
    assert {e.producer for e in silent} == {2}
    assert len(silent) < 20  # it is left alone for a while


def test_a_peer_that_does_not_reply_is_given_up_in_time_and_its_late_reply_is_nobodys():
    release = asyncio.Event()

    async def gate(*_):
        await release.wait()

    class Asking(RealtimeRun):
        async def _close(self):
            near, beside, *_ = [a for a in range(6) if self.where[a] == 0]
            far = next(a for a in range(6) if self.where[a] == 1)
            ask = self.hosts[0].agents[near].network.ask
            task = make_world(1).tasks[0]
            for to in (beside, far):
                with pytest.raises(NetworkError, match=f"agent {to} did not reply within 0.05"):
                    await ask(to, Produce(task), 0.05)
            release.set()
            assert (await ask(far, Produce(task), 5.0)).text == RIGHT
            await super()._close()

    Asking(live_world(0, gate), MemoryLog(), hosts=2).run()
