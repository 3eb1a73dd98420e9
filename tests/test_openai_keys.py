"""A server's key is sent to the server and stands nowhere else. A real server on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle

import pytest
from openai_calls import TASK, call, caller, error, model, request
from openai_server import Server, completion, raw, send

from meshheal.errors import ModelError, UsageError
from meshheal.models.check import check
from meshheal.models.served import named, served
from meshheal.trace.encoding import encode_events
from meshheal.trace.recorder import MemoryLog

pytestmark = pytest.mark.server
KEY = "sk-never-to-be-seen-4711"


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
            called = await caller(m, log).call("produce", "any", "t0", 0, TASK.messages)
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


def test_a_redirect_is_not_followed_with_the_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    with Server() as elsewhere, Server(send("", 302, Location=f"{elsewhere.url}/chat/completions")) as server:
        assert error(server, key_env="SOME_KEY").boundary == "redirected"
        assert elsewhere.asked == []


@pytest.mark.parametrize("url", ["http://me:secret@h/v1", "http://h/v1?api_key=secret", "http://secret@h/v1"])
def test_a_url_with_a_secret_is_refused_without_showing_it(url):
    for given in (lambda: served("m", url), lambda: named([f"m={url}"])):
        with pytest.raises(UsageError) as caught:
            given()
        assert "secret" not in str(caught.value)
