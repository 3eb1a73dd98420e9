"""Calls of the client to a test server, and what they come to."""

from __future__ import annotations

import asyncio

import pytest
from scripted import LETTERS

from meshheal.calls import Binding, Caller
from meshheal.errors import ModelError
from meshheal.journal import Journal
from meshheal.model import CallKey, Request, Sampling
from meshheal.models import BOUNDARIES, OpenAI
from meshheal.models.served import served
from meshheal.types import Message, Task

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


def caller(m, log):
    return Caller(0, Binding({"any": m}, m), None, Journal(0, log, lambda: 0.0), 600.0, 100)
