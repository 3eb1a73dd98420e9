"""Calibrated models: simulated from likelihoods measured on a sample."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.errors import UsageError
from meshheal.likelihood import best, cloze, endings, read_endings
from meshheal.model import CallKey, Request, Sampling
from meshheal.types import AnswerForm, Cloze, Message, Task
from sim.models import Calibrated, catalogue
from sim.models.calibration import Calibration, as_row, from_row, read
from sim.workloads.sheet import AnswerSheet

ROWS = ((-1.0, -2.0, -3.0, -4.0), (-3.0, -1.0, -5.0, -6.0), (-0.5, -4.0, -4.0, -4.0))
BAD = ((-5.0, -2.0, -3.0, -4.0), (-3.0, -1.0, -5.0, -6.0), (-4.5, -4.0, -3.0, -4.0))
FOUND = Calibration(
    "2026-11-30", "small", "here", {"capital": ("a", "b", "c")}, {"healthy": {"capital": ROWS}, "q4": {"capital": BAD}}
)


def task(number: int) -> Task:
    names = ("Paris", "Lima", "Oslo", "Cairo")
    form = AnswerForm("text", names)
    stem = f"The capital of number {number} is"
    return Task(
        f"t/{number}", (Message("user", stem),), form, "capital", "", Cloze(stem, tuple(f" {n}" for n in names))
    )


TASKS = {t.id: t for t in map(task, range(60))}
SHEET = AnswerSheet({t: TASKS[t].form.options[i % 4] for i, t in enumerate(TASKS)})


def model(copy: str, seed: int = 0) -> Calibrated:
    return Calibrated(copy, FOUND, SHEET, TASKS, seed)


def asked(m: Calibrated, of: Task, score: str = "", purpose: str = "produce") -> str:
    messages = endings(cloze(of)) if score else of.messages
    request = Request(messages, Sampling(), CallKey(of.id, 0, purpose, 0), score)
    return asyncio.run(m.complete(request)).texts[0]


@given(st.lists(st.floats(-9, 0), min_size=2, max_size=6), st.data())
def test_a_row_goes_to_the_places_of_any_task_and_back(loglik, data):
    gold = data.draw(st.integers(0, len(loglik) - 1))
    row = as_row(loglik, gold)
    assert row[0] == loglik[gold]
    assert from_row(row, gold) == tuple(loglik)


def test_accuracy_counts_the_rows_whose_right_ending_is_likeliest():
    assert FOUND.accuracy("healthy", "capital") == pytest.approx(2 / 3)
    assert FOUND.accuracy("q4", "capital") == 0


def test_a_copy_is_as_often_right_as_its_calibration_says():
    m = model("healthy")
    right = [SHEET.correct(t, asked(m, t).removeprefix("The answer is ").removesuffix(".")) for t in TASKS.values()]
    assert sum(right) / len(right) == pytest.approx(2 / 3, abs=0.15)


def test_it_weighs_as_it_answers():
    m = model("healthy")
    for t in TASKS.values():
        loglik = read_endings(asked(m, t, "endings", "review"), cloze(t))
        assert asked(m, t) == f"The answer is {t.form.options[best(loglik)]}."


def test_two_copies_see_the_same_sampled_task_so_their_errors_go_together():
    healthy, bad = model("healthy"), model("q4")
    both = {(healthy.loglik(t), bad.loglik(t)) for t in TASKS.values()}
    pairs = {(from_row(h, g), from_row(b, g)) for h, b in zip(ROWS, BAD, strict=True) for g in range(4)}
    assert both <= pairs


def test_another_seed_draws_other_tasks_of_the_sample():
    assert [model("healthy", 0).loglik(t) for t in TASKS.values()] != [
        model("healthy", 1).loglik(t) for t in TASKS.values()
    ]


def test_all_copies_are_one_family_and_say_simulated():
    assert model("q4").family == model("healthy").family == "small"
    assert model("q4").nature == "simulated"


def test_a_review_in_words_is_refused_with_what_to_set():
    with pytest.raises(UsageError, match=r"review\.by to likelihood"):
        asked(model("healthy"), TASKS["t/0"], purpose="review")


def test_a_workload_with_other_abilities_is_refused():
    other = {"x": msgspec.structs.replace(task(1), ability="law")}
    with pytest.raises(UsageError, match="no tasks of 'law'"):
        Calibrated("healthy", FOUND, SHEET, other, 0)


def test_a_file_is_read_as_it_was_written_and_its_copies_are_listed(tmp_path):
    path = tmp_path / "calibration.json"
    path.write_bytes(msgspec.json.encode(FOUND))
    assert read(path) == FOUND
    assert {"calibrated/healthy", "calibrated/q4"} <= set(catalogue(path))


def test_a_file_that_is_missing_cut_off_or_uneven_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="make live-calibration"):
        read(tmp_path / "none.json")
    cut = tmp_path / "cut.json"
    cut.write_bytes(msgspec.json.encode(FOUND)[:40])
    with pytest.raises(UsageError, match="not one"):
        read(cut)
    uneven = tmp_path / "uneven.json"
    uneven.write_bytes(msgspec.json.encode(msgspec.structs.replace(FOUND, items={"capital": ("a",)})))
    with pytest.raises(UsageError, match="lacks tasks"):
        read(uneven)
