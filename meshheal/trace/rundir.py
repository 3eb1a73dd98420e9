"""The directory of a run: what was declared, what it ran on, its event logs, its results.

    runs/<name>-<UTC>-<n>/  experiment.json  lock.json  events/<method>-<seed>.jsonl.zst  results.json
    report.html runs/latest             a text file with the directory's name

Everything inside is found by relative paths, so a directory can be moved, archived and compared.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from meshheal.errors import InternalError, TraceError, UsageError
from meshheal.trace.provenance import provenance
from meshheal.trace.reader import LogFile

LATEST = "latest"
SUITE = "suite.json"
"""Marks a directory that holds the runs of several experiments."""
_LOG = re.compile(r"(?P<method>.+?)-(?P<seed>-?\d+)\.jsonl\.zst")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_CUT = ".cut"


class Arm(NamedTuple):
    """One method under one seed: the unit that one event log records."""

    method: str
    seed: int


class RunDir:
    """A run's directory. Made by `create`, found by `open_run`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def experiment(self) -> dict[str, Any]:
        """What was declared: the content of experiment.json."""
        return self._read("experiment.json")

    @property
    def results(self) -> dict[str, Any] | None:
        """The content of results.json; None while there is none."""
        return self._read("results.json") if (self.path / "results.json").exists() else None

    def log_path(self, method: str, seed: int) -> Path:
        """Where the event log of an arm is, or is to be. Raises `UsageError` for a method's name that is no
        file name."""
        if not _NAME.fullmatch(method):
            raise UsageError(f"method {method!r} cannot name a log file: use letters, digits, '_', '-', '.' and '+'")
        return self.path / "events" / f"{method}-{seed}.jsonl.zst"

    def arms(self) -> list[Arm]:
        """Arms that have a log, whole or not, sorted."""
        found = [_LOG.fullmatch(path.name) for path in (self.path / "events").glob("*.jsonl.zst")]
        return sorted(Arm(m["method"], int(m["seed"])) for m in found if m)

    def complete_arms(self) -> list[Arm]:
        """Arms whose log the run ended itself: a resumed run leaves them as they are."""
        return [arm for arm in self.arms() if _is_complete(self.log_path(*arm))]

    def set_aside(self, method: str, seed: int) -> Path | None:
        """Make room for recording an arm anew, keeping the cut log to replay from; return that, or None where
        there is none.

        Of the log and one set aside before (a resumed run may be killed too) the one with more events is
        kept.
        """
        log = self.log_path(method, seed)
        kept = self._cut_path(method, seed)
        with _one_line(f"run {self.name}: cannot set aside {log.name}"):
            if log.exists():
                if _events(log) >= _events(kept):
                    os.replace(log, kept)
                else:
                    log.unlink()
            if _events(kept) < 0:
                kept.unlink(missing_ok=True)
        return kept if kept.exists() else None

    def drop_set_aside(self, method: str, seed: int) -> None:
        """Remove what `set_aside` kept, once the arm is complete."""
        with _one_line(f"run {self.name}: cannot remove a log that was set aside"):
            self._cut_path(method, seed).unlink(missing_ok=True)

    def write_results(self, results: dict[str, Any]) -> None:
        """Write results.json, whole or not at all. Raises `TraceError`."""
        _write_json(self.path / "results.json", results)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the directory for writing. Raises `UsageError` while another process does; a killed one holds
        nothing."""
        with _one_line(f"run {self.name}: cannot be locked for writing"):
            held = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(held, self.name)
            yield
        finally:
            os.close(held)

    def copy_to(self, url: str) -> list[str]:
        """Copy the run to a path that fsspec knows, e.g. s3://bucket/runs; return the relative paths copied.

        It arrives as a directory with the run's name. Logs still being written are copied to their last whole
        frame; files that are there already in full are left. Raises `TraceError`, or `UsageError` for a URL
        nobody can open.
        """
        from meshheal.trace.upload import upload

        return upload(self.path, url)

    def _cut_path(self, method: str, seed: int) -> Path:
        log = self.log_path(method, seed)
        return log.with_name(log.name.replace(".jsonl.zst", f"{_CUT}.jsonl.zst"))

    def _read(self, name: str) -> dict[str, Any]:
        return read_json(self.path / name)


def create(out: Path, name: str, now: datetime, experiment: dict[str, Any]) -> RunDir:
    """Make a new run directory under `out` and let `out/latest` name it.

    `now` is an aware time; the directory's name has it in UTC. Raises `UsageError` for a name that is no file
    name and `TraceError` where `out` cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"experiment name {name!r} cannot name a directory: use letters, digits, '_', '-', '.' and '+'"
        )
    path = _named_by_time(out, name, now)
    made = create_at(path, experiment)
    _write(out / LATEST, path.name + "\n")
    return made


def create_at(path: Path, experiment: dict[str, Any]) -> RunDir:
    """Make the run directory `path`, where nothing but an empty directory is. Raises `TraceError`."""
    with _one_line(f"cannot make a run directory in {path.parent}", "choose another with --out"):
        (path / "events").mkdir(parents=True, exist_ok=True)
    _write_json(path / "experiment.json", experiment)
    _write_json(path / "lock.json", provenance())
    return RunDir(path)


def create_suite(out: Path, name: str, now: datetime, suite: dict[str, Any]) -> Path:
    """Make a directory for several runs, each in a directory of its own inside, and let `out/latest` name it.

    `suite` becomes its suite.json. Raises as `create` does.
    """
    path = _named_by_time(out, name, now)
    _write_json(path / SUITE, suite)
    _write_json(path / "lock.json", provenance())
    _write(out / LATEST, path.name + "\n")
    return path


def _named_by_time(out: Path, name: str, now: datetime) -> Path:
    stem = f"{name}-{now.astimezone(UTC):%Y%m%dT%H%M%S}"
    with _one_line(f"cannot make a run directory in {out}", "choose another with --out"):
        out.mkdir(parents=True, exist_ok=True)
        return _new_directory(out, stem)


def open_run(run: str | Path, out: Path) -> RunDir:
    """The run at a path, of that name in `out`, or the one made last (`latest`). Raises `UsageError` where
    there is none."""
    found = find_run(run, out)
    if isinstance(found, RunDir):
        return found
    inside = ", ".join(f"{run}/{label}" for label in list(suite_runs(found))[:6])
    raise UsageError(f"{found.name} is a study of several experiments: name one of them ({inside})")


def find_run(run: str | Path, out: Path) -> RunDir | Path:
    """The run at a path, of that name in `out`, or the one made last; of a study of several, its directory.

    One experiment of a study is `STUDY/LABEL`. Raises `UsageError` where there is none.
    """
    given, slash, label = str(run).partition("/")
    if given == LATEST and not Path(LATEST).is_dir():
        try:
            given = (out / LATEST).read_text().strip()
        except OSError as error:
            raise UsageError(f"no latest run in {out}: run an experiment first, or say where with --out") from error
    given = f"{given}{slash}{label}"
    for path in (out / given, Path(given)):
        if (path / "experiment.json").is_file():
            return RunDir(path)
        if (path / SUITE).is_file():
            return path
    raise UsageError(f"no run {given!r} here or in {out}: give the run's directory, its name, or 'latest'{_known(out)}")


def suite_runs(path: Path) -> dict[str, RunDir]:
    """The runs of a study of several experiments, by label, in their declared order. Raises `TraceError`."""
    labels = read_json(path / SUITE)["experiments"]
    return {label: RunDir(path / label) for label in labels}


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `TraceError`."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TraceError(f"run {path.parent.name}: {path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise TraceError(f"run {path.parent.name}: {path.name} holds no JSON object")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of a run, whole or not at all. Raises `TraceError`."""
    _write_json(path, content)


def _known(out: Path) -> str:
    runs = sorted(path.parent.name for name in ("experiment.json", SUITE) for path in out.glob(f"*/{name}"))
    return f" (there are {', '.join(runs[-5:])})" if runs else ""


def _new_directory(out: Path, stem: str) -> Path:
    n = 1
    while True:
        path = out / f"{stem}-{n}"
        try:
            path.mkdir()
        except FileExistsError:
            n += 1
        else:
            return path


def _is_complete(path: Path) -> bool:
    try:
        with LogFile(path) as log:
            return log.complete
    except TraceError:
        return False


def _events(path: Path) -> int:
    """Events in a log, -1 where there is no log that can be read."""
    try:
        with LogFile(path) as log:
            return len(log)
    except TraceError:
        return -1


def _lock(held: int, name: str) -> None:
    try:
        import fcntl
    except ImportError:  # no such lock on this system
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(f"run {name} is being written by another process: wait for it, or start a new run") from error


@contextmanager
def _one_line(what: str, advice: str = "make room, or check who may write there") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TraceError(f"{what}: {error.strerror or error}; {advice}") from error


def _write_json(path: Path, content: dict[str, Any]) -> None:
    try:
        text = json.dumps(content, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InternalError(f"what is to be written to {path.name} is no JSON: {error}") from error
    _write(path, text + "\n")


def _write(path: Path, content: str) -> None:
    """Write a file so that a reader sees the old or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with _one_line(f"cannot write {path}"):
        try:
            unfinished.write_text(content, encoding="utf-8")
            os.replace(unfinished, path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
