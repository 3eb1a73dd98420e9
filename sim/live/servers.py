"""Model servers as child processes: started together, waited for, watched while an experiment runs, ended by pid.

A server is any command that listens on a loopback port and answers `GET /health` with 200 once it can serve.
`sim.live.vllm` says what the command of a vLLM server is.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec
from msgspec import Struct

from meshheal.errors import UsageError

HOST = "127.0.0.1"
READY_WITHIN = 600.0
"""Seconds a server may take to answer /health for the first time; vLLM on one core takes half a minute, on a busy one many."""
_ENDING = 10.0
"""Seconds between asking a server to end and killing it."""
_PATIENCE = 10.0
"""Seconds a health check may take: a server whose one core is busy is slow to answer, and well."""


class Launch(Struct, frozen=True):
    """How to start one server. `{port}` in `command` stands for the port it is to listen on; 0 asks for a free one.

    `environment` is added to this process's own.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    port: int = 0


class Check(Struct, frozen=True):
    """One health check: `at` seconds after the fleet was ready, how long it took, and what was wrong (empty: green)."""

    server: str
    at: float
    seconds: float
    wrong: str = ""


class Health(Struct, frozen=True):
    """What the checks of one server came to. `slowest` is in seconds."""

    checks: int
    green: int
    slowest: float


class Server:
    """One server process. It leads a process group of its own, so that what it started ends with it."""

    def __init__(self, launch: Launch, log: Path) -> None:
        self.name = launch.name
        self.port = launch.port or free_port()
        self.log = log
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Base of its OpenAI-compatible routes."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; it keeps its port over restarts. Raises `UsageError` where the command cannot be run."""
        command = [part.replace("{port}", str(self.port)) for part in self._launch.command]
        with self.log.open("ab") as log:
            self._process = _spawn(self.name, command, self._launch.environment, log)

    def wait(self, deadline: float) -> None:
        """Return once /health is green. Raises `UsageError` where the process ends, or `deadline` (monotonic) passes."""
        pause = threading.Event()
        while self.check() != "":
            if not self.alive():
                raise UsageError(f"server {self.name}: {self._death()}; all it said is in {self.log}")
            if time.monotonic() > deadline:
                raise UsageError(
                    f"server {self.name}: not ready in time; see {self.log}, or allow more with fewer jobs beside it"
                )
            pause.wait(0.2)

    def check(self) -> str:
        """What is wrong with /health right now; empty where it is green."""
        try:
            with _open(f"http://{HOST}:{self.port}/health") as reply:
                return "" if reply.status == 200 else f"status {reply.status}"
        except urllib.error.HTTPError as error:
            return f"status {error.code}"
        except (OSError, ValueError) as error:
            return "refused" if "refused" in str(error) else "timeout" if "timed out" in str(error) else "unreachable"

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """`kill -9` the server and what it started, as a machine fault would."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Ask it to end; kill it where it does not within some seconds."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group: it may outlive its leader."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _death(self) -> str:
        code = None if self._process is None else self._process.poll()
        said = self.log.read_text(errors="replace").strip().splitlines() if self.log.is_file() else []
        last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
        return f"ended with exit code {code} while starting ({last[:160]})"


class Fleet:
    """Servers that are up for as long as a `with` block lasts, with a record of their health.

    All are started at once. `folder` takes one log a server and `health.jsonl`, a line a check.
    """

    def __init__(
        self, launches: Sequence[Launch], folder: Path, *, ready_within: float = READY_WITHIN, every: float = 1.0
    ) -> None:
        names = [launch.name for launch in launches]
        if len(set(names)) < len(names):
            raise UsageError(f"servers: two are called the same in {', '.join(names)}")
        self.folder = folder
        self.servers = {launch.name: Server(launch, folder / f"{launch.name}.log") for launch in launches}
        self.checks: list[Check] = []
        self._ready_within = ready_within
        self._every = every
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, name="server-health", daemon=True)

    def __enter__(self) -> Fleet:
        self.folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + self._ready_within
        try:
            for server in self.servers.values():
                server.start()
            for server in self.servers.values():
                server.wait(deadline)
        except BaseException:
            self._stop()
            raise
        self._started = time.monotonic()
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watch.join()
        self._stop()

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def health(self) -> dict[str, Health]:
        """The checks so far, by server."""
        found = {}
        for name in self.servers:
            of = [c for c in self.checks if c.server == name]
            found[name] = Health(len(of), sum(not c.wrong for c in of), max((c.seconds for c in of), default=0.0))
        return found

    def _look(self) -> None:
        """Check every server, at once and then at each interval, until the block ends."""
        with (self.folder / "health.jsonl").open("wb") as lines:
            while True:
                for server in self.servers.values():
                    began = time.monotonic()
                    wrong = server.check()
                    check = Check(server.name, began - self._started, time.monotonic() - began, wrong)
                    self.checks.append(check)
                    lines.write(msgspec.json.encode(check) + b"\n")
                    lines.flush()
                if self._over.wait(self._every):
                    return

    def _stop(self) -> None:
        """End all servers at the same time."""
        enders = [threading.Thread(target=server.stop) for server in self.servers.values()]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _spawn(name: str, command: list[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"server {name}: cannot run {command[0]} ({error.strerror})") from error


def _open(url: str) -> urllib.request.http.client.HTTPResponse:  # type: ignore[name-defined]
    """GET without proxies, which environments set and loopback must not use."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(url, timeout=_PATIENCE)
