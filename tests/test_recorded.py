"""Recorded models: three formats read, solve-and-compare reviews, and nothing that knows a gold answer."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest

from meshheal import prompts
from meshheal.answers import instruction, read
from meshheal.errors import InternalError, UsageError
from meshheal.model import CallKey, Completion, Purpose, Request, Sampling
from meshheal.types import AnswerForm, Message, Score, Task, Unscored
from sim.models import Recorded, answered, catalogue, recordings, resolve
from sim.models.recordings import Sample
from sim.workloads.sheet import AnswerSheet, Workload

FORM = AnswerForm("choice", tuple("ABCDEFGHIJ"))
ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MESHHEAL_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not (DATA / "mmlu_pro").is_dir(), reason=f"no published outputs in {DATA}")


def tasks_of(n: int) -> dict[str, Task]:
    """`n` choice tasks with different questions, named as MMLU-Pro's are."""
    named = {}
    for i in range(1, n + 1):
        question = f"Question number {i}: which of the following statements about it holds?"
        prompt = f"{question}\nOptions: A to J\n{instruction(FORM)}"
        named[f"mmlu_pro/{i}"] = Task(f"mmlu_pro/{i}", (Message("user", prompt),), FORM)
    return named


def letter(value: str) -> str:
    return f"Some reasoning. The answer is ({value})."


def recorded(says: Mapping[str, str | list[str]], tasks: dict[str, Task], **options: Any) -> Recorded:
    """A model that was recorded with these texts, by item."""
    texts = {item: [said] if isinstance(said, str) else said for item, said in says.items()}
    recording = {item: {"produce": tuple([Sample(t) for t in given])} for item, given in texts.items()}
    return Recorded("m", recording, tasks, 1, **options)  # type: ignore[arg-type]


def ask(
    m: Recorded, task: Task, purpose: Purpose = "produce", agent: int = 0, n: int = 0, samples: int = 1
) -> Completion:
    key = CallKey(task.id, agent, purpose, agent, n)
    return m.sample(Request(task.messages, Sampling(n=samples), key), task)


def score(m: Recorded, task: Task, text: str, agent: int = 1, n: int = 0) -> float | None:
    """The score of a review, None if it had none."""
    request = Request(prompts.review(task, text), Sampling(), CallKey(task.id, agent, "review", 0, n))
    found = prompts.read_review(m.sample(request, task).texts[0])
    return found.value if isinstance(found, Score) else None


# --- answers ---------------------------------------------------------------------------------------------


def test_every_purpose_that_answers_gives_the_recorded_text() -> None:
    tasks = tasks_of(3)
    m = recorded({t: letter("B") for t in tasks}, tasks)
    purposes: tuple[Purpose, ...] = ("produce", "probe", "takeover")
    assert {ask(m, task, p).texts for task in tasks.values() for p in purposes} == {(letter("B"),)}
    assert m.nature == "recorded"
    assert m.name == "recorded/m"


def test_of_several_samples_the_key_draws_one_and_equal_keys_draw_the_same() -> None:
    tasks = tasks_of(40)
    m = recorded({t: [letter("A"), letter("B"), letter("C")] for t in tasks}, tasks)
    drawn = [ask(m, t).texts[0] for t in tasks.values()]
    assert set(drawn) == {letter("A"), letter("B"), letter("C")}
    assert drawn == [ask(m, t).texts[0] for t in tasks.values()]
    assert drawn != [ask(m, t, n=1).texts[0] for t in tasks.values()]
    assert len(set(ask(m, tasks["mmlu_pro/1"], samples=3).texts)) == 3


def test_tokens_are_those_recorded_or_a_quarter_of_the_characters() -> None:
    tasks = tasks_of(1)
    task = tasks["mmlu_pro/1"]
    counted = Recorded("m", {task.id: {"produce": (Sample("The answer is (A).", "stop", 70, 30),)}}, tasks, 1)
    assert (ask(counted, task).usage.prompt, ask(counted, task).usage.completion) == (70, 30)
    assert ask(recorded({task.id: "x" * 400}, tasks), task).usage.completion == 101


def test_an_item_dealt_again_is_answered_as_the_item() -> None:
    tasks = tasks_of(1)
    first = tasks["mmlu_pro/1"]
    again = Task("mmlu_pro/1#2", first.messages, first.form)
    m = recorded({"mmlu_pro/1": letter("D")}, tasks | {again.id: again})
    assert ask(m, again).texts == (letter("D"),)


def test_asked_items_that_are_missing_are_named_and_counted() -> None:
    tasks = tasks_of(10)
    expected = r"recorded/m: 8 of the asked items are not in f\.zip: mmlu_pro/10, .*, \.\.\."
    with pytest.raises(UsageError, match=expected):
        recorded({"mmlu_pro/1": "A", "mmlu_pro/2": "B"}, tasks, source="f.zip")


def test_a_prompt_that_was_not_recorded_is_refused() -> None:
    tasks = tasks_of(1)
    task = tasks["mmlu_pro/1"]
    m = recorded({task.id: letter("A")}, tasks)
    debate = (*task.messages, Message("assistant", "one view"), Message("user", "Answer again."))
    with pytest.raises(UsageError, match="this prompt was not recorded"):
        m.sample(Request(debate, Sampling(), CallKey(task.id, 0, "produce", 0)), task)
    with pytest.raises(UsageError, match="5 samples of item 'mmlu_pro/1' asked for, 1 recorded"):
        ask(m, task, samples=5)


def test_a_purpose_that_was_not_recorded_is_refused() -> None:
    tasks = tasks_of(1)
    task = tasks["mmlu_pro/1"]
    m = Recorded("m", {task.id: {"takeover": (Sample("The answer is (A)."),)}}, tasks, 1)
    assert ask(m, task, "takeover").texts == ("The answer is (A).",)
    with pytest.raises(UsageError, match="no 'produce' call was recorded for item 'mmlu_pro/1', only"):
        ask(m, task)


def test_an_item_that_is_none_of_its_tasks_is_a_bug() -> None:
    tasks = tasks_of(1)
    request = Request((), Sampling(), CallKey("elsewhere", 0, "produce", 0))
    with pytest.raises(InternalError, match="none of its tasks"):
        recorded({"mmlu_pro/1": "A"}, tasks).complete(request).send(None)


# --- reviews ---------------------------------------------------------------------------------------------


def test_a_review_follows_agreement_with_little_noise() -> None:
    tasks = tasks_of(3000)
    m = recorded({t: letter("B") for t in tasks}, tasks)
    agreed = [score(m, task, "I think so too. The answer is (B).") for task in tasks.values()]
    disputed = [score(m, task, letter("C")) for task in tasks.values()]
    assert None not in agreed + disputed
    assert fmean([s >= 0.6 for s in agreed if s is not None]) == pytest.approx(0.96, abs=0.02)
    assert fmean([s >= 0.6 for s in disputed if s is not None]) == pytest.approx(0.03, abs=0.015)


def test_an_agreeable_judge_accepts_disagreement_at_its_rate_and_stays_with_it() -> None:
    tasks = tasks_of(3000)
    m = recorded({t: letter("B") for t in tasks}, tasks, agreeable=0.75)
    first = [score(m, task, letter("C"), agent=1) for task in tasks.values()]
    other = [score(m, task, letter("C"), agent=2, n=1) for task in tasks.values()]
    yes = [[s is not None and s >= 0.6 for s in scores] for scores in (first, other)]
    assert fmean(yes[0]) == pytest.approx(0.73, abs=0.03)
    assert fmean([a == b for a, b in zip(*yes, strict=True)]) > 0.88
    with pytest.raises(UsageError, match=r"agreeable is 7; give a probability"):
        recorded(dict.fromkeys(tasks, "A"), tasks, agreeable=7)


def test_an_answer_without_a_value_disagrees_and_a_judge_without_one_has_no_score() -> None:
    tasks = tasks_of(200)
    m = recorded({t: letter("B") for t in tasks}, tasks)
    scores = [score(m, task, "I would rather not say.") for task in tasks.values()]
    assert fmean([s is not None and s >= 0.6 for s in scores]) < 0.1
    mute = recorded(dict.fromkeys(tasks, "No idea at all."), tasks)
    assert {score(mute, task, letter("B")) for task in tasks.values()} == {None}
    task = tasks["mmlu_pro/1"]
    request = Request(prompts.review(task, "x"), Sampling(), CallKey(task.id, 1, "review", 0))
    assert isinstance(prompts.read_review(mute.sample(request, task).texts[0]), Unscored)


def test_deliberation_keeps_the_opinion_whatever_the_others_say() -> None:
    tasks = tasks_of(300)
    m = recorded({t: letter("B") for t in tasks}, tasks)
    for others in ((Score(0.0, "wrong"),), (Score(1.0, "right"),)):
        kept = []
        for task in tasks.values():
            prompt = prompts.deliberate(task, letter("B"), others)
            found = m.sample(Request(prompt, Sampling(), CallKey(task.id, 1, "deliberate", 0)), task)
            verdict = prompts.read_review(found.texts[0])
            kept.append(isinstance(verdict, Score) and verdict.value >= 0.6)
        assert fmean(kept) > 0.9


def test_permuting_the_gold_answers_changes_no_reply(tmp_path: Path) -> None:
    tasks = tasks_of(60)
    completions = []
    for shift in (0, 3):
        folder = tmp_path / str(shift)
        folder.mkdir()
        golds = {i: "ABCDEFGHIJ"[(i + shift) % 10] for i in range(1, 61)}
        publish(folder / "model_outputs_m_5shots.json", dict.fromkeys(golds, letter("C")), golds)
        sheet = AnswerSheet({f"mmlu_pro/{i}": gold for i, gold in golds.items()})
        workload = Workload("mmlu_pro", "MMLU-Pro", ("any",), sheet, "made up")
        m = resolve("recorded/m", workload, tasks, 1, data=folder)
        assert isinstance(m, Recorded)
        replies = [(ask(m, t), score(m, t, letter("D")), score(m, t, letter("C"))) for t in tasks.values()]
        completions.append(replies)
    assert completions[0] == completions[1]


# --- files -----------------------------------------------------------------------------------------------


def publish(path: Path, texts: dict[int, str], golds: dict[int, str] | None = None, key: str = "model_outputs") -> None:
    """Write a file as MMLU-Pro's authors publish them."""
    rows = [
        {
            "question_id": i,
            "question": f"Question {i}",
            "options": [f"option {k}" for k in range(10)],
            "answer": (golds or {}).get(i, "A"),
            "category": "math",
            "pred": None,
            key: text,
        }
        for i, text in texts.items()
    ]
    data = json.dumps(rows)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(path.with_suffix(".json").name, data)
    else:
        path.write_text(data)


def opened(name: str, data: Path, tasks: dict[str, Task]) -> Recorded:
    model = resolve(name, Workload("w", "MMLU-Pro", ("any",), AnswerSheet(), "made up"), tasks, 1, data=data)
    assert isinstance(model, Recorded)
    return model


@pytest.mark.parametrize("suffix", [".json", ".zip"])
@pytest.mark.parametrize("key", ["model_outputs", "generated_text"])
def test_a_published_file_is_a_model_under_the_name_it_bears(tmp_path: Path, suffix: str, key: str) -> None:
    path = tmp_path / f"model_outputs_Big-Model-3_1_5shots{suffix}"
    publish(path, dict.fromkeys(range(1, 9), letter("E")), key=key)
    tasks = tasks_of(4)
    assert catalogue(tmp_path)[-1] == "recorded/Big-Model-3_1"
    for spelling in ("recorded/Big-Model-3_1", "recorded/big-model-3.1"):
        assert ask(opened(spelling, tmp_path, tasks), tasks["mmlu_pro/3"]).texts == (letter("E"),)


def harness_row(doc_id: int, doc: dict[str, Any], resps: list[Any], **more: Any) -> str:
    row = {"doc_id": doc_id, "doc": doc, "target": "A", "resps": resps, "filtered_resps": ["A"]}
    return json.dumps(row | more)


@pytest.mark.parametrize("nested", [True, False])
def test_a_harness_log_is_read_by_number_or_text_once_for_all_filters(tmp_path: Path, nested: bool) -> None:
    tasks = tasks_of(3)
    folder = tmp_path / "org__tiny-model"
    folder.mkdir()
    text = tasks["mmlu_pro/2"].messages[0].content.split("\nOptions")[0]
    short, unknown = {"question": "Question number 3"}, {"question": "other"}
    docs: list[dict[str, Any]] = [{"question_id": 1}, {"problem": text}, short, unknown]
    lines = []
    for filter_name in ("strict-match", "flexible-extract"):
        for i, doc in enumerate(docs):
            said = [letter("ABCD"[i]), letter("J")]
            lines.append(harness_row(i, doc, [said] if nested else said, filter=filter_name))
    (folder / "samples_mmlu_pro_2025-01-01.jsonl").write_text("\n".join(lines) + "\n")
    found = recordings.find(tmp_path)
    assert list(found) == ["tiny-model"]
    read_back = recordings.read("tiny-model", found["tiny-model"], tasks)
    held = {item: [s.text for s in by["produce"]] for item, by in read_back.items()}
    assert held == {f"mmlu_pro/{i}": [letter("ABC"[i - 1]), letter("J")] for i in (1, 2, 3)}


def test_a_harness_log_of_likelihoods_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    row = harness_row(0, {"question_id": 1}, [[[-3.1, False]], [[-1.0, True]]])
    (folder / "samples_mmlu.jsonl").write_text(row)
    with pytest.raises(UsageError, match=r"samples_mmlu.jsonl: holds log-likelihoods, no text"):
        opened("recorded/m", tmp_path, tasks_of(1))


def test_our_own_format_holds_several_models_and_samples_and_counts(tmp_path: Path) -> None:
    tasks = tasks_of(2)
    lines = [
        {"model": "a", "item": "mmlu_pro/1", "text": letter("A"), "usage": {"prompt": 5, "completion": 6}},
        {"model": "a", "item": "mmlu_pro/1", "text": "cut", "finish": "length"},
        {"model": "a", "item": "mmlu_pro/2", "purpose": "produce", "text": letter("B")},
        {"model": "b", "item": "mmlu_pro/2", "text": letter("C")},
    ]
    path = tmp_path / "ours.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "test.jsonl").write_text('{"problem": "something else", "level": "Level 3"}\n')
    assert catalogue(tmp_path)[-2:] == ("recorded/a", "recorded/b")
    held = recordings.read("a", [path], tasks)["mmlu_pro/1"]["produce"]
    assert held == (Sample(letter("A"), "stop", 5, 6), Sample("cut", "length", None, None))
    with pytest.raises(UsageError, match=r"recorded/b: 1 of the asked items are not in ours.jsonl"):
        opened("recorded/b", tmp_path, tasks)


def test_a_damaged_or_wrong_line_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "ours.jsonl"
    good = json.dumps({"model": "a", "item": "mmlu_pro/1", "text": "x"})
    path.write_text(good + "\n" + good[:20])
    with pytest.raises(UsageError, match=r"ours.jsonl: cut off at line 2"):
        opened("recorded/a", tmp_path, tasks_of(1))
    path.write_text(good.replace('"text"', '"purpose": "dream", "text"'))
    with pytest.raises(UsageError, match="purpose 'dream' is none of produce, review"):
        opened("recorded/a", tmp_path, tasks_of(1))


def test_only_items_that_all_the_recorded_models_answered_are_kept(tmp_path: Path) -> None:
    publish(tmp_path / "model_outputs_x_5shots.json", {1: "A", 2: "B", 3: "C"})
    publish(tmp_path / "model_outputs_y_5shots.json", {2: "A", 3: "B", 4: "C"})
    tasks = tasks_of(4)
    pool = {"any": tuple(tasks.values())}
    workload = Workload("w", "MMLU-Pro", ("any",), AnswerSheet(), "made up", pool)
    kept = answered(workload, ["recorded/x", "recorded/y", "synthetic/llama-3.2-1b"], tmp_path)
    assert [t.id for t in kept.pool["any"]] == ["mmlu_pro/2", "mmlu_pro/3"]
    with pytest.raises(UsageError, match="no 'recorded/z'"):
        answered(workload, ["recorded/z"], tmp_path)


def test_each_recorded_model_is_a_family_of_its_own_however_it_is_spelt() -> None:
    tasks = tasks_of(1)
    recording = {"mmlu_pro/1": {"produce": (Sample("x"),)}}
    names = ("Big_3.1", "big-3-1", "Big_3.2")
    families = [Recorded(name, recording, tasks, 1).family for name in names]  # type: ignore[arg-type]
    assert families == ["big-3-1", "big-3-1", "big-3-2"]


# --- published data --------------------------------------------------------------------------------------


@needs_data
@pytest.mark.data
def test_the_published_outputs_open_under_their_names_and_answer_as_published() -> None:
    tasks = {f"mmlu_pro/{i}": Task(f"mmlu_pro/{i}", (Message("user", "?"),), FORM) for i in (70, 71, 72)}
    names = [n for n in catalogue(DATA) if n.startswith("recorded/")]
    assert "recorded/gemini-1.5-pro-002" in names
    assert "recorded/Meta-Llama-3_1-70B-Instruct" in names
    model = opened("recorded/meta-llama-3.1-8b-instruct", DATA, tasks)
    assert read(FORM, ask(model, tasks["mmlu_pro/70"]).texts[0]) is not None


def benchmark() -> ModuleType:
    """`benchmarks/model_correlations.py`, which is no package."""
    path = ROOT / "benchmarks" / "model_correlations.py"
    spec = importlib.util.spec_from_file_location("model_correlations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@needs_data
@pytest.mark.data
@pytest.mark.slow
def test_simulated_models_err_together_as_recorded_ones_do() -> None:
    module = benchmark()
    pairs = module.side_by_side(*module.recorded_answers(DATA))
    assert len(pairs) == 10
    for models, (real, drawn) in pairs.items():
        assert drawn.both_wrong == pytest.approx(real.both_wrong, abs=0.02), models
        assert drawn.phi == pytest.approx(real.phi, abs=0.08), models
        assert drawn.same_letter == pytest.approx(real.same_letter, abs=0.06), models


@needs_data
@pytest.mark.data
def test_the_consistency_of_repeated_samples_is_the_profiles_figure() -> None:
    samples = DATA / "math" / "qwen2.5_math_samples.jsonl"
    if not samples.is_file():
        pytest.skip(f"no labelled MATH samples in {DATA}")
    module = benchmark()
    right, wrong, phi = module.consistency(samples)
    assert (right, wrong) == (pytest.approx(0.975, abs=0.001), pytest.approx(0.746, abs=0.001))
    assert 1 - phi**0.5 == pytest.approx(0.15, abs=0.005)
