"""Calling a server: what each misbehaviour comes to (CASES 13 to 17, and neighbours). A real server on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import pickle

import pytest
from openai_server import ANSWER, Server, completion, fail, half, raw, reset, say, send, stall
from scripted import LETTERS

from meshheal import answers, reply
from meshheal.calls import Binding, Caller
from meshheal.errors import ModelError, UsageError
from meshheal.events import ModelCalled
from meshheal.journal import Journal
from meshheal.model import CallKey, Request, Sampling
from meshheal.models import BOUNDARIES, OpenAI
from meshheal.models.check import check
from meshheal.models.served import named, served
from meshheal.trace.encoding import decode_lines, encode_events
from meshheal.trace.recorder import MemoryLog
from meshheal.types import Message, Task, Usage

pytestmark = pytest.mark.server

KEY = "sk-never-to-be-seen-4711"
TASK = Task("t0", (Message("user", "Question: A, B, C or D?"),), LETTERS)


def request(n=1, text="What?", agent=0, max_tokens=100):
    return Request(
        (Message("user", text),), Sampling(max_tokens=max_tokens, n=n), CallKey("t", agent, "produce", agent)
    )


def model(*servers, name="m", **fields):
    urls = [s if isinstance(s, str) else s.url for s in servers]
    return OpenAI(name, served(name, {"endpoints": urls, "backoff": 0.001, "timeout": 5.0, **fields}))


def call(server, asked=None, **fields):
    async def go():
        m = model(server, **fields)
        try:
            return await m.complete(asked or request())
        finally:
            await m.aclose()

    return asyncio.run(go())


def error(server, asked=None, **fields):
    with pytest.raises(ModelError) as caught:
        call(server, asked, **fields)
    assert caught.value.boundary in BOUNDARIES
    return caught.value


# --- a good server -------------------------------------------------------------------------------


def test_a_completion_has_the_text_the_tokens_and_what_was_asked_for():
    with Server() as server:
        done = call(server, request(text="Which?", max_tokens=33))
    assert done.texts == (ANSWER,)
    assert (done.usage, done.finish, done.reasoning) == (Usage(50, 7), "stop", ())
    assert done.notes.attempts == 1
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Which?"}],
        "max_tokens": 33,
        "n": 1,
        "temperature": 0.7,
    }


def test_the_same_name_at_two_servers_is_two_models_of_one_family():
    with Server(say("well")) as healthy, Server(say("ill")) as degraded:
        one = model(healthy, name="healthy", served_as="m")
        two = model(degraded, name="degraded", served_as="m")

        async def go():
            found = [(await m.complete(request())).texts for m in (one, two)]
            await asyncio.gather(one.aclose(), two.aclose())
            return found

        assert asyncio.run(go()) == [("well",), ("ill",)]
        assert healthy.asked[0].body["model"] == degraded.asked[0].body["model"] == "m"
    assert (one.name, two.name) == ("openai/healthy", "openai/degraded")
    assert one.family == two.family == "m"


def test_several_samples_are_one_request():
    with Server() as server:
        done = call(server, request(n=5))
    assert done.texts == (ANSWER,) * 5
    assert len(server.asked) == 1
    assert done.usage == Usage(50, 35)


def test_a_server_that_ignores_n_is_asked_again_for_the_rest():
    with Server(say(ignore_n=True)) as server:
        done = call(server, request(n=3))
    assert done.texts == (ANSWER,) * 3
    assert [a.body["n"] for a in server.asked] == [3, 2, 1]
    assert done.usage == Usage(150, 21)


def test_a_server_that_refuses_n_is_asked_one_at_a_time_from_then_on():
    with Server(fail(400, "n must be 1"), say()) as server:
        done = call(server, request(n=3))
    assert done.texts == (ANSWER,) * 3
    assert [a.body["n"] for a in server.asked] == [3, 1, 1, 1]


def test_more_choices_than_asked_for_are_cut_and_paid():
    with Server(send(completion(None, "a", "b", "c"))) as server:
        done = call(server, request(n=2))
    assert done.texts == ("a", "b")
    assert done.usage == Usage(50, 21)


def test_choices_out_of_order_are_put_in_order():
    body = completion(None, "a", "b")
    body["choices"].reverse()
    with Server(send(body)) as server:
        assert call(server, request(n=2)).texts == ("a", "b")


def test_cached_tokens_are_counted_where_the_server_tells():
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 48}}
    with Server(say(usage=usage), say(usage={**usage, "prompt_tokens_details": None})) as server:
        told, silent = call(server), call(server)
    assert (told.usage.cached, told.notes.cache_told) == (48, True)
    assert (silent.usage.cached, silent.notes.cache_told) == (0, False)


def test_a_name_that_differs_is_noted_and_no_error():
    with Server(say(model="/models/other.gguf")) as server:
        assert call(server).notes.served == "/models/other.gguf"


# --- 13: nothing in it, or only thoughts ---------------------------------------------------------


def test_null_content_is_an_empty_output_whose_tokens_count():
    with Server(say(None)) as server:
        done = call(server)
    assert (done.texts, done.finish, done.usage) == (("",), "stop", Usage(50, 7))
    assert answers.to_answer(TASK, 1, done.texts[0], done.finish).fault == "empty"
    assert len(server.asked) == 1


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_all_the_text_in_the_thought_and_cut_is_no_answer_though_the_thought_names_one(field):
    body = completion(None, None, usage={"prompt_tokens": 9, "completion_tokens": 100})
    body["choices"][0]["message"][field] = "So the answer is (A). But wait"
    body["choices"][0]["finish_reason"] = "length"
    with Server(send(body)) as server:
        done = call(server)
    assert (done.texts, done.finish, done.usage) == (("",), "length", Usage(9, 100))
    assert done.reasoning == ("So the answer is (A). But wait",)
    answer = answers.to_answer(TASK, 1, reply.visible(done.texts[0]), done.finish)
    assert (answer.value, answer.fault) == (None, "empty")


def test_a_thought_beside_the_answer_is_kept_apart():
    body = completion(None, ANSWER)
    body["choices"][0]["message"]["reasoning_content"] = "hm"
    with Server(send(body)) as server:
        done = call(server)
    assert (done.texts, done.reasoning) == ((ANSWER,), ("hm",))


@pytest.mark.parametrize("finish", [None, "stop", "tool_calls", "content_filter", "eos", 7])
def test_a_finish_that_is_not_length_is_an_end(finish):
    body = completion(None, ANSWER)
    body["choices"][0]["finish_reason"] = finish
    with Server(send(body)) as server:
        assert call(server).finish == "stop"


def test_a_generation_that_the_server_gave_up_is_tried_again_and_paid():
    body = completion(None, "The answ")
    body["choices"][0]["finish_reason"] = "abort"
    with Server(send(body), say()) as server:
        done = call(server)
    assert (done.texts, done.usage) == ((ANSWER,), Usage(100, 14))


def test_content_in_parts_is_joined_and_a_refusal_is_the_output():
    parts = [{"type": "text", "text": "The answer "}, {"type": "text", "text": "is (A)."}]
    refused = completion(None, None)
    refused["choices"][0]["message"]["refusal"] = "I cannot."
    with Server(send(completion(None, parts)), send(refused)) as server:
        assert call(server).texts == (ANSWER,)
        assert call(server).texts == ("I cannot.",)


# --- 14: no room ---------------------------------------------------------------------------------


def test_a_prompt_without_room_is_one_error_that_names_the_models_limit():
    message = "This model's maximum context length is 2048 tokens. However, your request has 2500 input tokens."
    with Server(fail(400, message)) as server:
        found = error(server)
    assert found.boundary == "context_length"
    assert "2048 tokens" in str(found)
    assert len(server.asked) == 1


def test_an_output_larger_than_the_room_is_asked_for_again_as_what_fits():
    message = (
        "'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum context length is 60 tokens and your "
        "request has 40 input tokens (100 > 60 - 40)."
    )
    with Server(fail(400, message), say()) as server:
        assert call(server).texts == (ANSWER,)
    assert [a.body["max_tokens"] for a in server.asked] == [100, 20]


def test_asked_for_more_than_the_whole_context_a_server_is_left_to_give_what_fits_from_then_on():
    message = "max_tokens=8192 cannot be greater than max_model_len=2048. Please request fewer output tokens."
    with Server(fail(400, message), say()) as server:

        async def go():
            m = model(server)
            for _ in range(2):
                assert (await m.complete(request(max_tokens=8192))).texts == (ANSWER,)
            assert (await m.complete(request(max_tokens=100))).texts == (ANSWER,)
            await m.aclose()

        asyncio.run(go())
    assert [a.body.get("max_tokens") for a in server.asked] == [8192, None, None, 100]


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


def test_a_redirect_is_not_followed_with_the_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    with Server() as elsewhere, Server(send("", 302, Location=f"{elsewhere.url}/chat/completions")) as server:
        assert error(server, key_env="SOME_KEY").boundary == "redirected"
        assert elsewhere.asked == []


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


# --- 17: no equality by seed ---------------------------------------------------------------------


def test_what_a_server_said_is_recorded_and_not_promised_again():
    log = MemoryLog()
    with Server(say("The answer is (A)."), say("The answer is (B).")) as server:

        async def go():
            m = model(server)
            caller = _caller(m, log)
            first = await caller.call("produce", "any", "t0", 0, TASK.messages)
            second = await caller.call("produce", "any", "t0", 0, TASK.messages)
            await m.aclose()
            return first.texts + second.texts

        assert asyncio.run(go()) == ("The answer is (A).", "The answer is (B).")
    assert [log.texts[e.replies[0]] for e in log.events] == ["The answer is (A).", "The answer is (B)."]


def _caller(m, log):
    return Caller(0, Binding({"any": m}, m), None, Journal(0, log, lambda: 0.0), 600.0, 100)


# --- tokens --------------------------------------------------------------------------------------

NO_COUNT = [
    None,
    {},
    "many",
    {"prompt_tokens": -1, "completion_tokens": 5},
    {"prompt_tokens": "50", "completion_tokens": 5},
    {"prompt_tokens": 50, "completion_tokens": True},
    {"prompt_tokens": 50, "completion_tokens": 2.5},
    {"prompt_tokens": 50, "completion_tokens": 10**12},
    {"prompt_tokens": 10**9, "completion_tokens": 5},
    {"prompt_tokens": 0, "completion_tokens": 5},
    {"prompt_tokens": 50, "completion_tokens": 0},
    {"prompt_tokens": 50},
]


@pytest.mark.parametrize("usage", NO_COUNT, ids=str)
def test_tokens_that_cannot_be_are_estimated_and_marked_so(usage):
    with Server(say("x" * 80, usage=usage)) as server:
        done = call(server, request(text="y" * 400))
    assert done.notes.estimated
    assert done.usage.completion == 20
    assert 50 <= done.usage.prompt <= 110


def test_a_cached_share_larger_than_the_prompt_is_not_believed():
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 51}}
    with Server(say(usage=usage)) as server:
        done = call(server)
    assert (done.usage, done.notes.cache_told) == (Usage(50, 5, 0), False)


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("naïve ∑ 漢字 🦆", "naïve ∑ 漢字 🦆"),
        ("\ud83e\udd86", "🦆"),
        ("lone \ud800 half", "lone � half"),
        ("nul \x00 and bell \x07", "nul \x00 and bell \x07"),
        ("<think>hm</think>" + ANSWER, "<think>hm</think>" + ANSWER),
    ],
)
def test_text_arrives_whole_and_can_be_logged(sent, read):
    with Server(say(sent)) as server:
        done = call(server)
    assert done.texts == (read,)
    done.texts[0].encode()


def test_a_lone_surrogate_in_a_prompt_is_sent_as_a_replacement():
    with Server() as server:
        call(server, request(text="a \ud800 b"))
    assert server.asked[0].prompt == "a � b"


def test_a_compressed_body_and_one_with_a_byte_order_mark_are_read():
    body = json.dumps(completion(None, ANSWER)).encode()
    with Server(send(gzip.compress(body), Content_Encoding="gzip"), send(b"\xef\xbb\xbf" + body)) as server:
        assert call(server).texts == call(server).texts == (ANSWER,)


# --- keys ----------------------------------------------------------------------------------------


def shouting(status):
    """A server that repeats the key in all it says."""

    async def behave(ask):
        key = ask.headers["Authorization"]
        if status == 200:
            return raw(json.dumps(completion(ask, f"You sent {key}", model=key)))
        return raw(json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}}), status)

    return behave


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
def test_the_key_is_sent_to_the_server_and_stands_nowhere_else(status, monkeypatch, caplog, capfd):
    monkeypatch.setenv("SOME_KEY", KEY)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    log = MemoryLog()
    with Server(shouting(status)) as server:
        m = model(server, key_env="SOME_KEY", attempts=2)

        async def go():
            called = await _caller(m, log).call("produce", "any", "t0", 0, TASK.messages)
            try:
                await m.complete(request())
            except ModelError as found:
                return called, found
            finally:
                await m.aclose()
            return called, None

        called, raised = asyncio.run(go())
        assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    chain = raised
    shown = [repr(called), repr(m), repr(m.served), pickle.dumps(m).decode("latin-1"), caplog.text, *capfd.readouterr()]
    while chain is not None:
        shown += [repr(chain), str(chain), repr(vars(chain))]
        chain = chain.__cause__ or chain.__context__
    shown += [encode_events(log.events).decode(), *log.texts.values()]
    assert not [text for text in shown if KEY in text]


def test_a_run_directory_holds_no_key(monkeypatch, tmp_path):
    """Everything that an experiment declares and its log holds, written out and searched."""
    monkeypatch.setenv("SOME_KEY", KEY)
    m = served("m", {"endpoints": ["http://10.0.0.1/v1"], "key_env": "SOME_KEY"})
    from tiny import simulated, write_outputs

    e = simulated(write_outputs(tmp_path / "data"), endpoints={"m": m})
    text = json.dumps(e.declaration())
    assert "SOME_KEY" in text
    assert KEY not in text


def test_the_default_key_is_not_sent_to_this_machine(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Server() as server:
        call(server)
        check("m", served("m", server.url))
    assert KEY not in str(server.asked[0].headers)
    assert KEY not in str(server.listed_with)


def test_a_key_that_is_not_set_is_one_line_that_names_its_variable(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with Server() as server, pytest.raises(UsageError, match="SOME_KEY"):
        check("m", served("m", {"endpoints": [server.url], "key_env": "SOME_KEY"}))


@pytest.mark.parametrize("url", ["http://me:secret@h/v1", "http://h/v1?api_key=secret", "http://secret@h/v1"])
def test_a_url_with_a_secret_is_refused_without_showing_it(url):
    for given in (lambda: served("m", url), lambda: named([f"m={url}"])):
        with pytest.raises(UsageError) as caught:
            given()
        assert "secret" not in str(caught.value)


# --- the look beforehand -------------------------------------------------------------------------


def test_a_server_that_has_the_model_passes_with_one_request():
    with Server(models=("m", "other")) as server:
        check("m", served("m", server.url))
        check("mine", served("mine", {"endpoints": [server.url], "served_as": "other"}))
    assert server.asked == []


def test_a_model_that_is_not_there_is_a_usage_error_that_lists_those_that_are():
    with Server(models=("a", "b")) as server, pytest.raises(UsageError, match=r"serves no 'm', but: a, b\."):
        check("m", served("m", server.url))


def test_a_server_that_is_down_is_an_infrastructure_error():
    with Server() as server:
        url = server.url
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        check("m", served("m", url))
    assert caught.value.exit_code == 4


def test_one_server_of_two_is_enough_to_start():
    with Server() as gone:
        url = gone.url
    with Server() as server:
        check("m", served("m", [url, server.url]))


def test_a_server_without_a_list_passes_and_one_that_is_not_ready_does_not():
    with Server(models=None) as server:
        check("m", served("m", server.url))
    with Server() as server:
        server.list_status = 503
        with pytest.raises(ModelError, match="503"):
            check("m", served("m", server.url))


def test_a_refused_key_is_a_usage_error_that_says_which_variable():
    with Server() as server:
        server.list_status = 401
        with pytest.raises(UsageError, match="key_env"):
            check("m", served("m", server.url))


# --- in an agent's hands -------------------------------------------------------------------------


def test_a_failed_call_is_recorded_with_its_boundary_and_never_raised():
    log = MemoryLog()
    with Server(fail(503, "loading")) as server:

        async def go():
            m = model(server, attempts=2)
            called = await _caller(m, log).call("produce", "any", "t0", 0, TASK.messages)
            await m.aclose()
            return called

        called = asyncio.run(go())
    assert (called.failure, called.texts) == ("server_error", ())
    (event,) = log.events
    assert isinstance(event, ModelCalled)
    assert (event.failure, event.finish) == ("server_error", "error")
    assert "HTTP 503: loading" in event.notes.detail


def test_what_is_known_of_a_call_survives_the_log():
    log = MemoryLog()
    with Server(fail(500), say(usage=None)) as server:

        async def go():
            m = model(server)
            await _caller(m, log).call("produce", "any", "t0", 0, TASK.messages)
            await m.aclose()

        asyncio.run(go())
    (event,) = decode_lines(encode_events(log.events))
    assert event == log.events[0]
    assert (event.notes.attempts, event.notes.estimated) == (2, True)


def test_one_model_serves_one_loop_after_another():
    with Server() as server:
        m = model(server)

        async def go():
            done = await m.complete(request())
            await m.aclose()
            return done.texts

        assert asyncio.run(go()) == asyncio.run(go()) == (ANSWER,)
        again = pickle.loads(pickle.dumps(m))

        async def other():
            done = await again.complete(request())
            await again.aclose()
            return done.texts

        assert asyncio.run(other()) == (ANSWER,)
