"""Calibrations: what copies of a model made of a sample of tasks, measured once on real servers. The ground of predictions.

A calibration is small and holds no text: for each copy and ability the log-likelihoods of the right ending and of the wrong
ones, task by task, the same tasks in the same order for every copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from meshheal.errors import UsageError
from meshheal.likelihood import best
from meshheal.types import Ability, TaskId

Row = tuple[float, ...]
"""Mean log-likelihood per token, in nats: of the right ending, then of the wrong ones in the order of the options."""


class Calibration(Struct, frozen=True):
    """`rows[copy][ability]` are in the order of `items[ability]`. `made` is a UTC date, `source` the tasks' origin."""

    made: str
    model: str
    source: str
    items: dict[Ability, tuple[TaskId, ...]]
    rows: dict[str, dict[Ability, tuple[Row, ...]]]

    def accuracy(self, copy: str, ability: Ability) -> float:
        """Share of the tasks whose right ending is the likeliest."""
        rows = self.rows[copy][ability]
        return sum(best(row) == 0 for row in rows) / len(rows)


def as_row(loglik: Sequence[float], gold: int) -> Row:
    """Likelihoods in the order of a task's options, of which number `gold` is right, as a row."""
    return (loglik[gold], *[value for i, value in enumerate(loglik) if i != gold])


def from_row(row: Row, gold: int) -> Row:
    """A row as likelihoods in the order of a task's options, of which number `gold` is right."""
    wrong = row[1:]
    return (*wrong[:gold], row[0], *wrong[gold:])


def read(path: Path) -> Calibration:
    """A calibration from its file. Raises `UsageError`."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(f"calibration {path}: {error.strerror}; make it with `make live-calibration`") from error


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> Calibration:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except msgspec.DecodeError as error:
        raise UsageError(f"calibration {path}: not one ({error}); make it with `make live-calibration`") from error
    for copy, by_ability in found.rows.items():
        for ability, items in found.items.items():
            if not items or len(by_ability.get(ability, ())) != len(items):
                raise UsageError(f"calibration {path}: {copy} lacks tasks of {ability}; make it anew")
    return found
