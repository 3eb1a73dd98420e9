"""Calibrated models: simulated from likelihoods that a real copy of a model gave on a sample of tasks.

Each task is given one task of the sample, of the same ability, and every copy finds the task's right and wrong options as
likely as it found those of the sample. The draw depends on seed and task alone: where one copy errs the others err as they
really did together, and a copy reviews as it answers. This is a bootstrap of the calibration, and says 'simulated'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from meshheal.errors import InternalError, UsageError
from meshheal.likelihood import answer_text, best, write_endings
from meshheal.model import Completion, Request
from meshheal.rng import number
from meshheal.types import Task, TaskId, Usage
from sim.models.calibration import Calibration, from_row
from sim.workloads.sheet import AnswerSheet, base_id

SECONDS = 0.3
"""Latency of a call (estimated: four short prompts in one request on one busy core)."""
_CHARACTERS = 4
"""Characters a token (estimated)."""


class Calibrated:
    """The model `calibrated/<copy>`. All copies of a calibration are one family, as they stand behind one name."""

    nature: Literal["simulated"] = "simulated"
    weighs = True
    """It answers requests for likelihoods."""

    def __init__(
        self, copy: str, calibration: Calibration, sheet: AnswerSheet, tasks: Mapping[TaskId, Task], seed: int
    ) -> None:
        self.name = f"calibrated/{copy}"
        self.family = calibration.model
        self._rows = calibration.rows[copy]
        self._sheet = sheet
        self._tasks = tasks
        self._seed = seed
        lacking = sorted({t.ability for t in tasks.values()} - self._rows.keys())
        if lacking:
            raise UsageError(
                f"model {self.name}: the calibration has no tasks of {lacking[0]!r}, only of {', '.join(self._rows)}; use "
                "the workload it was made with"
            )

    async def complete(self, request: Request) -> Completion:
        """Answer `request`; never waits. Raises `UsageError` for a review in words, which likelihoods cannot give."""
        task = self._tasks.get(request.key.item)
        if task is None:
            raise InternalError(f"{self.name} was asked about {request.key.item!r}, none of its tasks")
        loglik = self.loglik(task)
        if request.score == "endings":
            texts: tuple[str, ...] = (write_endings(loglik),)
        elif request.key.purpose in ("review", "deliberate") or request.score:
            raise UsageError(f"model {self.name}: reviews by likelihood only; set review.by to likelihood")
        else:
            texts = (answer_text(task, best(loglik)),) * request.sampling.n
        asked = sum([len(task.cloze.stem) + len(e) for e in task.cloze.endings]) if task.cloze else 0
        return Completion(texts, Usage(asked // _CHARACTERS, 0), SECONDS)

    def loglik(self, task: Task) -> tuple[float, ...]:
        """How likely the copy finds the task's options, in their order."""
        rows = self._rows[task.ability]
        row = rows[number("calibrated", self._seed, base_id(task.id)) % len(rows)]
        if len(row) != len(task.form.options):
            raise UsageError(
                f"model {self.name}: {task.id} has {len(task.form.options)} options, the calibration {len(row)}"
            )
        return from_row(row, task.form.options.index(self._sheet.gold(task.id)))
