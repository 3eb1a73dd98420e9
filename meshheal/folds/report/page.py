"""One self-contained HTML page: styles, scripts and data inside, nothing fetched from anywhere.

Data stand in the page as gzip in base64, which holds no character that HTML could take for markup, and reach the screen
as text nodes only. A policy in the page lets nothing run but the scripts named by their hash.
"""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

SCRIPTS = (
    "dom.js", "source.js", "beliefs.js", "chart.js", "summary.js", "network.js", "incidents.js", "agents.js",
    "compare.js", "tasks.js", "runs.js", "app.js",
)  # fmt: skip
"""In the order in which they are joined to one module."""
STYLES = ("page.css",)


class Blob(NamedTuple):
    """A piece of data in the page, by the name under which its script asks for it."""

    name: str
    content: Any


def page(title: str, blobs: Iterable[Blob], *, served: bool = False) -> str:
    """The page. `served`: its script asks a server for what is not in it."""
    style, script = _joined(STYLES), _joined(SCRIPTS)
    connect = "'self'" if served else "'none'"
    policy = (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "TITLE": escape(shown(title)),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": "\n".join(_blob(blob) for blob in blobs),
        "SERVED": "served" if served else "file",
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda hole: parts[hole[1]], _asset("page.html"))


def shown(text: str) -> str:
    """Text that any encoder takes: control characters and broken surrogates are spelled out."""
    return "".join([c if c.isprintable() else ascii(c)[1:-1] for c in text])


def packed(content: Any) -> bytes:
    """JSON, compressed: equal content, equal bytes. Broken surrogates are kept, as JSON escapes them."""
    return gzip.compress(encoded(content), compresslevel=6, mtime=0)


def encoded(content: Any) -> bytes:
    """JSON that every browser reads, whatever the texts hold."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(content), ensure_ascii=True, allow_nan=False).encode()


def _blob(blob: Blob) -> str:
    content = blob.content if isinstance(blob.content, bytes) else packed(blob.content)
    return f'<script type="text/plain" id="{escape(blob.name, quote=True)}">{b64encode(content).decode()}</script>'


def _joined(names: Iterable[str]) -> str:
    return "\n".join(_asset(name) for name in names)


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
