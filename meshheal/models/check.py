"""One cheap look at a model's servers before a run: are they there, do they take the key, do they serve the model?"""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from meshheal.errors import ModelError, UsageError
from meshheal.models.replies import BadReply, parse
from meshheal.models.served import DEFAULT_KEY, Served, is_local, key_for

WAIT = 5.0
"""Seconds to wait for a list of models."""
_SHOWN = 8


class _Found(Struct, frozen=True):
    """What one endpoint said: the models it lists (None: it does not say), or why it is of no use."""

    models: tuple[str, ...] | None = None
    down: str = ""


def check(name: str, served: Served) -> None:
    """Ask the endpoints of the model `openai/<name>` for their models, once.

    Raises `UsageError` where a key is missing or refused, or an endpoint lacks the model, and `ModelError` where no endpoint
    answers. One that is down among others that are not is left for the run to deal with.
    """
    if find_spec("aiohttp") is None:
        raise UsageError(f"model openai/{name}: the client is not installed; run `pip install 'meshheal[openai]'`")
    wanted = served.served_as or name
    downs: list[str] = []
    for url in served.endpoints:
        found = _ask(name, served, url)
        if found.down:
            downs.append(f"{url} {found.down}")
        elif found.models is not None and wanted not in found.models:
            have = ", ".join(found.models[:_SHOWN]) + (", ..." if len(found.models) > _SHOWN else "") or "none"
            raise UsageError(
                f"model openai/{name}: {url} serves no {wanted!r}, but: {have}. Name one of these with served_as in "
                f"[models.{name}], or start the server with --served-model-name {wanted}"
            )
    if len(downs) == len(served.endpoints):
        raise ModelError(
            "connection", f"model openai/{name}: {'; '.join(downs)}. Start the server, or correct the endpoint"
        )


def _ask(name: str, served: Served, url: str) -> _Found:
    request = urllib.request.Request(f"{url}/models", headers={"Accept": "application/json"})
    if key := key_for(served, url):
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_local(url):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=WAIT) as reply:
            return _Found(_models(reply.read(1_000_000)))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (401, 403):
                variable = served.key_env or DEFAULT_KEY
                raise UsageError(
                    f"model openai/{name}: {url} refuses the key (HTTP {error.code}); export the right one as {variable}, or name "
                    f"its variable with key_env in [models.{name}]"
                ) from None
            if error.code in (404, 405, 501):
                return _Found()  # no list of models: not every server has one
            return _Found(down=f"is not ready (HTTP {error.code})")
    except TimeoutError:
        return _Found(down=f"does not answer within {WAIT:g} s")
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, TimeoutError):
            return _Found(down=f"does not answer within {WAIT:g} s")
        return _Found(down=f"cannot be reached ({getattr(reason, 'strerror', None) or type(reason).__name__})")
    except (OSError, HTTPException) as error:
        return _Found(down=f"cannot be reached ({type(error).__name__})")


def _models(body: bytes) -> tuple[str, ...] | None:
    """The names in a list of models; None where it is none."""
    try:
        data = parse(body)
    except BadReply:
        return None
    listed = data.get("data") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple([str(m["id"]) for m in listed if isinstance(m, dict) and "id" in m])


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer (HTTP 3xx), not a way to somewhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
