"""Retries, queueing and rest, under virtual time: no server, no waiting."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
import virtual
from hypothesis import given
from hypothesis import strategies as st
from openai_server import completion

from meshheal.errors import ModelError
from meshheal.model import CallKey, Request, Sampling
from meshheal.models import BOUNDARIES, OpenAI
from meshheal.models.endpoints import REST, REST_AFTER, Endpoints
from meshheal.models.retries import backoff, of_status, retry_after
from meshheal.models.served import served
from meshheal.models.transport import Answered, Unreached
from meshheal.types import Message, Usage

GOOD = json.dumps(completion(None, "The answer is (A).")).encode()
ONE, TWO = "http://one:1/v1", "http://two:1/v1"


def now():
    return asyncio.get_running_loop().time()


class Wire:
    """A transport that does what `behave(endpoint, number)` says: a reply, an exception, or seconds of silence."""

    def __init__(self, behave):
        self.behave = behave
        self.sent = []
        self.open = self.most_open = 0

    async def post(self, endpoint, path, body):  # noqa: ARG002
        number = len(self.sent)
        self.sent.append((now(), endpoint))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            found = self.behave(endpoint, number)
            if isinstance(found, float):
                await asyncio.sleep(found)
                found = Answered(200, {}, GOOD)
            if isinstance(found, Exception):
                raise found
            return found
        finally:
            self.open -= 1

    async def aclose(self):
        pass


def model(wire, urls=(ONE,), **fields):
    return OpenAI("m", served("m", {"endpoints": list(urls), "key_env": "none", **fields}), 1, connect=lambda *_: wire)


def request(agent=0, n=1):
    return Request((Message("user", "Q?"),), Sampling(max_tokens=50, n=n), CallKey("t", agent, "produce", agent))


def answer(status=200, body=GOOD, **headers):
    return Answered(status, {k.replace("_", "-"): v for k, v in headers.items()}, body)


def call(wire, **fields):
    async def go():
        return await model(wire, **fields).complete(request())

    return virtual.run(go())


# --- the policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422, 301])
def test_what_cannot_get_better_is_asked_once(status):
    wire = Wire(lambda *_: answer(status, b"{}"))
    with pytest.raises(ModelError):
        call(wire)
    assert len(wire.sent) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_get_better_is_asked_again_within_bounds(status):
    wire = Wire(lambda *_: answer(status, b"{}"))
    with pytest.raises(ModelError) as caught:
        call(wire, attempts=4)
    assert len(wire.sent) == 4
    assert caught.value.boundary in BOUNDARIES


def test_one_good_reply_after_failures_is_a_completion_that_says_how_many_it_took():
    wire = Wire(lambda _, n: [Unreached("reset"), answer(500, b"{}"), answer()][n])
    done = call(wire)
    assert done.texts == ("The answer is (A).",)
    assert done.notes.attempts == 3


@pytest.mark.parametrize("after", ["7", "7.0", "Wed, 21 Oct 2026 07:28:07 GMT"])
def test_retry_after_is_respected_in_seconds_and_as_a_date(after):
    headers = {"retry_after": after, "date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    wire = Wire(lambda _, n: answer(429, b"{}", **headers) if n == 0 else answer())
    call(wire, backoff=0.5)
    (first, _), (second, _) = wire.sent
    assert 7.0 <= second - first <= 8.0


def test_retry_after_holds_back_the_other_calls_too():
    wire = Wire(lambda _, n: answer(429, b"{}", retry_after="30") if n == 0 else answer())

    async def go():
        m = model(wire)
        await asyncio.gather(m.complete(request(0)), _later(1.0, m.complete(request(1))))

    virtual.run(go())
    assert all(t >= 30.0 for t, _ in wire.sent[1:])


async def _later(seconds, work):
    await asyncio.sleep(seconds)
    return await work


def test_a_wait_longer_than_the_deadline_is_not_waited():
    wire = Wire(lambda *_: answer(429, b"{}", retry_after="3600"))

    async def go():
        with pytest.raises(ModelError) as caught:
            await model(wire, deadline=60.0).complete(request())
        return caught.value, now()

    error, at = virtual.run(go())
    assert error.boundary == "rate_limited"
    assert at < 1.0
    assert len(wire.sent) == 1


@pytest.mark.parametrize("given", ["", "soon", "nan", "inf", "1e400", "Wed, 99 Oct", "-5"])
def test_a_retry_after_that_makes_no_sense_is_none_or_no_wait(given):
    assert retry_after({"retry-after": given}) in (None, 0.0)


def test_a_date_without_the_servers_own_clock_is_not_compared_with_ours():
    assert retry_after({"retry-after": "Wed, 21 Oct 2026 07:28:07 GMT"}) is None


@given(st.integers(1, 200), st.floats(0.01, 10), st.floats(0.01, 100), st.floats(0, 1, exclude_max=True))
def test_pauses_are_spread_from_nothing_to_a_doubling_ceiling(attempt, base, most, draw):
    pause = backoff(attempt, base, most, draw)
    assert 0.0 <= pause <= most
    assert pause <= base * 2.0 ** min(attempt, 1000)
    assert backoff(attempt, base, most, 0.0) == 0.0


def test_the_pauses_of_a_seed_are_the_same_and_those_of_other_agents_are_not():
    def pauses(agent):
        wire = Wire(lambda *_: answer(500, b"{}"))

        async def go():
            with pytest.raises(ModelError):
                await model(wire).complete(request(agent))

        virtual.run(go())
        return [t for t, _ in wire.sent]

    assert pauses(1) == pauses(1)
    assert pauses(1) != pauses(2)


def test_tokens_of_failed_attempts_are_counted_where_the_server_tells():
    spent = json.dumps(
        {"error": {"message": "overloaded"}, "usage": {"prompt_tokens": 30, "completion_tokens": 4}}
    ).encode()
    wire = Wire(lambda _, n: answer(500, spent) if n < 2 else answer())
    assert call(wire).usage == Usage(50 + 60, 7 + 8)


def test_tokens_of_a_call_that_failed_for_good_are_in_its_error():
    spent = json.dumps({"error": "no", "usage": {"prompt_tokens": 30, "completion_tokens": 4}}).encode()
    with pytest.raises(ModelError) as caught:
        call(Wire(lambda *_: answer(500, spent)), attempts=3)
    assert caught.value.usage == Usage(90, 12)


def test_an_attempt_and_the_whole_call_end_in_time():
    wire = Wire(lambda *_: 1e6)

    async def go(**fields):
        with pytest.raises(ModelError) as caught:
            await model(wire, **fields).complete(request())
        return caught.value.boundary, now()

    boundary, at = virtual.run(go(timeout=10.0, attempts=3, deadline=600.0))
    assert boundary == "timeout"
    assert 30.0 <= at <= 33.0
    boundary, at = virtual.run(go(timeout=100.0, attempts=9, deadline=120.0))
    assert boundary in ("timeout", "deadline")
    assert at <= 120.0


# --- which endpoint ------------------------------------------------------------------------------


def test_requests_go_where_the_fewest_are_open():
    wire = Wire(lambda endpoint, _: 10.0 if endpoint == ONE else 1.0)

    async def go():
        m = model(wire, (ONE, TWO))
        await asyncio.gather(*[_later(0.2 * i, m.complete(request(i))) for i in range(40)])

    virtual.run(go())
    counts = Counter(e for _, e in wire.sent)
    assert counts[TWO] > 1.3 * counts[ONE]


def test_a_pool_smaller_than_the_number_of_agents_queues_and_never_fails():
    wire = Wire(lambda *_: 1.0)

    async def go():
        m = model(wire, max_concurrent=8)
        done = await asyncio.gather(*[m.complete(request(i)) for i in range(500)])
        return done, now()

    done, at = virtual.run(go())
    assert all(d.texts == ("The answer is (A).",) for d in done)
    assert wire.most_open == 8
    assert at == pytest.approx(63.0)
    assert max(d.notes.queued for d in done) == pytest.approx(62.0)


def test_who_came_first_is_served_first():
    wire, order = Wire(lambda *_: 1.0), []

    async def go():
        m = model(wire, max_concurrent=2)

        async def one(i):
            await m.complete(request(i))
            order.append(i)

        await asyncio.gather(*[one(i) for i in range(20)])

    virtual.run(go())
    assert order == list(range(20))


def test_a_failed_request_goes_to_another_endpoint():
    wire = Wire(lambda endpoint, _: answer(500, b"{}") if endpoint == ONE else answer())
    call(wire, urls=(ONE, TWO))
    assert [e for _, e in wire.sent] == [ONE, TWO]


def test_an_endpoint_that_fails_is_left_alone_for_a_while_and_tried_again():
    wire = Wire(lambda endpoint, _: answer(500, b"{}") if endpoint == ONE and now() < 100.0 else 0.01)

    async def go():
        m = model(wire, (ONE, TWO))
        for i in range(300):
            await m.complete(request(i))
            await asyncio.sleep(1.0)

    virtual.run(go())
    ill = [t for t, e in wire.sent if e == ONE and t < 100.0]
    assert REST_AFTER <= len(ill) <= 12
    after = [t for t, e in wire.sent if e == ONE and t >= 100.0]
    assert after
    assert min(after) < 100.0 + 32.0
    assert len(after) > 50


def test_no_storm_when_five_hundred_agents_time_out_together():
    """The server stalls for five minutes, then is well: attempts are bounded, few at a time, and everybody is served."""
    well = 300.0
    wire = Wire(lambda *_: 1e6 if now() < well else 0.5)

    async def go():
        m = model(wire, max_concurrent=64, timeout=60.0, deadline=1200.0, attempts=6)
        return await asyncio.gather(*[m.complete(request(i)) for i in range(500)], return_exceptions=True)

    done = virtual.run(go())
    assert not [d for d in done if isinstance(d, BaseException)]
    assert wire.most_open <= 64
    assert len([t for t, _ in wire.sent if t < well]) <= 64 + 5  # the first wave, then one at a time
    assert len(wire.sent) <= 500 + 64 + 5


def test_a_server_that_never_gets_well_ends_every_call_by_its_deadline():
    wire = Wire(lambda *_: 1e6)

    async def go():
        m = model(wire, timeout=30.0, deadline=120.0)
        done = await asyncio.gather(*[m.complete(request(i)) for i in range(500)], return_exceptions=True)
        return done, now()

    done, at = virtual.run(go())
    assert {d.boundary for d in done} <= {"timeout", "deadline"}
    assert at <= 120.0
    assert len(wire.sent) <= 64 + 4


def test_a_call_that_is_given_up_leaves_its_place():
    wire = Wire(lambda *_: 1e6)

    async def go():
        m = model(wire, max_concurrent=1, timeout=1e5, deadline=1e5)
        running, waiting = asyncio.create_task(m.complete(request(0))), asyncio.create_task(m.complete(request(1)))
        await asyncio.sleep(1.0)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        wire.behave = lambda *_: 1.0
        return await m.complete(request(2))

    assert virtual.run(go()).notes.queued == 0.0


@given(st.lists(st.tuples(st.sampled_from(["ok", "fail", "refuse", "cancel"]), st.floats(0.1, 5.0)), max_size=30))
def test_places_are_never_lost_nor_given_twice(steps):
    async def go():
        endpoints = Endpoints((ONE, TWO), 2)

        async def one(how, seconds):
            found = await endpoints.acquire(now() + 1000.0)
            assert found.outstanding <= 2
            try:
                await asyncio.sleep(seconds)
            finally:
                {"ok": endpoints.succeeded, "fail": endpoints.failed}.get(how, endpoints.refused)(found)

        tasks = [asyncio.create_task(one(how, seconds)) for how, seconds in steps]
        for (how, seconds), task in zip(steps, tasks, strict=True):
            if how == "cancel":
                asyncio.get_running_loop().call_later(seconds / 2, task.cancel)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        lost = [e for (how, _), e in zip(steps, ended, strict=True) if how != "cancel" and e is not None]
        assert lost == []
        assert [e.outstanding for e in endpoints.all] == [0, 0]
        endpoints.close()

    virtual.run(go())


def test_the_first_rest_is_short():
    async def go():
        endpoints = Endpoints((ONE,), 9)
        held = [await endpoints.acquire(10.0) for _ in range(5)]
        for endpoint in held:
            endpoints.failed(endpoint)
        return endpoints.all[0].rests_until

    assert virtual.run(go()) == REST


# --- what servers say of too long prompts --------------------------------------------------------

TOO_LONG = [
    "This model's maximum context length is 2048 tokens. However, your request has 2500 input tokens. Please reduce the length.",
    "The input (2500 tokens) is longer than the model's context length (2048 tokens).",
    "the request exceeds the available context size (2048 tokens), try increasing it",
    "This model's maximum context length is 2048 tokens. However, you requested 2548 tokens (2500 in the messages, 48 in the completion).",
    "Prompt length 2500 exceeds max_model_len 2048",
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds "  # noqa: ISC004
    "this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=2049)",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_prompt_that_leaves_no_room_names_the_models_limit_and_is_not_tried_again(message):
    wire = Wire(lambda *_: answer(400, json.dumps({"error": {"message": message}}).encode()))
    with pytest.raises(ModelError, match="limit is 2048 tokens") as caught:
        call(wire)
    assert caught.value.boundary == "context_length"
    assert len(wire.sent) == 1


@pytest.mark.parametrize(
    "message",
    [
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 50. This model's maximum context length is 2048 tokens and "
            "your request has 2030 input tokens (50 > 2048 - 2030)."
        ),
        (
            "This model's maximum context length is 2048 tokens. However, you requested 2080 tokens (2030 in the messages, 50 in "
            "the completion). Please reduce the length of the messages or completion."
        ),
    ],
)
def test_an_output_that_does_not_fit_is_cut_to_what_does(message):
    failure = of_status(400, message, "", {}, Usage())
    assert (failure.boundary, failure.room) == ("context_length", 18)
    wire = Wire(lambda _, n: answer(400, json.dumps({"error": {"message": message}}).encode()) if n == 0 else answer())
    assert call(wire, attempts=1).texts == ("The answer is (A).",)


def test_an_ordinary_400_is_not_taken_for_one_about_length():
    assert of_status(400, "top_k must be positive", "", {}, Usage()).boundary == "bad_request"
    assert of_status(400, "max_tokens must be at least 1", "", {}, Usage()).boundary == "bad_request"


def test_used_up_credit_is_not_waited_for():
    wire = Wire(
        lambda *_: answer(429, json.dumps({"error": {"message": "pay", "code": "insufficient_quota"}}).encode())
    )
    with pytest.raises(ModelError) as caught:
        call(wire)
    assert caught.value.boundary == "quota"
    assert len(wire.sent) == 1
