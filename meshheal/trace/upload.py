"""Copies a run directory to anywhere that fsspec can write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshheal.errors import TraceError, UsageError
from meshheal.trace.reader import LogFile

_LAST = "results.json"
"""Copied after everything else: where it is, the rest is too."""
_CHUNK = 1 << 22


def reachable(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path on it. Raises `UsageError` for a URL nobody can open."""
    from fsspec.core import url_to_fs

    try:
        there, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"cannot copy to {url}: {error}") from error
    return there, root


def upload(run: Path, url: str) -> list[str]:
    """See `RunDir.copy_to`."""
    there, root = reachable(url)
    copied = []
    files = [path for path in run.rglob("*") if path.is_file() and not path.name.startswith(".")]
    for path in sorted(files, key=lambda path: (path.name == _LAST, path)):
        name = path.relative_to(run).as_posix()
        try:
            if _copy(path, there, f"{root.rstrip('/')}/{run.name}/{name}"):
                copied.append(name)
        except OSError as error:
            raise TraceError(f"run {run.name}: cannot copy {name} to {url}: {error.strerror or error}") from error
    return copied


def _copy(path: Path, there: Any, target: str) -> bool:
    """Copy what is whole of a file; False where the target has it already."""
    is_log = path.name.endswith(".jsonl.zst")
    length = _whole_bytes(path) if is_log else path.stat().st_size
    # A log is only ever appended to, so a copy of the same length is the same; other files are small.
    if is_log and there.exists(target) and there.size(target) == length:
        return False
    there.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
    with path.open("rb") as source, there.open(target, "wb") as sink:
        while length > 0 and (data := source.read(min(_CHUNK, length))):
            sink.write(data)
            length -= len(data)
    return True


def _whole_bytes(path: Path) -> int:
    try:
        with LogFile(path) as log:
            return log.whole_bytes()
    except TraceError:
        return 0
