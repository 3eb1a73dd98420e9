"""Grading: settled values against gold answers, and how it fares on published outputs of real models."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from meshheal.types import AnswerForm, Message, Task
from sim.workloads.grading import Grades, grade, grade_all
from sim.workloads.sheet import AnswerSheet

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import grading_report

DATA = Path(os.environ.get("MESHHEAL_DATA") or Path(__file__).parents[1].parent / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no published data; set MESHHEAL_DATA to its folder")

TASK = Task("t", (Message("user", "?"),), AnswerForm("number"))
SHEET = AnswerSheet({"t": "1/2"})


def test_no_answer_is_told_apart_from_wrong_and_is_not_right() -> None:
    assert grade(SHEET, TASK, "0.5") == "correct"
    assert grade(SHEET, TASK, "0.6") == "wrong"
    assert grade(SHEET, TASK, None) == "no_answer"
    grades = grade_all(SHEET, [(TASK, "0.5"), (TASK, "7"), (TASK, None), (TASK, None)])
    assert (grades.correct, grades.wrong, grades.no_answer, grades.total) == (1, 1, 2, 4)
    assert (grades.accuracy, grades.no_answer_rate) == (0.25, 0.5)


def test_nothing_graded_has_no_accuracy() -> None:
    assert Grades().accuracy is None
    assert Grades().no_answer_rate is None


def test_a_repeated_task_is_graded_as_its_item() -> None:
    assert grade(SHEET, Task("t#3", TASK.messages, TASK.form), "1/2") == "correct"


@pytest.mark.data
@needs_data
def test_the_grader_agrees_with_the_labels_of_800_real_solutions() -> None:
    report = grading_report.math_report(DATA)
    assert report.solutions == 800
    assert report.agreement >= 0.99
    assert {(d.idx, d.sample) for d in report.disagreements} == {
        (v.idx, sample) for v in grading_report.VERDICTS if v.who != "both wrong" for sample in v.samples
    }


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("model", ["gemini-1.5-pro-002", "Meta-Llama-3_1-8B-Instruct", "Llama-2-7b-hf"])
def test_a_letter_asserted_alone_is_read_and_every_difference_has_a_reason(model: str) -> None:
    report = grading_report.letters_report(DATA / "mmlu_pro" / f"model_outputs_{model}_5shots.zip", every=4)
    assert report.texts > 2900
    assert report.alone_and_read == report.alone > 2000
    assert "unexplained" not in report.reasons
    assert report.agree + sum(report.reasons.values()) == report.texts
