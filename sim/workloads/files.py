"""Reading data files of workloads, with errors that name the file and the line; and fetching them from the
hub.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from meshheal.errors import UsageError

T = TypeVar("T")


def fail(path: Path, what: str) -> NoReturn:
    """Raise the `UsageError` about a data file."""
    raise UsageError(f"data {path}: {what}")


def content(path: Path, suffix: str = ".json") -> bytes:
    """The bytes of a file, or of the one `suffix` member of a zip. Raises `UsageError` if missing, empty or
    damaged.
    """
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                members = [n for n in archive.namelist() if n.endswith(suffix) and not n.startswith("__MACOSX")]
                if len(members) != 1:
                    fail(path, f"holds {len(members)} {suffix} files; give a zip of one, or the file")
                data = archive.read(members[0])
        else:
            data = path.read_bytes()
    except FileNotFoundError:
        fail(path, "no such file; check the path given with --data")
    except IsADirectoryError:
        fail(path, "is a folder; give the file")
    except (zipfile.BadZipFile, EOFError) as error:
        fail(path, f"is cut off or damaged ({error}); download it again")
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror or error})")
    if not data.strip():
        fail(path, "is empty; download it again")
    return data


def parse(data: bytes, kind: type[T] | Any, path: Path, line: int | None = None) -> T:
    """`data` as JSON of type `kind`. Raises `UsageError` naming file and line for broken JSON, and the field
    for a wrong one.
    """
    try:
        found: T = msgspec.json.decode(data, type=kind)
        return found
    except msgspec.ValidationError as error:
        where = "" if line is None else f"line {line}: "
        fail(path, f"{where}not in the expected format ({error}); give the file as published")
    except (msgspec.DecodeError, UnicodeDecodeError):
        fail(path, _broken(data, line))


def _broken(data: bytes, line: int | None) -> str:
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        at = error.lineno if line is None else line
        ended = error.pos >= len(error.doc.rstrip()) - 1 or "Unterminated" in error.msg
        how = "cut off" if ended else "broken"
        return f"{how} at line {at}, column {error.colno} ({error.msg}); download it again"
    except UnicodeDecodeError as error:
        at = 1 + data[: error.start].count(b"\n") if line is None else line
        return f"not text at line {at} ({error.reason}); download it again"
    return "not readable as JSON; download it again"


def lines(path: Path, kind: type[T]) -> list[T]:
    """The records of a JSON-lines file."""
    found: list[T] = []
    for number, line in enumerate(content(path, ".jsonl").split(b"\n"), 1):
        if line.strip():
            found.append(parse(line, kind, path, number))
    return found


def table(path: Path, kind: type[T]) -> list[T]:
    """The records of a .parquet, .jsonl or .json (a list) file, by its suffix."""
    if path.suffix == ".parquet":
        try:
            from pyarrow import parquet  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            fail(
                path,
                "reading parquet needs pyarrow; run `pip install pyarrow`, or give a JSON file with --data",
            )
        rows = parquet.read_table(path).to_pylist()
        try:
            return [msgspec.convert(row, kind) for row in rows]
        except msgspec.ValidationError as error:
            fail(path, f"not in the expected format ({error})")
    if path.suffix == ".jsonl":
        return lines(path, kind)
    return parse(content(path), list[kind], path)  # type: ignore[valid-type]


def from_hub(name: str, repository: str, patterns: Sequence[str], download: bool) -> tuple[Path, str]:
    """Folder of a data set's files fetched from the Hugging Face hub, and what to log of where they came
    from.

    Raises `UsageError` if `download` is off or the hub cannot be reached.
    """
    if not download:
        raise UsageError(f"workload {name}: no data given and downloading is off; give --data FILE")
    try:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(repository, repo_type="dataset", allow_patterns=list(patterns)))
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:120] or type(error).__name__
        raise UsageError(
            f"workload {name}: {repository} cannot be had from the Hugging Face hub ({reason}); give --data FILE"
        ) from error
    return folder, f"hf:{repository}@{folder.name}"


def hub_files(folder: Path, repository: str) -> list[Path]:
    """The data files in a folder from the hub, sorted. Raises `UsageError` if there is none."""
    found = sorted(p for s in (".json", ".jsonl", ".parquet") for p in folder.rglob(f"*{s}"))
    if not found:
        raise UsageError(f"workload: {repository} holds no data file of a known kind; give --data FILE")
    return found
