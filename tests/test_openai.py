"""Calling a server: what its replies come to (CASES 13, 14, 17, and neighbours). A real server on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle

import pytest
from openai_calls import TASK, call, caller, error, model, request
from openai_server import ANSWER, Server, completion, fail, say, send

from meshheal import answers, reply
from meshheal.errors import ModelError, UsageError
from meshheal.events import ModelCalled
from meshheal.models.check import check
from meshheal.models.served import served
from meshheal.trace.encoding import decode_lines, encode_events
from meshheal.trace.recorder import MemoryLog
from meshheal.types import Usage

pytestmark = pytest.mark.server


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


# --- 17: no equality by seed ---------------------------------------------------------------------


def test_what_a_server_said_is_recorded_and_not_promised_again():
    log = MemoryLog()
    with Server(say("The answer is (A)."), say("The answer is (B).")) as server:

        async def go():
            m = model(server)
            asker = caller(m, log)
            first = await asker.call("produce", "any", "t0", 0, TASK.messages)
            second = await asker.call("produce", "any", "t0", 0, TASK.messages)
            await m.aclose()
            return first.texts + second.texts

        assert asyncio.run(go()) == ("The answer is (A).", "The answer is (B).")
    assert [log.texts[e.replies[0]] for e in log.events] == ["The answer is (A).", "The answer is (B)."]


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
            called = await caller(m, log).call("produce", "any", "t0", 0, TASK.messages)
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
            await caller(m, log).call("produce", "any", "t0", 0, TASK.messages)
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
