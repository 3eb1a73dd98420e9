"""HTTP to a model's endpoints, on aiohttp.

The openai package as it comes costs ten times the processor of bare aiohttp a request (benchmarks/client.py): it would be the
bottleneck of a cluster. Of what it does, a run wants the request signed and nothing else: bodies, replies and retries are read and
decided once, in `openai`, `replies` and `retries`.
"""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
from yarl import URL

from meshheal.models.served import NO_KEY
from meshheal.models.transport import Answered, Unreached

_SECRET = 8
"""Characters from which a key is one; a shorter one (EMPTY, x) is a placeholder, and a word that replies may hold."""
LARGEST = 64 * 2**20
"""Bytes that a reply may have, unpacked: far above any completion, and far below what a server gone mad could send."""
CONNECT = 10.0
"""Seconds to connect: longer than a loaded server's queue of connections, shorter than any reply."""
_TOLD = ("retry-after", "date")
"""Headers that say when to try again."""


class Client:
    """Connections to one model's endpoints, on one event loop. Redirects are not followed: a key goes where it was meant to."""

    def __init__(self, keys: Mapping[str, str | None], most: int, proxies: bool) -> None:
        """`keys` by endpoint; `most` connections at a time to each (more wait); `proxies`: take them from the environment."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=most, keepalive_timeout=30.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            trust_env=proxies,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "meshheal"},
        )
        sent = {key.encode() for key in keys.values() if key is not None and len(key) >= _SECRET}
        self._secrets = sent | {key.replace(b"/", b"\\/") for key in sent}
        self._signed = {url: {"Authorization": f"Bearer {key or NO_KEY}"} for url, key in keys.items()}
        self._urls: dict[str, URL] = {}

    async def post(self, endpoint: str, path: str, body: bytes) -> Answered:
        """Send JSON and read the whole reply, whatever its status. Raises `Unreached`."""
        target = endpoint + path
        url = self._urls.get(target) or self._urls.setdefault(target, URL(target))
        try:
            async with self._session.post(
                url, data=body, headers=self._signed[endpoint], allow_redirects=False
            ) as reply:
                return Answered(reply.status, _kept(reply), self._without_keys(await _whole(reply)))
        except aiohttp.ClientError as error:
            # The error's own text and its chain may show the request, headers and all.
            raise Unreached(_why(error)) from None
        except OSError as error:
            raise Unreached(type(error).__name__) from None

    def _without_keys(self, body: bytes) -> bytes:
        """What a server says goes into logs; one that repeats the key (as in "incorrect API key") must not put it there."""
        for key in self._secrets:
            if key in body:
                body = body.replace(key, b"[key]")
        return body

    async def aclose(self) -> None:
        await self._session.close()


def _kept(reply: aiohttp.ClientResponse) -> dict[str, str]:
    if reply.status == 200:
        return {}
    return {name: reply.headers[name] for name in _TOLD if name in reply.headers}


async def _whole(reply: aiohttp.ClientResponse) -> bytes:
    """The body, read to its end unless that is too far away."""
    told = reply.content_length
    if told is not None and told <= LARGEST and "Content-Encoding" not in reply.headers:
        return await reply.read()
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > LARGEST:
            raise Unreached(f"a reply of more than {LARGEST} bytes")
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
