"""Grading: the settled value of a task against the answer sheet. No answer is told apart from a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from meshheal.types import Task
from sim.workloads.sheet import AnswerSheet

Verdict = Literal["correct", "wrong", "no_answer"]


def grade(sheet: AnswerSheet, task: Task, value: str | None) -> Verdict:
    """What a settled value is worth; None is `no_answer`."""
    if value is None:
        return "no_answer"
    return "correct" if sheet.correct(task, value) else "wrong"


class Grades(Struct):
    """Counts of verdicts. Accuracy is over all that was graded: a task without an answer is not right."""

    correct: int = 0
    wrong: int = 0
    no_answer: int = 0

    def count(self, verdict: Verdict) -> None:
        match verdict:
            case "correct":
                self.correct += 1
            case "wrong":
                self.wrong += 1
            case "no_answer":
                self.no_answer += 1

    @property
    def total(self) -> int:
        return self.correct + self.wrong + self.no_answer

    @property
    def accuracy(self) -> float | None:
        """Share of correct among all; None if nothing was graded."""
        return self.correct / self.total if self.total else None

    @property
    def no_answer_rate(self) -> float | None:
        return self.no_answer / self.total if self.total else None


def grade_all(sheet: AnswerSheet, settled: Iterable[tuple[Task, str | None]]) -> Grades:
    """The counts over pairs of a task and its settled value."""
    grades = Grades()
    for task, value in settled:
        grades.count(grade(sheet, task, value))
    return grades
