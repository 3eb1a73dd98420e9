"""An OpenAI-compatible server on loopback that does what a test tells it to, well or badly."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

ANSWER = "The answer is (A)."
_GONE = (ConnectionResetError, asyncio.CancelledError)


class Ask:
    """One request as it arrived: its number (from 0), path, headers, JSON body."""

    def __init__(self, number: int, request: web.Request, body: Any) -> None:
        self.number = number
        self.request = request
        self.path = request.path
        self.headers = dict(request.headers)
        self.body = body

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])


Behaviour = Callable[[Ask], Awaitable[web.StreamResponse]]


class Server:
    """Runs in a thread of its own, on a free port, until the `with` block ends. `asked` are the POST requests so far."""

    def __init__(self, *behaviours: Behaviour, models: tuple[str, ...] | None = ("m",), port: int = 0) -> None:
        """The n-th request meets the n-th behaviour; the last one stays."""
        self._behaviours = list(behaviours) or [say()]
        self._models = models
        self._port = port
        self.asked: list[Ask] = []
        self.open = self.most_open = 0
        self.left = threading.Event()
        """Set once a client went away before the reply."""
        self.list_status = 200

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(ready))
        self._loop.close()

    async def _serve(self, ready: threading.Event) -> None:
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port, backlog=1024)
        await site.start()
        self.port = runner.addresses[0][1]
        ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        self.listed_with = dict(request.headers)
        if self._models is None:
            return web.Response(status=404)
        if self.list_status != 200:
            return web.Response(status=self.list_status, text="not now")
        return web.json_response({"object": "list", "data": [{"id": m, "object": "model"} for m in self._models]})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        ask = Ask(len(self.asked), request, body)
        self.asked.append(ask)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self._behaviours[min(ask.number, len(self._behaviours) - 1)](ask)
        except _GONE:
            self.left.set()
            raise
        finally:
            self.open -= 1


# --- what a server may do ------------------------------------------------------------------------


def completion(ask: Ask | None, *texts: Any, **changes: Any) -> dict[str, Any]:
    """A chat completion; `changes` replace fields of it, None leaves one out."""
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        for i, text in enumerate(texts)
    ]
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m" if ask is None else ask.body["model"],
        "choices": choices,
        "usage": {"prompt_tokens": 50, "completion_tokens": 7 * len(texts), "total_tokens": 50 + 7 * len(texts)},
        **changes,
    }
    return {k: v for k, v in whole.items() if v is not None}


def say(text: Any = ANSWER, *, ignore_n: bool = False, after: float = 0.0, **changes: Any) -> Behaviour:
    """Answer well: `n` times the text (once with `ignore_n`)."""

    async def behave(ask: Ask) -> web.StreamResponse:
        if after:
            await asyncio.sleep(after)
        n = 1 if ignore_n else ask.body.get("n", 1)
        return raw(json.dumps(completion(ask, *[text] * n, **changes)))

    return behave


def raw(body: str | bytes, status: int = 200, kind: str = "application/json", **headers: str) -> web.Response:
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return web.Response(
        body=data, status=status, content_type=kind, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


def send(
    body: str | bytes | dict[str, Any], status: int = 200, kind: str = "application/json", **headers: str
) -> Behaviour:
    """This very reply, whatever was asked."""
    text = json.dumps(body) if isinstance(body, dict) else body

    async def behave(_: Ask) -> web.StreamResponse:
        return raw(text, status, kind, **headers)

    return behave


def fail(status: int, message: str = "no", code: Any = None, **headers: str) -> Behaviour:
    return send({"error": {"message": message, "type": "error", "code": code}}, status, **headers)


def stall(seconds: float = 60.0) -> Behaviour:
    """Take the request and say nothing."""

    async def behave(ask: Ask) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return raw(json.dumps(completion(ask, ANSWER)))

    return behave


def reset() -> Behaviour:
    """Break the connection before any reply."""

    async def behave(ask: Ask) -> web.StreamResponse:
        assert ask.request.transport is not None
        ask.request.transport.abort()
        return web.Response()

    return behave


def half(stalling: bool = False) -> Behaviour:
    """Promise a whole body, send half of it, then break off (or say no more)."""

    async def behave(ask: Ask) -> web.StreamResponse:
        body = json.dumps(completion(ask, ANSWER)).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
        await response.prepare(ask.request)
        await response.write(body[: len(body) // 2])
        if stalling:
            await asyncio.sleep(60)
        assert ask.request.transport is not None
        ask.request.transport.close()
        return response

    return behave


def likely(table: dict[str, float], otherwise: float = -5.0, bos: bool = False) -> Behaviour:
    """Log-likelihoods of echoed prompts, a token a word; each word of an ending has that of `table`."""

    async def behave(ask: Ask) -> web.StreamResponse:
        choices = []
        for i, prompt in enumerate(ask.body["prompt"]):
            tokens = re.findall(r"\s*\S+|\s+$", prompt)
            if bos:
                tokens.insert(0, "<|begin|>")
            offsets = [sum(map(len, tokens[:k])) for k in range(len(tokens))]
            logprobs: list[float | None] = [table.get(t.strip(), otherwise) for t in tokens]
            logprobs[0] = None
            choices.append(
                {
                    "index": i,
                    "text": prompt,
                    "finish_reason": "length",
                    "logprobs": {"tokens": tokens, "token_logprobs": logprobs, "text_offset": offsets},
                }
            )
        n = len(choices)
        usage = {"prompt_tokens": 10 * n, "completion_tokens": n, "total_tokens": 11 * n}
        return raw(
            json.dumps({"object": "text_completion", "model": ask.body["model"], "choices": choices, "usage": usage})
        )

    return behave


def tops(table: dict[str, float]) -> Behaviour:
    """A chat reply whose first token has these likelihoods."""

    async def behave(ask: Ask) -> web.StreamResponse:
        best = max(table, key=lambda t: table[t])
        found = completion(ask, best)
        listed = [{"token": t, "logprob": p} for t, p in table.items()]
        found["choices"][0]["logprobs"] = {"content": [{"token": best, "logprob": table[best], "top_logprobs": listed}]}
        return raw(json.dumps(found))

    return behave
