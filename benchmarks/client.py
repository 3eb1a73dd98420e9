"""Claim: the client path of live models is never the bottleneck: at least 40 % of a bare aiohttp client's requests a second.

    python benchmarks/client.py [--rounds 7] [--requests 1000] [--concurrency 64] [--check] [--json]
    python benchmarks/client.py --url http://127.0.0.1:8101/v1 --model smollm2-135m [--concurrency 16] [--check]

Without --url: a loopback server in a process of its own that answers at once with the same bytes, so that what is measured is the
client. Interleaved, each round running all of them once:

- `meshheal`: `OpenAI.complete`, with all it does: queueing, deadline, HTTP, reading the reply, counting tokens;
- `bare`: aiohttp alone, JSON out, JSON in, at the same concurrency in the same process;
- `openai`: the openai client as it comes (`chat.completions.create` on its own aiohttp transport), for comparison.

With --url: tokens a second from a real server at 16 requests at a time, `meshheal` beside `bare`, which must reach 95 %.
Medians over the rounds; the share is the median of the rounds' own ratios, since rates drift and ratios do not; beside it the span
of the middle half of the rounds. With --check it
exits with 1 where the share is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import aiohttp
import openai

from meshheal.model import CallKey, Request, Sampling
from meshheal.models import OpenAI, Served
from meshheal.types import Message

SHARE = 0.40
"""Least share of a bare client's requests a second, against a server that answers at once."""
LIVE_SHARE = 0.95
"""Least share of a bare client's tokens a second, against a real server."""
PROMPT = "A train leaves at nine and travels at sixty miles an hour. " * 8
REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "The answer is (A). " * 10}}
    ],
    "usage": {"prompt_tokens": 120, "completion_tokens": 60, "total_tokens": 180},
}

Call = Callable[[int], Awaitable[int]]
"""Makes the n-th request and returns the tokens that came back."""


class Instant(asyncio.Protocol):
    """A server that reads no further than it must, and answers every request with the same bytes."""

    def __init__(self) -> None:
        body = json.dumps(REPLY).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._reply = head.encode() + body
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            self._transport.write(self._reply)


def serve(port: Any) -> None:
    """Run the instant server and say on which port."""

    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0, backlog=1024)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(forever())


@dataclass
class Rate:
    """What one run of one client came to: requests and tokens a second, and processor time a request, in microseconds."""

    requests: float
    tokens: float
    cpu_us: float


async def load(call: Call, requests: int, concurrency: int) -> Rate:
    """Make that many requests, `concurrency` at a time."""
    numbers = iter(range(requests))
    tokens = 0

    async def lane() -> None:
        nonlocal tokens
        for n in numbers:
            came = await call(n)  # on a line of its own: `tokens += await` would add to what it was before the wait
            tokens += came

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[lane() for _ in range(concurrency)])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Rate(requests / wall, tokens / wall, 1e6 * cpu / requests)


def prompt(n: int) -> str:
    return f"{n}. {PROMPT}Tell what happens next."


def meshheal_call(model: OpenAI, max_tokens: int) -> Call:
    async def call(n: int) -> int:
        key = CallKey(f"t{n}", 0, "produce", 0)
        done = await model.complete(Request((Message("user", prompt(n)),), Sampling(0.0, max_tokens), key))
        return done.usage.completion

    return call


def bare_call(session: aiohttp.ClientSession, url: str, name: str, max_tokens: int) -> Call:
    async def call(n: int) -> int:
        body = {
            "model": name,
            "messages": [{"role": "user", "content": prompt(n)}],
            "max_tokens": max_tokens,
            "n": 1,
            "temperature": 0.0,
        }
        async with session.post(
            f"{url}/chat/completions", json=body, headers={"Authorization": "Bearer none"}
        ) as reply:
            found = json.loads(await reply.read())
        assert isinstance(found["choices"][0]["message"]["content"], str)
        return int(found["usage"]["completion_tokens"])

    return call


def openai_call(client: openai.AsyncOpenAI, name: str, max_tokens: int) -> Call:
    async def call(n: int) -> int:
        found = await client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": prompt(n)}], max_tokens=max_tokens, n=1, temperature=0.0
        )
        assert found.usage is not None
        return found.usage.completion_tokens

    return call


async def measure(
    url: str, name: str, rounds: int, requests: int, concurrency: int, max_tokens: int, plain: bool
) -> dict[str, list[Rate]]:
    """Rates of each client, round by round."""
    model = OpenAI("bench", Served(endpoints=(url,), served_as=name, max_concurrent=concurrency))
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency))
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=openai.DefaultAioHttpClient())
    calls = {"meshheal": meshheal_call(model, max_tokens), "bare": bare_call(session, url, name, max_tokens)}
    if plain:
        calls["openai"] = openai_call(client, name, max_tokens)
    rates: dict[str, list[Rate]] = {k: [] for k in calls}
    try:
        for call in calls.values():
            await load(call, concurrency, concurrency)  # connections, caches
        for n in range(rounds):
            names = list(calls) if n % 2 == 0 else list(calls)[::-1]
            for k in names:
                rates[k].append(await load(calls[k], requests, concurrency))
    finally:
        await model.aclose()
        await session.close()
        await client.close()
    return rates


def shares(rates: dict[str, list[Rate]], of: str, what: str) -> list[float]:
    """Round by round a client's rate over the bare client's, the least first."""
    return sorted([getattr(a, what) / getattr(b, what) for a, b in zip(rates[of], rates["bare"], strict=True)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--url", help="a real server's base URL, ending in /v1")
    parser.add_argument("--model", default="m", help="the model's name there")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the share is missed")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    live = a.url is not None
    concurrency = a.concurrency or (16 if live else 64)
    requests = a.requests or (64 if live else 1000)
    process = None
    url = a.url
    if not live:
        port: Any = multiprocessing.Queue()
        process = multiprocessing.Process(target=serve, args=(port,), daemon=True)
        process.start()
        url = f"http://127.0.0.1:{port.get(timeout=30)}/v1"
    try:
        rates = asyncio.run(measure(url, a.model, a.rounds, requests, concurrency, a.max_tokens, not live))
    finally:
        if process is not None:
            process.terminate()
            process.join()
    what, least = ("tokens", LIVE_SHARE) if live else ("requests", SHARE)
    ratios = {k: shares(rates, k, what) for k in rates if k != "bare"}
    found = {
        "what": f"{what} a second, {concurrency} at a time",
        "median": {k: round(median([getattr(r, what) for r in v]), 1) for k, v in rates.items()},
        "cpu_us_a_request": {k: round(median([r.cpu_us for r in v])) for k, v in rates.items()},
        "share_of_bare": {k: round(median(v), 3) for k, v in ratios.items()},
        "share_middle_half": {k: (round(v[len(v) // 4], 3), round(v[-1 - len(v) // 4], 3)) for k, v in ratios.items()},
        "least_share": least,
    }
    met = found["share_of_bare"]["meshheal"] >= least
    if a.json:
        print(json.dumps({**found, "met": met}, indent=1))
    else:
        print(found["what"])
        for k in rates:
            of_bare = found["share_of_bare"].get(k, 1.0)
            low, high = found["share_middle_half"].get(k, (1.0, 1.0))
            print(
                f"  {k:10} {found['median'][k]:10.1f}   {of_bare:5.0%} of bare (half of the rounds {low:.0%} to {high:.0%})"
                f"   {found['cpu_us_a_request'][k]:6} us of processor a request"
            )
        print(f"at least {least:.0%} of bare: {'met' if met else 'MISSED'}")
    return 0 if met or not a.check else 1


if __name__ == "__main__":
    sys.exit(main())
