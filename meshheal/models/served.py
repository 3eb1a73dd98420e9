"""Where a model is served: endpoints, the name it has there, its key, its limits; as options and files name it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from meshheal.errors import UsageError

DEFAULT_KEY = "OPENAI_API_KEY"
NO_KEY = "none"
_SECRET = ("key", "token", "secret", "password", "authorization")


class Served(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind one or more OpenAI-compatible endpoints.

    `endpoints` are base URLs, as a rule ending in /v1. `served_as` is the model's name at the server, where it is not the one
    used here: two names here may be the same name at two servers. `family` groups models that err together; by default it is
    `served_as`. `key_env` names the environment variable that holds the key ("none": no key); by default OPENAI_API_KEY,
    which is sent to servers on other machines only.

    `max_concurrent` requests are open at one endpoint; the others queue. One attempt may take `timeout` seconds, all attempts
    of a call together (with queueing and backoff) `deadline` seconds. `answers="likelihood"`: a task with options is answered
    by the option the model finds likeliest, without generating text. `max_tokens` caps the output below the protocol's limit.
    `preamble` is put before every prompt; `body` is added to every request as it is, for what a server offers beyond the
    common API.
    """

    endpoints: tuple[str, ...]
    served_as: str = ""
    family: str = ""
    key_env: str = ""
    max_concurrent: int = 64
    attempts: int = 4
    timeout: float = 300.0
    deadline: float = 600.0
    backoff: float = 0.5
    backoff_max: float = 20.0
    answers: Literal["text", "likelihood"] = "text"
    max_tokens: int | None = None
    preamble: str = ""
    body: dict[str, Any] = field(default_factory=dict)


def served(name: str, given: Served | str | Iterable[str] | Mapping[str, Any]) -> Served:
    """A model's server from what a user gave: a `Served`, one URL, several, or a table of its fields. Raises `UsageError`."""
    if isinstance(given, Served):
        found = given
    elif isinstance(given, str):
        found = Served(endpoints=tuple([u.strip() for u in given.split(",") if u.strip()]))
    else:
        table = dict(given) if isinstance(given, Mapping) else {"endpoints": list(given)}
        if isinstance(table.get("endpoints"), str):
            table["endpoints"] = [table["endpoints"]]
        try:
            found = msgspec.convert(table, Served)
        except msgspec.ValidationError as error:
            fields = ", ".join(Served.__struct_fields__)
            raise UsageError(f"model openai/{name}: {_plain(str(error))}; fields are {fields}") from error
    _check(name, found)
    return msgspec.structs.replace(found, endpoints=tuple([_base(u) for u in found.endpoints]))


def named(pairs: Iterable[str]) -> dict[str, Served]:
    """Servers by model name from options NAME=URL[,URL...]; the prefix openai/ may be left out. Raises `UsageError`."""
    found: dict[str, Served] = {}
    for pair in pairs:
        name, equals, urls = pair.partition("=")
        name = bare(name)
        if not equals or not name or not urls.strip():
            raise UsageError(
                f"--endpoint {_without_secret(pair)}: write NAME=URL[,URL...], e.g. --endpoint llama=http://127.0.0.1:8000/v1"
            )
        found[name] = served(name, urls)
    return found


def bare(name: str) -> str:
    """A model's name without the kind before the slash."""
    return name.strip().removeprefix("openai/")


def key_for(model: Served, url: str) -> str | None:
    """The key to send to one endpoint, from the environment; None: none. Raises `UsageError` where the variable is not set."""
    if model.key_env == NO_KEY:
        return None
    if model.key_env:
        if not (key := os.environ.get(model.key_env, "").strip()):
            raise UsageError(
                f'environment variable {model.key_env} holds no key for {url}; export it, or set key_env="none" for a server '
                "that wants none"
            )
        return key
    return None if is_local(url) else os.environ.get(DEFAULT_KEY, "").strip() or None


def is_local(url: str) -> bool:
    """Whether an endpoint is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _base(url: str) -> str:
    return url.strip().rstrip("/")


def _check(name: str, model: Served) -> None:
    """Raise `UsageError` for what cannot be a server."""

    def wrong(what: str) -> UsageError:
        return UsageError(f"model openai/{name}: {what}")

    if not model.endpoints:
        raise wrong("no endpoint is given; add --endpoint NAME=http://HOST:PORT/v1")
    for url in model.endpoints:
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise wrong(f"{_without_secret(url)!r} is no endpoint; write http://HOST:PORT/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise wrong(
                f"the endpoint at {parts.hostname} carries credentials or a query; keys come from the environment only "
                "(key_env names the variable)"
            )
    if len(set(map(_base, model.endpoints))) < len(model.endpoints):
        raise wrong("an endpoint is given twice")
    for what in ("max_concurrent", "attempts", "timeout", "deadline", "backoff", "backoff_max"):
        if not 0 < getattr(model, what) < float("inf"):
            raise wrong(f"{what}={getattr(model, what)}: give a number above 0")
    if model.max_tokens is not None and model.max_tokens < 1:
        raise wrong(f"max_tokens={model.max_tokens}: give at least 1")
    for field_name in model.body:
        if any(s in field_name.lower() and "tokens" not in field_name.lower() for s in _SECRET):
            raise wrong(f"body.{field_name} looks like a secret; keys come from the environment only (key_env)")


def _without_secret(text: str) -> str:
    """A malformed endpoint as it may be shown: nothing that stands before an @ or after a ?."""
    head, at, tail = text.rpartition("@")
    shown = f"...@{tail}" if at else head + tail
    return shown.partition("?")[0]


def _plain(error: str) -> str:
    return error.replace(" - at `$.", " (at ").replace("`", ")") if " - at `$." in error else error.replace("`", "'")
