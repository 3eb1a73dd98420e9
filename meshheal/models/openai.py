"""A model behind OpenAI-compatible endpoints: one call with its attempts, its deadline, its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from meshheal.errors import ModelError
from meshheal.likelihood import write_rating
from meshheal.model import CallNotes, Completion, Request
from meshheal.models import likelihood
from meshheal.models.endpoints import Endpoint, Endpoints
from meshheal.models.replies import BadReply, Counted, Reply, asked, clean, failure_of, parse, read_chat
from meshheal.models.retries import Failure, backoff
from meshheal.models.served import Served, is_local, key_for
from meshheal.models.transport import Connect, Transport, Unreached
from meshheal.prompts import RATING_MAX
from meshheal.rng import uniform
from meshheal.types import Message, Task, TaskId, Usage

Found = TypeVar("Found")
_TOP = 20
"""First tokens whose likelihoods are asked for in a rating: the most that servers give by default."""


class Ledger(Struct):
    """What one call has cost so far, over all its requests."""

    started: float
    until: float
    usage: Usage = Usage()
    attempts: int = 0
    queued: float = 0.0
    estimated: bool = False
    cache_told: bool = True
    served: str = ""

    def add(self, counted: Counted) -> None:
        self.usage = self.usage + counted.usage
        self.estimated = self.estimated or counted.estimated
        self.cache_told = self.cache_told and counted.cache_told

    def notes(self) -> CallNotes:
        return CallNotes(self.attempts, self.queued, self.estimated, self.cache_told, self.served)


class OpenAI:
    """The model `openai/<name>`. Used on whatever asyncio loop runs; each loop has its own connections (`aclose` ends them).

    `tasks` are those that a model with `answers="likelihood"` may be asked, by id; `seed` names its random stream (backoff).
    """

    nature: Literal["live"] = "live"

    def __init__(
        self,
        name: str,
        served: Served,
        seed: int = 0,
        tasks: Mapping[TaskId, Task] | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.name = f"openai/{name}"
        self.family = served.family or served.served_as or name
        self.served = served
        self._model = served.served_as or name
        self._seed = seed
        self._tasks = tasks or {}
        self._connect = connect or _http
        self._open: _Open | None = None
        self._one_at_a_time = False
        """The server refused several samples in one request."""
        self._limit = 0
        """The context in tokens, where the server refused to be asked for as much output."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name.removeprefix("openai/"), self.served, self._seed, self._tasks, self._connect)

    async def complete(self, request: Request) -> Completion:
        """Answer `request`. Raises `ModelError` with one of `BOUNDARIES`, and `UsageError` where the key is missing."""
        self._opened()  # loads the client, which is not the call's time
        now = asyncio.get_running_loop().time()
        ledger = Ledger(now, now + self.served.deadline)
        finish: Literal["stop", "length"] = "stop"
        reasoning: tuple[str, ...] = ()
        if request.score == "endings":
            texts = await likelihood.weigh(self, request, ledger)
        elif request.score == "rating":
            texts = await self._rate(request, ledger)
        elif (task := self._by_likelihood(request)) is not None:
            texts = await likelihood.answer(self, request, task, ledger)
        else:
            texts, finish, reasoning = await self._chat(request, ledger)
        latency = asyncio.get_running_loop().time() - ledger.started
        return Completion(texts, ledger.usage, latency, finish, reasoning, ledger.notes())

    async def aclose(self) -> None:
        """Close the connections. The model can be used again afterwards."""
        if self._open is not None:
            was, self._open = self._open, None
            was.endpoints.close()
            await was.client.aclose()

    # --- kinds of request ------------------------------------------------------------------------

    async def _chat(
        self, request: Request, ledger: Ledger
    ) -> tuple[tuple[str, ...], Literal["stop", "length"], tuple[str, ...]]:
        """Texts by sampling: all in one request, and further ones where the server gives fewer than asked for."""
        wanted = request.sampling.n
        texts: list[str] = []
        reasoning: list[str] = []
        finish: Literal["stop", "length"] = "stop"
        while len(texts) < wanted:
            n = 1 if self._one_at_a_time else wanted - len(texts)
            try:
                reply = await self._ask_chat(request, n, ledger)
            except ModelError as error:
                if n == 1 or error.boundary != "bad_request":
                    raise
                self._one_at_a_time = True
                continue
            left = wanted - len(texts)
            texts += reply.texts[:left]
            reasoning += reply.reasoning[:left]
            finish = "length" if reply.finish == "length" else finish
        return tuple(texts), finish, tuple(reasoning)

    async def _ask_chat(self, request: Request, n: int, ledger: Ledger) -> Reply:
        sampling = request.sampling
        output = min(sampling.max_tokens, self.served.max_tokens or sampling.max_tokens)
        bounds = asked(request.messages, n, output)
        body = self._body(request.messages, output, n=n, temperature=sampling.temperature)
        return await self.post("/chat/completions", body, lambda data: read_chat(data, bounds), ledger, request)

    async def _rate(self, request: Request, ledger: Ledger) -> tuple[str, ...]:
        """The likelihoods of a rating's first token."""
        bounds = asked(request.messages, 1, 1)
        body = self._body(request.messages, 1, temperature=0.0, logprobs=True, top_logprobs=_TOP)
        reply = await self.post("/chat/completions", body, lambda data: read_chat(data, bounds, True), ledger, request)
        top = reply.top[0] if reply.top else {}
        if not top:
            detail = "the reply holds no top_logprobs; review.by=likelihood needs a server that gives them"
            raise ModelError("no_likelihoods", detail, ledger.usage)
        return (write_rating({t: p for t, p in top.items() if t.strip().isdigit() and int(t) <= RATING_MAX}),)

    def _by_likelihood(self, request: Request) -> Task | None:
        if self.served.answers != "likelihood" or request.key.purpose in ("review", "deliberate"):
            return None
        task = self._tasks.get(request.key.item)
        return task if task is not None and likelihood.answerable(task) else None

    def _body(self, messages: tuple[Message, ...], max_tokens: int, **more: Any) -> dict[str, Any]:
        sent = [{"role": m.role, "content": clean(m.content)} for m in messages]
        if self.served.preamble:
            sent[0]["content"] = self.served.preamble + sent[0]["content"]
        output = {} if self._limit and max_tokens >= self._limit else {"max_tokens": max_tokens}
        return {"model": self._model, "messages": sent, **output, **more, **self.served.body}

    def plain_body(self, prompts: list[str], **more: Any) -> dict[str, Any]:
        """The body of a request for plain continuation of several prompts."""
        prompts = [clean(self.served.preamble + p) for p in prompts]
        return {"model": self._model, "prompt": prompts, **more, **self.served.body}

    # --- one request, as often as it takes -------------------------------------------------------

    async def post(
        self, path: str, body: dict[str, Any], read: Callable[[Any], Found], ledger: Ledger, request: Request
    ) -> Found:
        """Send a request until `read` takes its reply, within the attempts and the deadline. Raises `ModelError`."""
        open_ = self._opened()
        last = Failure("deadline", "no endpoint had room in time")
        endpoint: Endpoint | None = None
        attempt = 0
        while True:
            endpoint = await self._acquire(open_, ledger, endpoint, last)
            attempt += 1
            ledger.attempts += 1
            found = await self._attempt(open_, endpoint, path, body, read, ledger)
            if not isinstance(found, Failure):
                return found
            last = found
            ledger.usage = ledger.usage + found.usage
            if found.room is not None and body.get("max_tokens", 0) > found.room:
                body = self._fitting(body, found)
                continue
            if not found.retry or attempt >= self.served.attempts:
                raise self._error(found, attempt, ledger)
            await self._back_off(attempt, found, ledger, request)

    def _fitting(self, body: dict[str, Any], failure: Failure) -> dict[str, Any]:
        """The same request, asking for no more output than fits; for whatever fits, where the server does not say how much."""
        if failure.room:
            return {**body, "max_tokens": failure.room}
        self._limit = failure.limit
        return {name: value for name, value in body.items() if name != "max_tokens"}

    async def _acquire(self, open_: _Open, ledger: Ledger, avoid: Endpoint | None, last: Failure) -> Endpoint:
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            return await open_.endpoints.acquire(ledger.until, avoid)
        except TimeoutError:
            raise self._error(Failure("deadline", last.detail), ledger.attempts, ledger) from None
        finally:
            ledger.queued += loop.time() - since

    async def _attempt(
        self,
        open_: _Open,
        endpoint: Endpoint,
        path: str,
        body: dict[str, Any],
        read: Callable[[Any], Found],
        ledger: Ledger,
    ) -> Found | Failure:
        """One request and what came of it: what `read` gave, or the `Failure`. The endpoint is given back in any case."""
        loop = asyncio.get_running_loop()
        left = ledger.until - loop.time()
        failure: Failure | None = None
        cancelled = True
        try:
            async with asyncio.timeout(min(self.served.timeout, left)):
                reply = await open_.client.post(endpoint.url, path, msgspec.json.encode(body))
            if reply.status != 200:
                failure = failure_of(reply.status, reply.body, reply.headers)
            else:
                data = parse(reply.body)
                found = read(data)
                self._note(found, ledger)
            cancelled = False
        except TimeoutError:
            failure = Failure(
                "timeout", f"no reply within {min(self.served.timeout, left):g} s", retry=True, blames=True
            )
        except BadReply as error:
            failure = error.failure
        except Unreached as error:
            failure = Failure("connection", str(error), retry=True, blames=True)
        finally:
            if failure is None:
                (open_.endpoints.refused if cancelled else open_.endpoints.succeeded)(endpoint)
            elif failure.blames:
                open_.endpoints.failed(endpoint, failure.after)
            else:
                open_.endpoints.refused(endpoint, failure.after)
        return found if failure is None else failure

    def _note(self, found: Any, ledger: Ledger) -> None:
        if isinstance(found, Reply):
            ledger.add(found.counted)
            if found.model and found.model != self._model:
                ledger.served = found.model
        else:
            ledger.add(found[1])

    async def _back_off(self, attempt: int, failure: Failure, ledger: Ledger, request: Request) -> None:
        """Wait before the next attempt: what the server asked for, and jitter of its own for each call."""
        key, served, loop = request.key, self.served, asyncio.get_running_loop()
        draw = uniform(
            "backoff", self._seed, self.name, key.item, key.agent, key.purpose, key.subject, key.n, ledger.attempts
        )
        pause = (failure.after or 0.0) + backoff(attempt, served.backoff, served.backoff_max, draw)
        if loop.time() + pause >= ledger.until:
            raise self._error(failure, attempt, ledger)
        await asyncio.sleep(pause)

    def _error(self, failure: Failure, attempts: int, ledger: Ledger) -> ModelError:
        tried = f" (after {attempts} attempts)" if attempts > 1 else ""
        return ModelError(failure.boundary, f"{self.name}: {failure.detail}{tried}", ledger.usage)

    def _opened(self) -> _Open:
        """The connections of the running loop; those of a loop that is gone are let go."""
        loop = asyncio.get_running_loop()
        if self._open is None or self._open.loop is not loop:
            served = self.served
            keys = {url: key_for(served, url) for url in served.endpoints}
            away = not all(map(is_local, served.endpoints))
            client = self._connect(keys, served.max_concurrent, away)
            endpoints = Endpoints(served.endpoints, served.max_concurrent)
            self._open = _Open(loop, client, endpoints)
        return self._open


class _Open(Struct):
    """Connections of one event loop."""

    loop: asyncio.AbstractEventLoop
    client: Transport
    endpoints: Endpoints


def _http(keys: Mapping[str, str | None], most: int, proxies: bool) -> Transport:
    from meshheal.models.client import Client  # heavy, and wanted by live runs only

    return Client(keys, most, proxies)
