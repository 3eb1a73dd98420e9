"""Tables by column: what a page gets of an arm. Row i of a table is entry i of each of its lists.

`x` is the number of the arrival (from 0) during which something happened, the axis that everything is drawn on; `t` is
in seconds of the run's clock. Words that repeat (abilities, outcomes, reasons) are numbers into `Arm.words`; `task` is
a row of `Tasks`, or -1 where that task is not listed.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct, field

from meshheal.folds.report.incidents import Incident


class Tasks(Struct):
    """Tasks in the order of their arrival. `correct` is 1, 0, or -1 without an answer or a grade."""

    x: list[int] = field(default_factory=list)
    id: list[str] = field(default_factory=list)
    t: list[float] = field(default_factory=list)
    ability: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    author: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    correct: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class Scores(Struct):
    """Review records: what a detector reads. `score` in hundredths; `probe` is 1 for the probe channel."""

    x: list[int] = field(default_factory=list)
    agent: list[int] = field(default_factory=list)
    score: list[int] = field(default_factory=list)
    probe: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)


class Evidence(Struct):
    """Evidence that an observer holds against an agent, where it crossed a power of two; in tenths of log2."""

    x: list[int] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    agent: list[int] = field(default_factory=list)
    level: list[int] = field(default_factory=list)


class States(Struct):
    """What observers came to believe. `to` is 0 healthy, 1 suspect, 2 probation, 3 excluded; `ability` -1 the whole agent."""

    x: list[int] = field(default_factory=list)
    t: list[float] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    agent: list[int] = field(default_factory=list)
    to: list[int] = field(default_factory=list)
    ability: list[int] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)
    reason: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)


class Probes(Struct):
    """Probes: `score` in hundredths, -1 where there is none; `why` is the motive."""

    x: list[int] = field(default_factory=list)
    t: list[float] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    agent: list[int] = field(default_factory=list)
    score: list[int] = field(default_factory=list)
    why: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)


class Window(Struct):
    """A stretch of arrivals, half open, in which an agent ran on another model; `end` None while it does."""

    agent: int
    model: str
    start: int
    end: int | None
    degraded: bool


class Arm(Struct):
    """One method under one seed, as a page draws it."""

    words: list[str]
    arrivals: int
    seconds: float
    tasks: Tasks
    scores: Scores
    evidence: Evidence
    states: States
    probes: Probes
    windows: list[Window]
    incidents: list[Incident]
    thinned: list[str]
    """What was left out of the tables above because there was too much of it, in words."""


class Words:
    """Words as numbers, in the order first met."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = len(self.all)
            self.all.append(word)
        return number


Table = TypeVar("Table", Scores, Evidence, Probes)


def thin(table: Table, most: int) -> Table:
    """Every k-th row, so that at most `most` are left."""
    names = table.__struct_fields__
    columns: Any = [getattr(table, name) for name in names]
    step = -(-len(columns[0]) // most)
    return type(table)(*[column[::step] for column in columns]) if step > 1 else table
