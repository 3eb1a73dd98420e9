"""The virtual-time loop: order, jumps of time, errors, stalls, and the death of processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.loop import Future, Killed, Loop, Stalled


def test_time_jumps_to_the_next_timer():
    loop = Loop()

    async def main():
        await loop.sleep(3600.0)
        return loop.now

    assert loop.run(main()) == 3600.0


def test_a_sleep_of_nothing_does_not_wait():
    loop = Loop()

    async def main():
        await loop.sleep(0)
        await loop.sleep(-5)
        return loop.now

    assert loop.run(main()) == 0.0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_sleepers_wake_in_order_of_time_and_ties_in_order_of_asking(delays):
    loop = Loop()
    woke = []

    async def sleeper(n, delay):
        await loop.sleep(float(delay))
        woke.append((delay, n))

    async def main():
        await loop.gather([sleeper(n, d) for n, d in enumerate(delays)])

    loop.run(main())
    assert woke == sorted(woke)
    assert len(woke) == len(delays)


def test_equal_times_are_in_order_of_asking_even_far_from_zero_where_floats_are_coarse():
    loop = Loop()
    seen = []

    async def main():
        await loop.sleep(1e15)
        for n in range(50):
            loop.later(1e-3, lambda n=n: seen.append(n))
        await loop.sleep(1.0)

    loop.run(main())
    assert seen == list(range(50))


def test_a_network_that_goes_idle_while_somebody_waits_is_named_and_does_not_hang():
    loop = Loop()

    async def main():
        await Future(loop)

    with pytest.raises(Stalled, match="waits for what never comes"):
        loop.run(main())


def test_gather_gives_results_in_the_order_of_the_calls_not_of_their_ends():
    loop = Loop()

    async def slow(value, seconds):
        await loop.sleep(seconds)
        return value

    async def main():
        return await loop.gather([slow("a", 3.0), slow("b", 1.0), slow("c", 2.0)])

    assert loop.run(main()) == ["a", "b", "c"]


def test_gather_of_nothing_is_nothing():
    loop = Loop()
    assert loop.run(loop.gather([])) == []


def test_gather_raises_the_first_error_only_once_all_have_ended():
    loop = Loop()
    ended = []

    async def fails():
        await loop.sleep(1.0)
        raise ValueError("first")

    async def works():
        await loop.sleep(5.0)
        ended.append(loop.now)

    async def main():
        await loop.gather([fails(), works()])

    with pytest.raises(ValueError, match="first"):
        loop.run(main())
    assert ended == [5.0]


def test_what_runs_out_of_time_is_stopped_and_its_cleanup_runs():
    loop = Loop()
    cleaned = []

    async def slow():
        try:
            await loop.sleep(100.0)
        finally:
            cleaned.append(loop.now)

    async def main():
        with pytest.raises(TimeoutError):
            await loop.within(2.0, loop.spawn(slow()))
        return loop.now

    assert loop.run(main()) == 2.0
    assert cleaned == [2.0]


def test_what_ends_in_time_keeps_its_value():
    loop = Loop()

    async def quick():
        await loop.sleep(1.0)
        return "done"

    async def main():
        value = await loop.within(2.0, loop.spawn(quick()))
        await loop.sleep(5.0)
        return value

    assert loop.run(main()) == "done"


def test_a_killed_process_runs_no_further_and_whoever_awaits_it_learns_of_it():
    loop = Loop()
    steps = []

    async def victim():
        steps.append("started")
        await loop.sleep(1.0)
        steps.append("never")

    async def main():
        process = loop.spawn(victim())
        loop.later(0.5, process.kill)
        with pytest.raises(Killed):
            await process
        await loop.sleep(5.0)

    loop.run(main())
    assert steps == ["started"]


def test_a_crash_cannot_be_handled_away_as_an_ordinary_error():
    assert not issubclass(Killed, Exception)


def test_killing_twice_or_after_the_end_does_nothing():
    loop = Loop()

    async def quick():
        return 7

    async def main():
        process = loop.spawn(quick())
        process.kill()
        process.kill()
        return await process

    assert loop.run(main()) == 7


def test_a_future_is_settled_once_and_later_values_are_dropped():
    loop = Loop()

    async def main():
        future = Future(loop)
        loop.later(1.0, lambda: future.resolve("reply"))
        loop.later(2.0, lambda: future.fail(TimeoutError()))
        value = await future
        await loop.sleep(5.0)
        return value, await future

    assert loop.run(main()) == ("reply", "reply")


def test_many_may_wait_for_one_future():
    loop = Loop()

    async def waiter(future, n):
        return n, await future

    async def main():
        future = Future(loop)
        loop.later(1.0, lambda: future.resolve("x"))
        return await loop.gather([waiter(future, n) for n in range(3)])

    assert loop.run(main()) == [(0, "x"), (1, "x"), (2, "x")]


def test_waiting_for_the_end_does_not_raise_the_error():
    loop = Loop()

    async def fails():
        await loop.sleep(1.0)
        raise ValueError

    async def main():
        process = loop.spawn(fails())
        await process.ended()
        return process.done

    assert loop.run(main()) is True


def test_the_error_of_the_main_process_comes_out_of_run():
    loop = Loop()

    async def main():
        await loop.sleep(1.0)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        loop.run(main())


def test_an_interrupt_closes_what_is_suspended_from_the_outside_in():
    loop = Loop()
    closed = []

    async def waits(name, seconds):
        try:
            await loop.sleep(seconds)
        finally:
            closed.append(name)

    async def outer():
        try:
            await loop.gather([waits("a", 9.0), waits("b", 9.0)])
        finally:
            closed.append("outer")

    def interrupt():
        raise KeyboardInterrupt

    loop.later(1.0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run(outer())
    assert closed == ["outer", "a", "b"]


def test_a_hundred_thousand_waits_in_a_row_do_not_grow_the_stack():
    loop = Loop()

    async def main():
        for _ in range(100_000):
            await loop.sleep(0.001)
        return loop.now

    assert loop.run(main()) == pytest.approx(100.0)
