"""What passes between hosts: messages as bytes, bounded queues, clocks, one log out of many; who lives where."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from meshheal import network
from meshheal.errors import UsageError
from meshheal.events import StateChanged, TaskArrived, TaskSettled
from meshheal.network import Advert, Notice, Produced, Reviewed, Settled, Tell
from meshheal.trace.recorder import MemoryLog
from meshheal.types import ReviewRecord, Score, Unscored, Usage
from sim.assignment import assign_hosts, crossing
from sim.clock import Clock
from sim.runtimes import Placement, choose
from sim.shipping import Merger, ShippingLog, read
from sim.wire import Batch, HostLost, Inbox, Missing, Outbox, Parcel, Refused, decode, encode
from topologies import cells, complete, regular, saved

# --- bytes ---

texts = st.text(st.characters(), max_size=40)
usage = st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6))
event_id = st.tuples(st.integers(-1, 600), st.integers(0, 9), st.integers(0, 10**9))
record = st.builds(
    ReviewRecord,
    id=texts, task=texts, producer=st.integers(0, 600), ability=texts, kind=texts,
    channel=st.sampled_from(["first_look", "probe"]), score=st.floats(0, 1), reviewers=st.just((1, 2)),
    coordinator=st.integers(0, 600), time=st.floats(0, 1e9), votes=st.just(((1, 0.5),)),
)  # fmt: skip
bodies = st.one_of(
    st.builds(Produced, texts, st.just("stop"), usage, event_id),
    st.builds(
        Reviewed, st.tuples(st.builds(Score, st.floats(0, 1), texts), st.builds(Unscored, texts)), usage, event_id
    ),
    st.builds(Tell, st.tuples(record), event_id),
    st.builds(Settled, st.just("accepted"), st.none(), st.integers(0, 9), texts, usage),
    st.builds(Advert, st.integers(0, 99), st.just((("algebra", 1),))),
    st.booleans(),
    st.builds(Refused, texts),
    st.just(Missing((3, 4))),
)


@given(st.lists(bodies, max_size=5), st.floats(0, 1e9))
def test_a_batch_comes_back_from_its_bytes_as_it_was(some, t):
    batch = Batch(1, 2, t, [Parcel(i, i, (i + 1,), body) for i, body in enumerate(some)])
    assert decode(encode(batch)) == batch


def test_lone_surrogates_and_odd_floats_come_back_too():
    for text in ("\ud800 x", "\x00", "é\U0001f600"):
        batch = Batch(0, 0, 0.0, [Parcel(1, 2, (), Refused(text))])
        assert decode(encode(batch)) == batch


def test_every_message_of_the_protocol_can_cross_hosts():
    """A message class that is left out of `Request` and `Reply` would work in one process and fail between two."""
    tagged = [
        cls for _, cls in inspect.getmembers(network, inspect.isclass)
        if issubclass(cls, Struct) and cls.__module__ == network.__name__
    ]  # fmt: skip
    known = {*network.Request.__args__, *network.Reply.__args__}
    assert set(tagged) <= known
    assert len(tagged) >= 11


# --- queues ---


def run(main):
    return asyncio.run(main)


def test_what_gathers_while_a_batch_is_under_way_goes_as_one():
    async def main():
        sent, gate = [], asyncio.Event()

        async def send(parcels):
            sent.append(len(parcels))
            await gate.wait()

        box = Outbox(send, lambda _: None, window=1)
        for i in range(50):
            box.post(Parcel(i, 0, (1,), Notice(True)))
            await asyncio.sleep(0)
        gate.set()
        while sum(sent) < 50:
            await asyncio.sleep(0)
        return sent

    sent = run(main())
    assert len(sent) <= 3
    assert sum(sent) == 50


def test_a_full_queue_makes_requests_wait_and_lets_replies_pass():
    async def main():
        gate, sent = asyncio.Event(), []

        async def send(parcels):
            await gate.wait()
            sent.extend(p.id for p in parcels)

        box = Outbox(send, lambda _: None, limit=3, window=1)
        box.post(Parcel(0, 0, (1,), Notice(True)))
        await asyncio.sleep(0)  # under way
        await asyncio.sleep(0)
        puts = [asyncio.create_task(box.put(Parcel(i, 0, (1,), Notice(True)))) for i in range(1, 8)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert sum(p.done() for p in puts) == 3
        assert len(box) == 3
        box.post(Parcel(99, 0, (), True))
        assert len(box) == 4
        gate.set()
        await asyncio.gather(*puts)
        while len(sent) < 9:
            await asyncio.sleep(0)
        return sent

    assert sorted(run(main())) == [0, 1, 2, 3, 4, 5, 6, 7, 99]


def test_parcels_for_a_lost_host_are_told_and_the_next_ones_are_sent():
    async def main():
        lost, sent = [], []

        async def send(parcels):
            if not lost:
                raise HostLost("gone")
            sent.extend(parcels)

        box = Outbox(send, lost.extend)
        box.post(Parcel(1, 0, (1,), Notice(True)))
        while not lost:
            await asyncio.sleep(0)
        box.post(Parcel(2, 0, (1,), Notice(True)))
        while not sent:
            await asyncio.sleep(0)
        return [p.id for p in lost], [p.id for p in sent]

    assert run(main()) == ([1], [2])


def test_a_request_is_taken_in_once_and_a_copy_gets_the_reply_that_was_given():
    inbox = Inbox(limit=3)
    assert inbox.first_time((1, 0, 7))
    assert not inbox.first_time((1, 0, 7))
    assert inbox.reply((1, 0, 7)) is None
    inbox.replied((1, 0, 7), True)
    assert inbox.reply((1, 0, 7)) is True
    assert inbox.first_time((1, 1, 7))  # another incarnation of the host: another request


# --- clocks ---


@given(
    st.lists(st.one_of(st.floats(0, 100), st.none()), max_size=50), st.lists(st.floats(-1, 1), min_size=60, max_size=60)
)
def test_a_clock_never_goes_back_nor_falls_behind_what_it_heard(heard, steps):
    """None reads the clock, a number is heard; the process' own clock may stand still or step back."""
    own = iter([0.0, *[abs(s) if s > 0 else 0.0 for s in steps]])
    clock = Clock(0.0, wall=lambda: 0.0, monotonic=lambda: next(own))
    last = -1.0
    for reading in heard:
        if reading is None:
            now = clock.now()
            assert now > last
            last = now
        else:
            clock.hear(reading)
            last = max(last, reading)


# --- one log ---


def arrived(task, t, node=-1, seq=1):
    return TaskArrived(node=node, seq=seq, t=t, task=task, index=0, entry=0, ability="a")


def shipped(t, events, number=1):
    async def main():
        log = ShippingLog(lambda: t)
        for event in events:
            log.write(event)
        log.text("a long text")
        log._number = number - 1
        return [read(data) for data in await log.ship(0, at_once=True)]

    return run(main())[0]


def test_events_of_hosts_are_passed_on_in_order_of_time_once_nothing_can_come_before_them():
    log, now = MemoryLog(), [0.0]
    merger = Merger(log, [0, 1], lambda: now[0])
    merger.write(arrived("x", 1.0))
    assert merger.take(0, shipped(5.0, [arrived("y", 2.0, 3), arrived("z", 4.0, 3, 2)]))
    assert log.events == []  # host 1 has not said anything yet
    assert merger.take(1, shipped(3.0, [arrived("w", 1.5, 7)]))
    assert [e.task for e in log.events] == ["x", "w", "y"]
    assert log.texts
    merger.flush()
    assert [e.task for e in log.events] == ["x", "w", "y", "z"]


def test_a_shipment_that_comes_twice_counts_once():
    log = MemoryLog()
    merger = Merger(log, [0], lambda: 9.0)
    shipment = shipped(5.0, [arrived("y", 2.0)])
    assert merger.take(0, shipment)
    assert not merger.take(0, shipment)
    assert len(log.events) == 1


def test_a_host_that_is_lost_holds_nobody_up_and_starts_to_count_anew():
    log = MemoryLog()
    merger = Merger(log, [0, 1], lambda: 9.0)
    merger.take(0, shipped(5.0, [arrived("y", 2.0)]))
    merger.lost(1)
    assert len(log.events) == 1
    merger.back(1)
    assert merger.take(1, shipped(6.0, [arrived("z", 5.5)]))


def test_a_task_has_one_outcome_whoever_writes_it_first():
    log = MemoryLog()
    merger = Merger(log, [0], lambda: 9.0)
    settled = TaskSettled(node=3, seq=1, t=2.0, task="x", outcome="accepted", value="A", producer=4, author=4)
    merger.take(0, shipped(5.0, [settled]))
    merger.write(TaskSettled(node=-1, seq=1, t=6.0, task="x", outcome="failed"))
    merger.flush()
    assert [e.outcome for e in log.events] == ["accepted"]
    found = merger.settled("x")
    assert (found.value, found.producer) == ("A", 4)
    assert merger.settled("y") is None


def test_what_was_shipped_is_shipped_again_until_it_is_acknowledged():
    async def main():
        log = ShippingLog(lambda: 1.0)
        log.write(StateChanged(node=1, seq=1, t=0.5, agent=2, before="healthy", to="suspect", evidence=2.0))
        once = await log.ship(0, at_once=True)
        again = await log.ship(0)
        log.ended(7, None)
        after = [read(d) for d in await log.ship(1)]
        return once == again, [s.number for s in after], after[-1].ended

    assert run(main()) == (True, [2], [(7, None)])


# --- who lives where ---


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize(
    "graph", [complete(6), regular(40, degree=4), cells(48, size=6)], ids=["complete", "regular", "cells"]
)
def test_agents_are_spread_evenly_over_the_hosts(graph, hosts):
    where = assign_hosts(graph.neighbours, hosts)
    sizes = [where.count(h) for h in range(min(hosts, len(graph)))]
    assert sum(sizes) == len(graph)
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 2


def test_cells_stay_together_and_few_edges_cross():
    graph = cells(48, size=6)
    where = assign_hosts(graph.neighbours, 4)
    blind = [a % 4 for a in range(48)]
    assert crossing(graph.neighbours, where) < crossing(graph.neighbours, blind) / 4


@pytest.mark.slow
def test_the_large_network_is_cut_where_it_is_thin():
    graph = saved(576)
    where = assign_hosts(graph.neighbours, 2)
    assert where.count(0) == where.count(1) == 288
    assert crossing(graph.neighbours, where) < 0.1 * graph.edges


def test_one_agent_a_host_is_possible():
    assert sorted(assign_hosts(complete(6).neighbours, 6)) == list(range(6))
    assert Placement(agents_per_host=1).count(6, 2) == 6


@pytest.mark.parametrize(
    ("placement", "agents", "cpus", "hosts"),
    [
        (Placement(), 6, 2, 2),
        (Placement(), 6, 64, 2),
        (Placement(), 576, 16, 16),
        (Placement(), 1, 8, 1),
        (Placement(hosts=9), 6, 2, 6),
        (Placement(agents_per_host=4), 6, 2, 2),
        (Placement(agents_per_host=100), 6, 2, 1),
    ],
)
def test_hosts_are_as_many_as_asked_for_or_as_there_are_cores_with_a_few_agents_each(placement, agents, cpus, hosts):
    assert placement.count(agents, cpus) == hosts


# --- which runtime ---


@pytest.mark.parametrize(
    ("asked", "live", "environ", "runtime"),
    [
        ("auto", False, {}, "local"),
        ("auto", True, {}, "realtime"),
        ("auto", False, {"RAY_ADDRESS": "auto"}, "ray"),
        ("auto", True, {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, "ray"),
        ("auto", False, {"RAY_ADDRESS": ""}, "local"),
        ("local", False, {"RAY_ADDRESS": "auto"}, "local"),
        ("realtime", False, {}, "realtime"),
        ("ray", True, {}, "ray"),
    ],
)
def test_the_runtime_that_suits_is_taken(asked, live, environ, runtime):
    assert choose(asked, live, environ) == runtime


def test_a_runtime_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="choose one of auto, local, realtime, ray"):
        choose("slurm", False, {})
    with pytest.raises(UsageError, match="a live model answers in real time"):
        choose("local", True, {})
