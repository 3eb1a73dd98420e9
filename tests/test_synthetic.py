"""Simulated models: their marginals, what calls share, and that nothing else can move a draw."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal import prompts
from meshheal.answers import instruction, read, to_answer
from meshheal.errors import InternalError, UsageError
from meshheal.methods.prompts import step
from meshheal.model import CallKey, Completion, Purpose, Request, Sampling
from meshheal.types import AnswerForm, Message, Score, Task, Unscored
from sim.models import PROFILES, Synthetic, catalogue, replies, resolve
from sim.models.figures import BENCHMARKS, Estimated, Published
from sim.models.profiles import table
from sim.workloads.sheet import AnswerSheet, Workload

LETTERS = tuple("ABCDEFGHIJ")
FORMS = (
    AnswerForm("choice", LETTERS),
    AnswerForm("number"),
    AnswerForm("math"),
    AnswerForm("text", ("yes", "no")),
    AnswerForm("text"),
)
GOLDS = {"choice": "C", "number": "42", "math": r"\frac{1}{2}", "text": "yes"}
ROOT = Path(__file__).parent.parent
UNCUT = Sampling(max_tokens=1 << 20)


def world(n: int, form: AnswerForm = FORMS[0]) -> tuple[dict[str, Task], AnswerSheet]:
    """`n` tasks of one form, and their gold answers."""
    question = Message("user", f"Which one?\n{instruction(form)}")
    tasks = {f"item/{i}": Task(f"item/{i}", (question,), form) for i in range(n)}
    golds = {t: LETTERS[i % 10] if form.kind == "choice" else GOLDS[form.kind] for i, t in enumerate(tasks)}
    return tasks, AnswerSheet(golds)


def model(
    name: str, tasks: dict[str, Task], sheet: AnswerSheet, benchmark: str = "MMLU-Pro", seed: int = 1
) -> Synthetic:
    return Synthetic(PROFILES[name], sheet, tasks, benchmark, seed)


def ask(m: Synthetic, task: Task, purpose: Purpose = "produce", agent: int = 0, n: int = 0) -> Completion:
    key = CallKey(task.id, agent, purpose, agent, n)
    return m.sample(Request(task.messages, UNCUT, key), task)


def says(task: Task, value: str) -> str:
    """A reply that asserts `value`."""
    before, after = replies.frame(task.form)[0]
    return before + value + after


def correct(
    m: Synthetic, sheet: AnswerSheet, task: Task, purpose: Purpose = "produce", agent: int = 0, n: int = 0
) -> bool:
    """Whether the model's answer is right."""
    return sheet.correct(task, read(task.form, ask(m, task, purpose, agent, n).texts[0]))


def review(m: Synthetic, task: Task, text: str, agent: int = 1, n: int = 0, samples: int = 1) -> Completion:
    key = CallKey(task.id, agent, "review", 0, n)
    return m.sample(Request(prompts.review(task, text), Sampling(max_tokens=UNCUT.max_tokens, n=samples), key), task)


def accepted(completion: Completion) -> list[bool | None]:
    """Whether each score is above the middle; None where there is none."""
    reviews = [prompts.read_review(text) for text in completion.texts]
    return [r.value >= 0.6 if isinstance(r, Score) else None for r in reviews]


def share(flags: Iterable[bool | None]) -> float:
    return fmean([float(f) for f in flags if f is not None])


# --- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("name", PROFILES)
def test_the_mean_accuracy_is_the_profile_s(name: str, benchmark: str) -> None:
    tasks, sheet = world(4000)
    m = model(name, tasks, sheet, benchmark)
    right = [correct(m, sheet, task) for task in tasks.values()]
    expected = PROFILES[name].accuracy[benchmark].value
    assert abs(fmean(right) - expected) < 3.5 * (expected * (1 - expected) / len(tasks)) ** 0.5


def test_the_mean_accuracy_is_the_profile_s_whatever_the_levels_and_a_harder_level_is_harder() -> None:
    tasks, sheet = world(6000)
    levels = {t: (i % 7) ** 2 / 36 for i, t in enumerate(tasks)}
    m = Synthetic(PROFILES["llama-3.1-8b"], sheet, tasks, "MATH", 1, levels)
    right = {t: correct(m, sheet, task) for t, task in tasks.items()}
    assert abs(fmean(right.values()) - 0.519) < 0.023
    easy = fmean([right[t] for t in tasks if levels[t] == 0])
    hard = fmean([right[t] for t in tasks if levels[t] == 1])
    assert easy > hard + 0.2


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.kind}{len(f.options)}")
def test_what_a_model_writes_is_read_as_the_gold_answer_or_as_a_wrong_one(form: AnswerForm) -> None:
    tasks, sheet = world(400, form)
    m = model("llama-3.1-8b", tasks, sheet)
    values = [(t, read(form, ask(m, t).texts[0])) for t in tasks.values()]
    right = [sheet.correct(t, v) for t, v in values]
    assert 0.3 < fmean(right) < 0.7
    assert fmean([v is None for _, v in values]) < 0.05


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.kind}{len(f.options)}")
def test_a_spoilt_answer_is_read_as_nothing_in_any_form(form: AnswerForm) -> None:
    assert {read(form, spoilt.text) for spoilt in replies.SPOILT_ANSWERS} == {None}


def test_whether_an_item_can_be_solved_is_shared_by_purposes_and_agents_and_takes_effect() -> None:
    tasks, sheet = world(3000)
    m = model("llama-3.1-8b", tasks, sheet)
    purposes: tuple[Purpose, ...] = ("produce", "probe", "takeover")
    for agent, purpose in enumerate(purposes):
        right = {t: correct(m, sheet, task, purpose, agent) for t, task in tasks.items()}
        able = fmean([right[t] for t, task in tasks.items() if m.solves(task)])
        unable = fmean([right[t] for t, task in tasks.items() if not m.solves(task)])
        assert able == pytest.approx(1 - 0.15 * 0.517, abs=0.03)
        assert unable == pytest.approx(0.15 * 0.483, abs=0.03)


def test_repeated_samples_of_an_item_correlate_as_measured_samples_do() -> None:
    tasks, sheet = world(4000)
    m = model("llama-3.1-8b", tasks, sheet)
    pairs = [(correct(m, sheet, t), correct(m, sheet, t, n=1)) for t in tasks.values()]
    p = fmean([float(a) for a, _ in pairs])
    phi = (fmean([float(a and b) for a, b in pairs]) - p * p) / (p * (1 - p))
    assert phi == pytest.approx(0.72, abs=0.04)


def test_models_err_together_and_on_the_same_wrong_answer() -> None:
    tasks, sheet = world(6000)
    given = {
        name: {t: read(task.form, ask(m, task).texts[0]) for t, task in tasks.items()}
        for name in ("gpt-oss-20b", "qwen3-30b-a3b")
        for m in [model(name, tasks, sheet)]
    }
    first, second = given.values()
    wrong = [[not sheet.correct(task, held[t]) for t, task in tasks.items()] for held in (first, second)]
    both = fmean([a and b for a, b in zip(*wrong, strict=True)])
    assert both > 2 * fmean(wrong[0]) * fmean(wrong[1])
    same = [first[t] == second[t] for t, a, b in zip(tasks, *wrong, strict=True) if a and b]
    assert 0.4 < fmean(same) < 0.6


def test_an_item_that_is_dealt_again_is_the_same_item() -> None:
    tasks, sheet = world(300)
    again = {f"{t}#2": Task(f"{t}#2", task.messages, task.form) for t, task in tasks.items()}
    m = model("llama-3.1-8b", tasks | again, sheet)
    assert [m.solves(t) for t in tasks.values()] == [m.solves(t) for t in again.values()]


# --- reviews ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_reviews_accept_at_the_profile_s_rates_by_ability_and_correctness(name: str) -> None:
    tasks, sheet = world(5000)
    m, p = model(name, tasks, sheet, "BBH"), PROFILES[name]
    rates = {
        (True, True): p.accept_right_solved,
        (True, False): p.accept_right_unsolved,
        (False, True): p.accept_wrong_solved,
        (False, False): p.accept_wrong_unsolved,
    }
    seen: dict[tuple[bool, bool], list[bool | None]] = {k: [] for k in rates}
    for task in tasks.values():
        for right in (True, False):
            value = sheet.gold(task.id) if right else sheet.plausible_wrong(task, 0.5, False)
            seen[right, m.solves(task)] += accepted(review(m, task, says(task, value)))
    every = [flag for flags in seen.values() for flag in flags]
    assert fmean([flag is None for flag in every]) == pytest.approx(p.unreadable_review.value, abs=0.012)
    for case, flags in seen.items():
        unsure = p.unsure.value * (1 if case[1] else 2)
        middle = 3 / 5 * unsure  # of the middling scores 0.5 to 0.7 three in five reach 0.6
        expected = rates[case].value * (1 - unsure + middle)
        assert share(flags) == pytest.approx(expected, abs=4 * 0.5 / len(flags) ** 0.5)


def test_repeats_of_a_review_share_its_error_and_differ_in_noise() -> None:
    tasks, sheet = world(1500)
    m = model("llama-3.1-8b", tasks, sheet)
    wrong = [(task, says(task, sheet.plausible_wrong(task, 0.2, False))) for task in tasks.values()]
    together = [accepted(review(m, task, text, samples=2)) for task, text in wrong]
    apart = [accepted(review(m, task, text)) + accepted(review(m, task, text, n=1)) for task, text in wrong]
    for pairs in (together, apart):
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        agree = fmean([a == b for a, b in known])
        assert 0.8 < agree < 0.97


def test_agents_on_one_model_agree_more_than_agents_on_two() -> None:
    tasks, sheet = world(2500)
    one, other = model("llama-3.1-8b", tasks, sheet), model("llama-3.2-3b", tasks, sheet)
    same, mixed = [], []
    for task in tasks.values():
        text = says(task, sheet.plausible_wrong(task, 0.2, False))
        first = accepted(review(one, task, text, agent=1))[0]
        twin = accepted(review(one, task, text, agent=2))[0]
        peer = accepted(review(other, task, text, agent=2))[0]
        if None not in (first, twin, peer):
            same.append(first == twin)
            mixed.append(first == peer)
    assert fmean(same) > fmean(mixed) + 0.1


def test_a_strong_reviewer_is_better_than_a_weak_one() -> None:
    tasks, sheet = world(2000)
    gaps = []
    for name in ("llama-3.2-1b", "llama-3.1-8b", "gpt-oss-120b"):
        m = model(name, tasks, sheet, "MATH")
        right, wrong = [], []
        for task in tasks.values():
            right += accepted(review(m, task, says(task, sheet.gold(task.id))))
            wrong += accepted(review(m, task, says(task, sheet.plausible_wrong(task, 0.1, False))))
        gaps.append(share(right) - share(wrong))
    assert gaps[0] < 0.15 < gaps[1] < 0.6 < gaps[2]


def test_every_review_text_reads_as_its_score_and_every_spoilt_one_as_unscored() -> None:
    for level, ways in enumerate(replies.REVIEWS):
        for text in ways:
            read_back = prompts.read_review(text)
            assert isinstance(read_back, Score)
            assert read_back.value == pytest.approx(level / replies.LEVELS)
            assert read_back.reason
    assert all(isinstance(prompts.read_review(s.text), Unscored) for s in replies.SPOILT_REVIEWS)


def test_deliberation_moves_towards_the_others_where_the_reviewer_cannot_solve_the_item() -> None:
    tasks, sheet = world(1500)
    m = model("llama-3.1-8b", tasks, sheet)
    moved = {True: [0.0], False: [0.0]}
    for task in tasks.values():
        text = says(task, sheet.gold(task.id))
        others = (Score(0.05, "wrong"), Score(0.1, "a different result"))
        key = CallKey(task.id, 1, "deliberate", 0)
        before = prompts.read_review(review(m, task, text).texts[0])
        prompt = prompts.deliberate(task, text, others)
        after = prompts.read_review(m.sample(Request(prompt, UNCUT, key), task).texts[0])
        if isinstance(before, Score) and isinstance(after, Score):
            moved[m.solves(task)].append(before.value - after.value)
    assert fmean(moved[False]) > 0.25 > 0.15 > fmean(moved[True]) > 0.02


def test_an_answer_without_a_result_is_seen_as_wrong() -> None:
    tasks, sheet = world(600)
    m = model("gpt-oss-120b", tasks, sheet)
    flags = [f for t in tasks.values() for f in accepted(review(m, t, replies.SPOILT_ANSWERS[2].text))]
    assert share(flags) < 0.12


# --- draws -----------------------------------------------------------------------------------------------


def test_a_call_draws_the_same_whatever_was_called_before() -> None:
    tasks, sheet = world(200)
    plain = [ask(model("gpt-oss-20b", tasks, sheet), t) for t in list(tasks.values())[:20]]
    busy = model("gpt-oss-20b", tasks, sheet)
    for task in reversed(tasks.values()):
        ask(busy, task, "takeover", agent=5)
        review(busy, task, "The answer is (A).", agent=2, samples=3)
    assert [ask(busy, t) for t in list(tasks.values())[:20]] == plain


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.sampled_from(["produce", "takeover", "probe"]))
def test_equal_keys_give_equal_completions_others_do_not(a: int, b: int, n: int, purpose: Purpose) -> None:
    tasks, sheet = world(40)
    m = model("llama-3.2-3b", tasks, sheet)
    first = [ask(m, t, purpose, a, n) for t in tasks.values()]
    second = [ask(m, t, purpose, b, n) for t in tasks.values()]
    assert (first == second) == (a == b)


def test_seeds_and_branches_draw_anew_and_a_branch_keeps_what_the_model_can_solve() -> None:
    tasks, sheet = world(200)
    m, elsewhere = model("llama-3.1-8b", tasks, sheet), model("llama-3.1-8b", tasks, sheet, seed=2)
    task = list(tasks.values())
    assert [m.solves(t) for t in task] != [elsewhere.solves(t) for t in task]
    keys = [CallKey(t.id, 0, "produce", 0, branch=1) for t in task]
    fork = [m.sample(Request(t.messages, UNCUT, key), t) for t, key in zip(task, keys, strict=True)]
    assert fork != [ask(m, t) for t in task]
    able = [t for t in task if m.solves(t)]
    texts = {t.id: c.texts[0] for t, c in zip(task, fork, strict=True)}
    assert fmean([sheet.correct(t, read(t.form, texts[t.id])) for t in able]) > 0.8


def test_no_draw_depends_on_the_hash_seed() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from test_synthetic import world, model, ask, review\n"
        "tasks, sheet = world(50); m = model('llama-3.1-8b', tasks, sheet)\n"
        "print([(ask(m, t), review(m, t, 'The answer is (B).')) for t in tasks.values()])\n"
    )
    command = [sys.executable, "-c", code]
    run = partial(subprocess.run, command, cwd=ROOT, capture_output=True, check=True, text=True)
    first, second = [run(env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")]
    assert first == second
    assert "score" in first


def test_tokens_are_capped_and_latency_follows_the_longest_sample() -> None:
    tasks, sheet = world(1)
    m, task = model("qwen3-30b-a3b", tasks, sheet), next(iter(tasks.values()))
    key = CallKey(task.id, 0, "produce", 0)
    many = m.sample(Request(task.messages, Sampling(n=5, max_tokens=900), key), task)
    assert many.usage.completion == 5 * 900
    assert many.latency == pytest.approx(0.3 + 900 / 150)
    assert len(many.texts) == 5


def test_what_is_cut_off_has_neither_answer_nor_score() -> None:
    tasks, sheet = world(40)
    m, long = model("gpt-oss-120b", tasks, sheet), says(next(iter(tasks.values())), "C")
    cap = 1000
    for purpose, messages in (
        ("produce", lambda t: t.messages),
        ("revise", lambda t: (*t.messages, Message("assistant", long), Message("user", "Once more."))),
        ("review", lambda t: prompts.review(t, long)),
    ):
        whole, cut = 0, 0
        for task in tasks.values():
            key = CallKey(task.id, 0, purpose, 0)  # type: ignore[arg-type]
            free = m.sample(Request(messages(task), UNCUT, key), task)
            tight = m.sample(Request(messages(task), Sampling(max_tokens=cap), key), task)
            if free.usage.completion <= cap:
                assert tight == free
                whole += 1
                continue
            cut += 1
            assert (tight.usage.completion, tight.finish) == (cap, "length")
            if purpose == "review":
                assert isinstance(prompts.read_review(tight.texts[0]), Unscored)
            else:
                assert to_answer(task, 0, tight.texts[0], tight.finish).fault == "truncated"
        assert cut, purpose
        assert whole, purpose


def test_a_step_of_a_chain_takes_its_part_of_the_tokens_of_an_answer() -> None:
    tasks, sheet = world(1)
    m, task = model("gpt-oss-120b", tasks, sheet), next(iter(tasks.values()))
    key = CallKey(task.id, 0, "revise", 0)
    whole, quarter = (
        m.sample(Request(step(task, "Go on.", (), 1, of), UNCUT, key), task).usage.completion for of in (1, 4)
    )
    assert quarter == whole // 4


# --- profiles --------------------------------------------------------------------------------------------


def test_every_figure_is_published_with_a_source_or_estimated_with_a_range() -> None:
    for profile in PROFILES.values():
        assert set(profile.accuracy) == set(BENCHMARKS)
        for name, figure in profile.figures():
            words = figure.source if isinstance(figure, Published) else figure.derivation
            assert len(words) > 10, (profile.name, name)


@pytest.mark.parametrize("name", PROFILES)
def test_the_ends_of_the_ranges_move_estimates_only_and_still_make_a_model(name: str) -> None:
    tasks, sheet = world(50)
    low, high = PROFILES[name].at("low"), PROFILES[name].at("high")
    three = zip(low.figures(), high.figures(), PROFILES[name].figures(), strict=True)
    for (_, a), (_, b), (_, now) in three:
        if isinstance(now, Published):
            assert a.value == b.value == now.value
        else:
            assert isinstance(now, Estimated)
            assert (a.value, b.value) == (now.low, now.high)
    for profile in (low, high):
        m = Synthetic(profile, sheet, tasks, "BBH", 1)
        assert [ask(m, t) for t in tasks.values()]
        assert [review(m, t, "The answer is (A).") for t in tasks.values()]
    assert PROFILES[name].at("value") == PROFILES[name]


def test_an_estimate_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="outside its range"):
        Estimated(0.5, 0.6, 0.7, "none")


def test_the_documented_figures_are_the_profiles() -> None:
    assert table() in (ROOT / "docs" / "MODELS.md").read_text()


def test_an_unknown_model_is_refused_with_what_there_is_and_what_is_near() -> None:
    tasks, sheet = world(1)
    workload = Workload("w", "MATH", ("any",), sheet, "made up")
    with pytest.raises(UsageError, match=r"no 'synthetic/gpt-oss-12b'.*Did you mean synthetic/gpt-oss-120b"):
        resolve("synthetic/gpt-oss-12b", workload, tasks, 1)
    with pytest.raises(UsageError, match=r"No recorded outputs were found .no data folder was given."):
        resolve("recorded/gemini", workload, tasks, 1)
    assert resolve("synthetic/llama-3.2-1b", workload, tasks, 1, end="low").name == "synthetic/llama-3.2-1b"
    assert len(catalogue()) == len(PROFILES)


def test_a_benchmark_without_an_accuracy_and_an_unknown_item_are_errors() -> None:
    tasks, sheet = world(1)
    with pytest.raises(UsageError, match="has no accuracy on 'GPQA'; it has BBH, MATH, MMLU-Pro"):
        model("gpt-oss-20b", tasks, sheet, "GPQA")
    request = Request((), Sampling(), CallKey("elsewhere", 0, "produce", 0))
    with pytest.raises(InternalError, match="none of its tasks"):
        model("gpt-oss-20b", tasks, sheet).complete(request).send(None)
