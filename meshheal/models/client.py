"""The openai client on aiohttp, with what it costs per request cut down to what is needed here.

As it comes, `chat.completions.create` costs nine times the processor of bare aiohttp (benchmarks/client.py). What is left out:
typed models of request and reply (what a server says is read once, in `replies`), parsing the URL four times and the headers five,
platform headers, copies of option defaults, the same headers and URL built anew for each request, httpx's own transport with its
streams and events. What stays is the client's: the request it builds and signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import aiohttp
import httpx2
import openai
from multidict import CIMultiDict
from openai import AsyncOpenAI, Omit
from yarl import URL

from meshheal.models.served import NO_KEY
from meshheal.models.transport import Answered, Unreached

_UNSENT = (
    "X-Stainless-Lang", "X-Stainless-Package-Version", "X-Stainless-OS", "X-Stainless-Arch", "X-Stainless-Runtime",
    "X-Stainless-Runtime-Version", "X-Stainless-Async",
)  # fmt: skip
_OPTIONS: Any = {
    "headers": {},
    "max_retries": 0,
    "timeout": None,
    "params": {},
    "idempotency_key": "",
    "follow_redirects": False,
    "security": {"bearer_auth": True},
    "stream_mode": "legacy",
}
"""All of them given, since the client copies each default anew for each request. Time limits are the caller's."""
_SECRET = 8
"""Characters from which a key is one; a shorter one (EMPTY, x) is a placeholder, and a word that replies may hold."""
LARGEST = 64 * 2**20
"""Bytes that a reply may have, unpacked: far above any completion, and far below what a server gone mad could send."""
CONNECT = 10.0
"""Seconds to connect: longer than a loaded server's queue of connections, shorter than any reply."""


class Client:
    """Connections to one model's endpoints, on one event loop.

    The openai client builds requests and signs them; aiohttp sends them. Its retries are off: `retries` is the one policy.
    """

    def __init__(self, keys: Mapping[str, str | None], most: int, proxies: bool) -> None:
        """`keys` by endpoint; `most` connections at a time to each (more wait); `proxies`: take them from the environment."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=most, keepalive_timeout=30.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            trust_env=proxies,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        sent = {key.encode() for key in keys.values() if key is not None and len(key) >= _SECRET}
        self._secrets = sent | {key.replace(b"/", b"\\/") for key in sent}
        carrier = _OnAiohttp(self._session)
        omit: Any = Omit()
        self._clients = {
            url: _Repeating(
                base_url=url,
                api_key=key or NO_KEY,
                max_retries=0,
                http_client=carrier,
                default_headers=dict.fromkeys(_UNSENT, omit),
            )
            for url, key in keys.items()
        }

    async def post(self, endpoint: str, path: str, body: bytes) -> Answered:
        """Send JSON and read the whole reply, whatever its status. Raises `Unreached`."""
        client = self._clients[endpoint]
        try:
            reply = await client.post(endpoint + path, cast_to=httpx2.Response, content=body, options=_OPTIONS)
        except openai.APIConnectionError as error:
            # The error's own text and its chain may show the request, headers and all.
            cause = error.__cause__
            raise Unreached(str(cause) if isinstance(cause, httpx2.RequestError) else type(error).__name__) from None
        assert isinstance(reply, _Reply)
        return Answered(reply.status_code, reply.kept, self._without_keys(reply.body))

    def _without_keys(self, body: bytes) -> bytes:
        """What a server says goes into logs; one that repeats the key (as in "incorrect API key") must not put it there."""
        for key in self._secrets:
            if key in body:
                body = body.replace(key, b"[key]")
        return body

    async def aclose(self) -> None:
        await self._session.close()


class _Request(httpx2.Request):
    """A request that goes out as it is: an URL that is one already, headers as aiohttp takes them, a body of bytes."""

    def __init__(self, method: str, target: str, headers: Any, body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers: Any = headers if isinstance(headers, CIMultiDict) else CIMultiDict(headers)
        self.extensions = {}
        self.body = body


class _Reply(httpx2.Response):
    """A reply that has been read, whose status is for `retries` to judge."""

    def __init__(self, request: _Request, status: int, headers: Any, body: bytes) -> None:
        self.request = request
        self.status_code = status
        self.headers = headers
        self.body = body

    def raise_for_status(self) -> _Reply:
        return self

    @property
    def kept(self) -> dict[str, str]:
        """The headers that say when to try again."""
        if self.status_code == 200:
            return {}
        return {name: self.headers[name] for name in ("retry-after", "date") if name in self.headers}


class _Repeating(AsyncOpenAI):
    """Has the openai client build and sign the first request to an address; later ones differ in their body alone."""

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        first = self._first.get(options.url)
        if first is None:
            built = super()._build_request(options, retries_taken=retries_taken)
            assert isinstance(built, _Request)
            self._first[options.url] = _Request(built.method, built.target, built.headers, b"")
            return built
        return _Request(first.method, first.target, first.headers, options.content or b"")

    @cached_property
    def _first(self) -> dict[str, _Request]:
        return {}


class _OnAiohttp(httpx2.AsyncClient):
    """What the openai client sends by, on an aiohttp session. Redirects are not followed: a key goes where it was meant to."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        super().__init__(transport=httpx2.MockTransport(_unused), trust_env=False)
        self._aiohttp = session
        self._urls: dict[str, URL] = {}

    def build_request(self, method: str, url: Any, *, headers: Any = None, content: Any = None, **_: Any) -> _Request:
        return _Request(method, url, headers, content or b"")

    async def send(self, request: Any, **_: Any) -> httpx2.Response:
        url = self._urls.get(request.target) or self._urls.setdefault(request.target, URL(request.target))
        try:
            async with self._aiohttp.request(
                request.method, url, data=request.body, headers=request.headers, allow_redirects=False
            ) as reply:
                return _Reply(request, reply.status, reply.headers, await _whole(reply))
        except aiohttp.ClientError as error:
            raise httpx2.NetworkError(_why(error)) from None
        except (TimeoutError, OSError) as error:
            raise httpx2.NetworkError(type(error).__name__) from None


def _unused(request: httpx2.Request) -> httpx2.Response:
    raise NotImplementedError(request.method)


async def _whole(reply: aiohttp.ClientResponse) -> bytes:
    """The body, read to its end unless that is too far away."""
    told = reply.content_length
    if told is not None and told <= LARGEST and "Content-Encoding" not in reply.headers:
        return await reply.read()
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > LARGEST:
            raise httpx2.NetworkError(f"a reply of more than {LARGEST} bytes")
    return bytes(body)


def _why(error: aiohttp.ClientError) -> str:
    """What broke, in words that hold no request."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect ({error.os_error.strerror or type(error.os_error).__name__})"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the reply was cut off"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return type(error).__name__
