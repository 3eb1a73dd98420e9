"""The server: on this machine only, reading only, for pages that came from it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from meshheal.errors import MeshHealError, UsageError
from meshheal.folds.report.page import page
from meshheal.trace.rundir import RunDir
from meshheal.view.desk import Desk, body
from meshheal.view.library import Library

HOST = "127.0.0.1"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_JSON, _HTML = "application/json", "text/html; charset=utf-8"


class Refused(Exception):
    """A request that gets no answer, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Server(ThreadingHTTPServer):
    """Serves a library. `port` 0 takes a free one; `url` says where it listens."""

    daemon_threads = True

    def __init__(self, library: Library, port: int) -> None:
        """Raises `UsageError` where the port is taken."""
        self.library = library
        self.desk = Desk()
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}): give another with --port; 0 takes a free one"
            ) from error
        self.page = page("MeshHeal runs", (), served=True).encode()
        self.policy = re.search(rb'http-equiv="Content-Security-Policy" content="([^"]+)"', self.page)[1].decode()  # type: ignore[index]
        self.hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def server_close(self) -> None:
        super().server_close()
        self.desk.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "meshheal"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:  # the name that http.server calls
        try:
            self._check()
            self._answer()
        except Refused as refused:
            self._send(refused.status, _JSON, body({"error": str(refused)}))
        except MeshHealError as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _JSON, body({"error": str(error)}))

    do_HEAD = do_GET  # as above

    def __getattr__(self, name: str) -> Callable[[], None]:
        # Whatever other method is asked for: http.server looks for do_NAME.
        if name.startswith("do_"):
            return self._no_such_method
        raise AttributeError(name)

    def _no_such_method(self) -> None:
        self.close_connection = True  # a body that came with it is not read
        error = body({"error": "this server only shows: use GET"})
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, _JSON, error, {"Allow": "GET, HEAD"})

    def _check(self) -> None:
        """Refuse pages of other sites, also those that have a name of theirs point here (DNS rebinding)."""
        host = (self.headers.get("Host") or "").lower()
        if host not in self.server.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, f"open {self.server.url}: requests for other hosts are refused")
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") and self.path != "/":
            raise Refused(HTTPStatus.FORBIDDEN, "requests from other sites are refused")

    def _answer(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/":
            self._send(HTTPStatus.OK, _HTML, self.server.page)
            return
        parts = [unquote(part) for part in address.path.split("/")[1:]]
        found = self._found(parts, {k: v[-1] for k, v in parse_qs(address.query, errors="surrogatepass").items()})
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such run, log or page")
        self._send(HTTPStatus.OK, _JSON, body(found))

    def _found(self, parts: list[str], query: dict[str, str]) -> Any:
        library, desk = self.server.library, self.server.desk
        match parts:
            case ["api", "runs"]:
                return {"runs": list(library.listed())}
            case ["api", "runs", name]:
                return desk.overview(self._run(name))
            case ["api", "runs", name, "arms", key]:
                return desk.arm(self._run(name), key, _number(query, "since", None))
            case ["api", "runs", name, "arms", key, "story"]:
                return desk.story(self._run(name), key, query.get("task", ""))
            case ["api", "runs", name, "arms", key, "tasks"]:
                start = _number(query, "from", 0) or 0
                return desk.tasks(self._run(name), key, start, query.get("query", "").lower())
        return None

    def _run(self, name: str) -> RunDir:
        run = self.server.library.run(name)
        if run is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such run")
        return run

    def _send(self, status: HTTPStatus, kind: str, content: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        policy = f"{self.server.policy}; frame-ancestors 'none'"
        for name, value in {**_HEADERS, "Content-Security-Policy": policy, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a page that follows a run asks every second or two."""


def _number(query: dict[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,12}", text):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{name}: give a number from 0")
    return int(text)
