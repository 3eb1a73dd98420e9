"""Results as flat rows, one for each experiment, method and seed; and as a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshheal.errors import UsageError
from meshheal.measures import MEASURES
from meshheal.results import read_arms

Row = dict[str, str | int | float | None]


def rows(content: Mapping[str, Any]) -> list[Row]:
    """Per-seed values of every measure a seed has, with what they belong to. `content` is a results.json."""
    if "suite" in content:
        return [
            {"suite": content["suite"], "label": label, **row}
            for label, one in content["experiments"].items()
            for row in rows(one)
        ]
    return [
        {
            "experiment": content["experiment"],
            "mode": content["mode"],
            "reviews": content["reviews"],
            "tokens": content["tokens"],
            "method": method,
            "seed": r.seed,
            "tasks": r.tasks,
            **{m.name: m.of(r) for m in MEASURES.values()},
            "false_exclusions_twin": r.false_exclusions_twin,
            "observations_healthy": r.observations_healthy,
            "observations_twin": r.observations_twin,
            "event_hash": r.event_hash,
        }
        for method, seeds in read_arms(content).items()
        for r in seeds
    ]


def write_parquet(content: Mapping[str, Any], path: Path) -> int:
    """Write the rows as Parquet; return their number. Raises `UsageError` without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: pip install 'meshheal[tables]'") from error
    made = rows(content)
    try:
        parquet.write_table(pyarrow.Table.from_pylist(made), path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return len(made)
