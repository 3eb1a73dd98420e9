"""Calling a server over a bad wire, and over fewer connections than agents (CASES 15 and 16). A real server on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from openai_calls import call, error, model, request
from openai_server import ANSWER, Server, completion, fail, half, reset, say, send, stall

from meshheal.errors import ModelError

pytestmark = pytest.mark.server


# --- 15: failures of the wire --------------------------------------------------------------------

BAD = {
    "reset": (reset(), "connection"),
    "half a body": (half(), "connection"),
    "half a body and silence": (half(stalling=True), "timeout"),
    "silence": (stall(), "timeout"),
    "half the json": (send('{"choices": [{"message": {"content": "The ans'), "bad_reply"),
    "nothing": (send(""), "bad_reply"),
    "a page": (send("<html><body>502 Bad Gateway</body></html>", kind="text/html"), "bad_reply"),
    "a list": (send("[]"), "bad_reply"),
    "a number": (send("3"), "bad_reply"),
    "null": (send("null"), "bad_reply"),
    "no choices": (send({"choices": []}), "bad_reply"),
    "choices that are none": (send({"choices": {"0": 1}}), "bad_reply"),
    "choices of words": (send({"choices": ["a"]}), "bad_reply"),
    "content that is a number": (send(completion(None, 42)), "bad_reply"),
    "content that is an object": (send(completion(None, {"a": 1})), "bad_reply"),
    "deeply nested": (send("[" * 100_000), "bad_reply"),
    "an error with status 200": (send({"error": {"message": "overloaded", "code": 503}}), "server_error"),
    "a broken zip": (send(b"no zip", Content_Encoding="gzip"), "connection"),
    "500": (fail(500), "server_error"),
    "503 page": (send("<html>", 503, "text/html"), "server_error"),
    "429": (fail(429), "rate_limited"),
    "408": (fail(408), "timeout"),
    "409": (fail(409), "conflict"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_goes_wrong_is_tried_again_and_named_when_it_stays(name):
    behaviour, boundary = BAD[name]
    with Server(behaviour, behaviour, say()) as server:
        assert call(server, timeout=0.3).texts == (ANSWER,)
        assert len(server.asked) == 3
    with Server(behaviour) as server:
        found = error(server, timeout=0.3, attempts=2)
        assert found.boundary == boundary
        assert len(server.asked) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_is_our_own_fault_is_not_tried_again(status):
    with Server(fail(status)) as server:
        error(server)
    assert len(server.asked) == 1


def test_nobody_there_is_a_connection_that_failed():
    with Server() as server:
        url = server.url
    assert error(url, attempts=2).boundary == "connection"


def test_an_endpoint_that_is_gone_is_made_up_for_by_the_other():
    with Server() as gone:
        url = gone.url
    with Server() as server:

        async def go():
            m = model(url, server)
            done = await asyncio.gather(*[m.complete(request(agent=i)) for i in range(20)])
            await m.aclose()
            return done

        assert all(d.texts == (ANSWER,) for d in asyncio.run(go()))


def test_a_server_that_comes_back_on_the_same_port_serves_again():
    with Server() as server:
        port = server.port
    m = model(server.url, attempts=1)

    async def go():
        with pytest.raises(ModelError):
            await m.complete(request())
        with Server(port=port):
            done = await m.complete(request())
            await m.aclose()
        return done

    assert asyncio.run(go()).texts == (ANSWER,)


def test_giving_up_on_a_reply_closes_the_connection_so_that_the_server_can_stop_generating():
    with Server(stall()) as server:
        error(server, timeout=0.2, attempts=1)
        assert server.left.wait(10)


def test_a_reply_without_end_is_cut_off_and_not_kept(monkeypatch):
    from meshheal.models import client

    monkeypatch.setattr(client, "LARGEST", 10_000)
    huge = json.dumps(completion(None, "x" * 20_000)).encode()
    with Server(send(huge), send(gzip.compress(huge), Content_Encoding="gzip"), say()) as server:
        assert call(server).texts == (ANSWER,)
        assert len(server.asked) == 3


@pytest.mark.slow
def test_no_storm_reaches_a_stalled_server_from_five_hundred_agents():
    """Scaled a hundredfold: all calls time out together, and the server counts what it is sent."""
    with Server(stall()) as server:

        async def go():
            m = model(server, max_concurrent=100, timeout=0.5, deadline=3.0, attempts=4, backoff=0.2)
            calls = [m.complete(request(agent=i)) for i in range(500)]
            done = await asyncio.gather(*calls, return_exceptions=True)
            await m.aclose()
            return done

        done = asyncio.run(go())
    assert {d.boundary for d in done} <= {"timeout", "deadline"}
    assert server.most_open <= 100
    assert len(server.asked) <= 100 + 5


# --- 16: fewer connections than agents -----------------------------------------------------------


def test_more_agents_than_connections_wait_their_turn():
    with Server(say(after=0.01)) as server:

        async def go():
            m = model(server, max_concurrent=4)
            done = await asyncio.gather(*[m.complete(request(agent=i)) for i in range(100)])
            await m.aclose()
            return done

        done = asyncio.run(go())
    assert len({d.texts for d in done}) == 1
    assert server.most_open == 4
    assert max(d.notes.attempts for d in done) == 1
