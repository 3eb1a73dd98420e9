"""Workloads: what is drawn, from what data, and what happens when the data is bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from meshheal.answers import read
from meshheal.errors import UsageError
from meshheal.types import AnswerForm, Task
from sim.workloads import WorkloadSpec, base_id, bbh, gym, load, math, mmlu_pro, repeated
from sim.workloads import gym as gym_factory
from sim.workloads.gym import ABILITIES, KINDS
from sim.workloads.mmlu_pro import GROUPS as CATEGORIES
from sim.workloads.mmlu_pro import conflicts, drop_conflicts, published_outputs
from sim.workloads.sheet import AnswerSheet, Workload
from sim.workloads.slips import slips

DATA = Path(os.environ.get("MESHHEAL_DATA") or Path(__file__).parents[1].parent / "shared" / "data")
needs_data = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA.is_dir(), reason="no published data; set MESHHEAL_DATA to its folder"),
]


def reply(task: Task, value: str) -> str:
    """A reply that obeys the task's instruction."""
    match task.form:
        case AnswerForm(kind="choice"):
            return f"Some work.\nThe answer is ({value})."
        case AnswerForm(kind="math"):
            return f"Some work. \\boxed{{{value}}}"
        case AnswerForm(kind="text", options=()):
            return f"Some work.\nThe answer is: {value}"
        case _:
            return f"Some work.\nThe answer is {value}."


def check_items(workload: Workload, tasks: list[Task]) -> None:
    """Gold answers are read back as right, slips as wrong; abilities are the declared ones."""
    sheet = workload.sheet
    for task in tasks:
        gold = sheet.gold(task.id)
        assert sheet.correct(task, read(task.form, reply(task, gold))), (task.id, gold)
        for i in range(6):
            wrong = sheet.plausible_wrong(task, i / 6, modal=False)
            got = read(task.form, reply(task, wrong))
            assert got is not None, (task.id, wrong)
            assert not sheet.correct(task, got), (task.id, gold, wrong)
        assert task.ability in workload.abilities
        assert task.messages[-1].role == "user"


def test_a_declaration_names_the_workload_and_loads_it() -> None:
    assert gym("math", tasks=630) == WorkloadSpec("gym:math", 630)
    assert (bbh(data="d").name, math().name, mmlu_pro(tasks=5).tasks) == ("bbh", "math", 5)
    assert gym_factory("math").load().name == "gym:math"


def test_gym_tasks_are_read_and_graded_exactly() -> None:
    workload = load("gym:math")
    tasks = workload.tasks(400, seed=5)
    check_items(workload, tasks)
    assert {t.kind for t in tasks} == set(KINDS)
    assert workload.benchmark == "MATH"
    assert "proxy" in workload.source


def test_gym_tasks_are_spread_evenly_over_abilities_and_never_repeat() -> None:
    workload = load("gym:math")
    tasks = workload.tasks(1500, seed=1)
    assert len({t.id for t in tasks}) == len({t.messages[0].content for t in tasks}) == 1500
    assert repeated(tasks) == 0
    counts = Counter(t.ability for t in tasks)
    assert set(counts) == set(ABILITIES["math"]) == set(workload.abilities)
    assert min(counts.values()) > 400


def test_a_shorter_gym_stream_is_the_beginning_of_a_longer_one_and_seeds_differ() -> None:
    workload = load("gym:math")
    assert load("gym:math").tasks(50, seed=3) == workload.tasks(80, seed=3)[:50]
    assert {t.id for t in workload.tasks(50, seed=3)}.isdisjoint(t.id for t in workload.tasks(50, seed=4))


def test_gym_tasks_do_not_depend_on_the_hash_seed_and_load_no_plotting_library() -> None:
    code = (
        "import sys; from sim.workloads import load; w = load('gym:math'); ts = w.tasks(150, 9);"
        "print([(t.id, t.messages[0].content, w.sheet.gold(t.id)) for t in ts]);"
        "print([w.sheet.plausible_wrong(t, .4, False) for t in ts]);"
        "assert 'matplotlib' not in sys.modules"
    )
    outs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": s},
            check=True,
            capture_output=True,
        )
        for s in ("1", "77")
    ]
    assert outs[0].stdout == outs[1].stdout != b""


@pytest.mark.slow
def test_the_whole_generator_package_can_still_be_imported_afterwards() -> None:
    code = (
        "import warnings; warnings.simplefilter('ignore');"
        "from sim.workloads import load; load('gym:math').tasks(40, 1);"
        "import reasoning_gym; assert reasoning_gym.create_dataset('chain_sum', seed=1, size=1)[0]['answer']"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_items_that_run_out_are_dealt_again_under_a_marked_id(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    rows = [
        {"problem": f"{i}?", "level": f"Level {1 + i % 5}", "type": kind, "solution": f"\\boxed{{{i}}}"}
        for i, kind in enumerate(("Algebra", "Geometry", "Prealgebra", "Algebra", "Precalculus", "Number Theory"))
    ]
    path.write_text("\n".join(json.dumps(r) for r in rows))
    workload = load("math", path)
    tasks = workload.tasks(30, seed=2)
    assert len({t.id for t in tasks}) == 30
    assert repeated(tasks) == 24
    assert {base_id(t.id) for t in tasks} == {f"math/{i}" for i in range(6)}
    again = next(t for t in tasks if t.id.endswith("#2"))
    assert workload.sheet.gold(again.id) == workload.sheet.gold(base_id(again.id))
    assert workload.difficulty(again.id) == workload.difficulty(base_id(again.id)) is not None


@pytest.mark.parametrize(
    ("form", "gold"),
    [
        (AnswerForm("choice", ("A", "B", "C")), "B"),
        (AnswerForm("text", ("Yes", "No")), "No"),
        (AnswerForm("number"), "0"),
        (AnswerForm("number"), "-12.50"),
        (AnswerForm("number"), "3/4"),
        (AnswerForm("math"), r"\frac{1}{2}"),
        (AnswerForm("math"), r"\text{Evelyn}"),
        (AnswerForm("math"), "x"),
        (AnswerForm("text"), "apple banana cherry"),
        (AnswerForm("text"), "syndrome"),
        (AnswerForm("text"), ") )"),
        (AnswerForm("text"), "aa"),
    ],
)
def test_every_kind_of_answer_has_plausible_wrong_ones(form: AnswerForm, gold: str) -> None:
    wrong = slips("item", form, gold)
    assert wrong == slips("item", form, gold)
    assert gold not in wrong
    assert len(wrong) == len(set(wrong)) >= (1 if len(form.options) == 2 else 2)


def test_the_modal_slip_is_shared_and_other_gold_answers_change_nothing_else() -> None:
    workload = load("gym:math")
    task = workload.tasks(1, seed=1)[0]
    modal = workload.sheet.plausible_wrong(task, 0.9, modal=True)
    assert modal == workload.sheet.plausible_wrong(task, 0.1, modal=True)
    other = workload.sheet.with_golds({task.id: modal})
    assert other.correct(task, modal)
    assert not workload.sheet.correct(task, modal)


def test_a_task_of_another_workload_is_refused() -> None:
    with pytest.raises(UsageError, match="no gold answer for task 'x'"):
        AnswerSheet().gold("x")


# --- bad data --------------------------------------------------------------------------------------------


def assert_refused(name: str, path: Path, *wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(name, path)
    message = str(caught.value)
    assert "\n" not in message
    for part in wanted:
        assert part in message, message


@pytest.mark.parametrize("name", ["math", "mmlu_pro", "bbh"])
def test_a_missing_file_is_named_in_one_line(name: str, tmp_path: Path) -> None:
    missing = tmp_path / "boolean_expressions.json"
    assert_refused(name, missing, "boolean_expressions.json", "no such file")


@pytest.mark.parametrize("name", ["math", "mmlu_pro", "bbh"])
def test_an_empty_file_is_named_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "word_sorting.json"
    path.write_text("")
    assert_refused(name, path, "word_sorting.json", "empty")


def test_a_math_file_cut_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    row = json.dumps({"problem": "?", "level": "Level 1", "type": "Algebra", "solution": "\\boxed{1}"})
    path.write_text(f"{row}\n{row}\n{row[:40]}")
    assert_refused("math", path, "test.jsonl", "line 3", "cut off")


def test_an_outputs_file_cut_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "model_outputs_x.json"
    path.write_text(json.dumps([_row(1), _row(2)], indent=1)[:-60])
    assert_refused("mmlu_pro", path, "model_outputs_x.json", "cut off at line")
    archive = tmp_path / "model_outputs_y.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("model_outputs_y.json", json.dumps([_row(1), _row(2)]))
    archive.write_bytes(archive.read_bytes()[:-80])
    assert_refused("mmlu_pro", archive, "model_outputs_y.zip", "cut off or damaged")


def test_a_file_of_another_format_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "word_sorting.json"
    path.write_text('{"a": 1}')
    assert_refused("bbh", path, "word_sorting.json", "expected format", "examples")
    assert_refused("mmlu_pro", path, "expected format")
    path = tmp_path / "test.jsonl"
    path.write_text('{"a": 1}')
    assert_refused("math", path, "line 1", "expected format", "problem")
    path.write_text('{"problem": "?", "level": "Level 9", "type": "Algebra", "solution": "\\\\boxed{1}"}')
    assert_refused("math", path, "line 1", "Level 9")
    path.write_text('{"problem": "?", "level": "Level 1", "type": "Cooking", "solution": "\\\\boxed{1}"}')
    assert_refused("math", path, "line 1", "Cooking")
    path.write_bytes(b'{"problem": "\xff\xfe"}')
    assert_refused("math", path, "line 1")


def test_a_folder_without_the_files_says_so(tmp_path: Path) -> None:
    assert_refused("bbh", tmp_path, "none of BBH's 27")
    assert_refused("mmlu_pro", tmp_path, "no model_outputs_")
    assert_refused("math", tmp_path, "test.jsonl", "no such file")


def test_unknown_names_and_counts_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="unknown name 'mnist'; choose one of gym:math"):
        load("mnist")
    with pytest.raises(UsageError, match="no tasks on 'poetry'"):
        load("gym:poetry")
    with pytest.raises(UsageError, match="at least 1"):
        load("gym:math", tasks=0)


def test_without_data_and_hub_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*_: object, **__: object) -> str:
        raise OSError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    for name in ("math", "bbh", "mmlu_pro"):
        with pytest.raises(UsageError, match="give --data FILE"):
            load(name)
        with pytest.raises(UsageError, match="downloading is off; give --data FILE"):
            load(name, download=False)


def test_data_from_the_hub_records_its_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    folder = tmp_path / "snapshots" / "0123abcd"
    folder.mkdir(parents=True)
    row = {"problem": "?", "level": 4, "subject": "Algebra", "solution": "\\boxed{1}", "answer": "1"}
    (folder / "test.jsonl").write_text(json.dumps(row))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    workload = load("math")
    assert "@0123abcd" in workload.source
    assert workload.difficulty("math/0") == 0.75


# --- published outputs -----------------------------------------------------------------------------------


def _row(number: int, answer: str = "A", key: str = "generated_text", **more: object) -> dict[str, object]:
    return {
        "question_id": number,
        "question": "?",
        "options": ["x", "y", "z"],
        "answer": answer,
        "category": "Law",
        "pred": None,
        key: "The answer is (B).",
        **more,
    }


def _write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text(json.dumps(rows))
    return path


def test_both_keys_of_published_texts_are_read_from_json_and_zip(tmp_path: Path) -> None:
    rows = [
        _row(1),
        _row(2, key="model_outputs"),
        _row(3, generated_text=None),
        _row(4, model_outputs=["a", "b"]),
    ]
    path = _write(tmp_path / "model_outputs_a.json", rows)
    archive = tmp_path / "model_outputs_a.zip"
    with zipfile.ZipFile(archive, "w") as z:
        z.write(path, "model_outputs_a.json")
    records = list(published_outputs(path))
    assert records == list(published_outputs(archive))
    assert [r.text for r in records] == ["The answer is (B).", "The answer is (B).", "", "The answer is (B)."]
    assert records[0].category == "law"


def test_questions_whose_gold_differs_between_files_are_dropped(tmp_path: Path) -> None:
    one = _write(tmp_path / "model_outputs_a.json", [_row(1), _row(2, "B"), _row(3), _row(5, "C")])
    two = _write(tmp_path / "model_outputs_b.json", [_row(1), _row(2, "C"), _row(3, options=["x"]), _row(4)])
    records = [r for p in (one, two) for r in published_outputs(p)]
    assert conflicts(records) == {2}
    assert {r.question_id for r in drop_conflicts(records)} == {1, 3, 4, 5}
    workload = load("mmlu_pro", tmp_path)
    assert workload.sheet.ids() == ["mmlu_pro/1", "mmlu_pro/3"]
    assert workload.pool["society"][0].form.options == ("A", "B", "C")


# --- the published data ----------------------------------------------------------------------------------


class TestPublishedData:
    pytestmark = needs_data

    def test_bbh_holds_27_files_and_every_answer_is_read_back(self) -> None:
        workload = load("bbh", DATA / "bbh")
        tasks = [t for pool in workload.pool.values() for t in pool]
        assert len(tasks) == 6507
        assert "4 with a target of another form dropped" in workload.source
        assert len({t.kind for t in tasks}) == 27
        check_items(workload, tasks[::7])

    def test_math_holds_5000_problems_and_their_levels(self) -> None:
        workload = load("math", DATA / "math" / "test.jsonl")
        tasks = [t for pool in workload.pool.values() for t in pool]
        assert len(tasks) == 5000
        assert {workload.difficulty(t.id) for t in tasks} == {0.0, 0.25, 0.5, 0.75, 1.0}
        check_items(workload, tasks[::160])
        sheet = workload.sheet
        assert all(sheet.correct(t, read(t.form, reply(t, sheet.gold(t.id)))) for t in tasks)

    def test_mmlu_pro_drops_33_conflicts_and_has_every_category(self) -> None:
        paths = sorted((DATA / "mmlu_pro").glob("*.zip"))
        records = [r for p in paths for r in published_outputs(p)]
        assert len(conflicts(records)) == 33
        workload = load("mmlu_pro", paths[0])
        assert {t.kind for p in workload.pool.values() for t in p} == {c for cs in CATEGORIES.values() for c in cs}
        check_items(workload, workload.tasks(500, seed=1))
