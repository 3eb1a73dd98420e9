"""The openai client on aiohttp, with what it costs per request cut down to what is needed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
import httpx2
import openai
from openai import AsyncOpenAI, Omit
from yarl import URL

from meshheal.models.served import NO_KEY
from meshheal.models.transport import Answered, Unreached

_KEPT = (b"retry-after", b"date")
"""Reply headers that are read; making header objects of the others costs more than all the rest of a small reply."""
_UNSENT = (
    "X-Stainless-Lang", "X-Stainless-Package-Version", "X-Stainless-OS", "X-Stainless-Arch", "X-Stainless-Runtime",
    "X-Stainless-Runtime-Version", "X-Stainless-Async",
)  # fmt: skip
_SECRET = 8
"""Characters from which a key is one; a shorter one (EMPTY, x) is a placeholder, and a word that replies may hold."""
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
        unsent = dict.fromkeys(_UNSENT, omit)
        self._clients = {
            url: AsyncOpenAI(
                base_url=url,
                api_key=key or NO_KEY,
                max_retries=0,
                http_client=carrier,
                default_headers=unsent,
            )
            for url, key in keys.items()
        }

    async def post(self, endpoint: str, path: str, body: bytes) -> Answered:
        """Send JSON and read the whole reply, whatever its status. Raises `Unreached`."""
        try:
            reply = await self._clients[endpoint].post(path, cast_to=httpx2.Response, content=body)
        except openai.APIConnectionError as error:
            # The error's own text and its chain may show the request, headers and all.
            cause = error.__cause__
            raise Unreached(str(cause) if isinstance(cause, httpx2.RequestError) else type(error).__name__) from None
        return Answered(reply.status_code, dict(reply.headers.items()), self._without_keys(reply.content))

    def _without_keys(self, body: bytes) -> bytes:
        """What a server says goes into logs; one that repeats the key (as in "incorrect API key") must not put it there."""
        for key in self._secrets:
            if key in body:
                body = body.replace(key, b"[key]")
        return body

    async def aclose(self) -> None:
        await self._session.close()


class _Request(httpx2.Request):
    """A request that goes out as it is: its URL was parsed when it was made, its body is bytes."""

    def __init__(self, method: str, url: str, headers: Any, content: bytes) -> None:
        self.method = method
        self.target = url
        self.headers = httpx2.Headers(headers)
        self.extensions = {}
        self._content = content


class _Reply(httpx2.Response):
    """A reply whose status is for `retries` to judge."""

    def raise_for_status(self) -> _Reply:
        return self


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
                request.method, url, data=request.content, headers=request.headers, allow_redirects=False
            ) as reply:
                body = await reply.read()
                kept = [pair for pair in reply.raw_headers if pair[0].lower() in _KEPT]
                return _Reply(reply.status, headers=kept, content=body, request=request)
        except aiohttp.ClientError as error:
            raise httpx2.NetworkError(_why(error)) from None
        except (TimeoutError, OSError) as error:
            raise httpx2.NetworkError(type(error).__name__) from None


def _unused(request: httpx2.Request) -> httpx2.Response:
    raise NotImplementedError(request.method)


def _why(error: aiohttp.ClientError) -> str:
    """What broke, in words that hold no request."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect ({error.os_error.strerror or type(error.os_error).__name__})"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the reply was cut off"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return type(error).__name__
