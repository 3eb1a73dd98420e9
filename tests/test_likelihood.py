"""Judging and answering by likelihood: formulas, what is asked, and what servers say."""

from __future__ import annotations

import asyncio
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_server import Server, fail, likely, say, tops
from scripted import LETTERS, Played, Scripted, make_world, verdict

from meshheal import answers, likelihood, prompts
from meshheal.errors import ModelError
from meshheal.events import CommitteeMet, FirstLook, ModelCalled, TookOver
from meshheal.model import CallKey, Completion, Request, Sampling
from meshheal.models import OpenAI
from meshheal.models.served import served
from meshheal.types import AnswerForm, Cloze, Message, Score, Task, Unscored, Usage

CAPITAL = Task(
    "capital/1",
    (Message("user", "What is the capital of France: Paris or Lima?"),),
    AnswerForm("text", ("Paris", "Lima")),
    cloze=Cloze("The capital of France is", (" Paris", " Lima")),
)
QUIZ = Task("quiz/1", (Message("user", "Which? (A) one (B) two (C) three (D) four"),), LETTERS)
SUM = Task("sum/1", (Message("user", "What is 1 + 1?"),), AnswerForm("number"))
LOGLIKS = st.lists(st.floats(-50, 0), min_size=2, max_size=10)


def request(messages, score="", purpose="review", item="capital/1", n=1):
    return Request(messages, Sampling(max_tokens=64, n=n), CallKey(item, 0, purpose, 1), score)


def ask(server, asked, task=CAPITAL, **fields):
    async def go():
        model = OpenAI("m", served("m", {"endpoints": [server.url], "backoff": 0.001, **fields}), 0, {task.id: task})
        try:
            return await model.complete(asked)
        finally:
            await model.aclose()

    return asyncio.run(go())


# --- formulas ------------------------------------------------------------------------------------


@given(LOGLIKS, st.floats(0.05, 10))
def test_only_the_likeliest_option_scores_above_a_half(loglik, scale):
    scores = [likelihood.beats(loglik, i, scale) for i in range(len(loglik))]
    assert all(0.0 <= s <= 1.0 for s in scores)
    assert max(scores) == scores[likelihood.best(loglik)] >= 0.5
    assert sum(s > 0.5 for s in scores) <= 1


@given(st.floats(-30, 0), st.floats(-30, 0))
def test_with_two_options_the_score_is_the_softmax(a, b):
    assert likelihood.beats([a, b], 0) == pytest.approx(exp(a) / (exp(a) + exp(b)), abs=1e-9)


@given(st.floats(-30, 0), st.integers(2, 10))
def test_undecided_is_a_half_however_many_options_there_are(level, options):
    assert likelihood.beats([level] * options, options - 1) == 0.5


def test_extreme_likelihoods_do_not_overflow():
    assert likelihood.beats([-1e6, 0.0], 0, 0.01) == 0.0
    assert likelihood.beats([0.0, -1e6], 0, 0.01) == 1.0


@given(st.dictionaries(st.sampled_from([str(k) for k in range(10)]), st.floats(0.01, 1), min_size=1))
def test_a_rating_is_the_expectation_over_the_scale(weights):
    total = sum(weights.values())
    top = {digit: log(w / total) for digit, w in weights.items()}
    found = likelihood.read_rating(likelihood.write_rating(top))
    assert isinstance(found, Score)
    assert found.value == pytest.approx(sum(int(d) * w for d, w in weights.items()) / total / 9)


def test_a_model_about_to_say_something_else_than_a_digit_is_unscored():
    assert likelihood.read_rating(likelihood.write_rating({"9": log(0.3), "8": log(0.1)})) == Unscored("no_score")
    assert likelihood.read_rating(likelihood.write_rating({"12": log(0.9)})) == Unscored("no_score")
    assert likelihood.read_rating(verdict(1.0)) == Unscored("no_score")


def test_a_reply_that_does_not_fit_the_task_is_unscored_and_never_zero():
    for text in ("", "{}", verdict(0.9), '{"loglik": [-1.0]}', '{"loglik": [-1.0, null]}', '{"loglik": [-1.0, 1e999]}'):
        assert likelihood.review(CAPITAL, "Paris", text, 1.0) == Unscored("no_score"), text
    assert likelihood.review(CAPITAL, None, likelihood.write_endings([-1, -2]), 1.0) == Unscored("unreadable")


def test_an_answer_by_likelihood_is_read_as_the_option_it_asserts():
    for task in (CAPITAL, QUIZ):
        for i, option in enumerate(task.form.options):
            text = likelihood.answer_text(task, i)
            assert answers.read(task.form, text) == option
            assert likelihood.option_of(task, answers.read(task.form, text)) == i


def test_a_task_without_a_cloze_is_read_as_its_prompt_and_one_without_options_not_at_all():
    of = likelihood.cloze(QUIZ)
    assert of.stem.startswith(QUIZ.messages[0].content)
    assert of.endings == ("A)", "B)", "C)", "D)")
    assert likelihood.cloze(SUM) is None


# --- what servers say ----------------------------------------------------------------------------


@pytest.mark.parametrize("bos", [False, True])
def test_the_mean_runs_over_the_tokens_of_the_ending_alone(bos):
    lima = CAPITAL.cloze.endings[0] + " of course"
    messages = likelihood.endings(Cloze("The capital of France is", (lima, " Lima")))
    with Server(likely({"Paris": -1.0, "of": -2.0, "course": -6.0, "Lima": -4.0}, bos=bos)) as server:
        done = ask(server, request(messages, "endings"))
    assert likelihood.read_endings(done.texts[0], Cloze("", (lima, " Lima"))) == pytest.approx((-3.0, -4.0))
    assert done.usage == Usage(20, 2)


def test_all_options_are_one_request_that_generates_nothing():
    with Server(likely({"Paris": -1.0})) as server:
        ask(server, request(likelihood.endings(CAPITAL.cloze), "endings"))
    (asked,) = server.asked
    assert asked.path == "/v1/completions"
    assert asked.body["prompt"] == ["The capital of France is Paris", "The capital of France is Lima"]
    assert (asked.body["max_tokens"], asked.body["echo"]) == (0, True)


@pytest.mark.parametrize("purpose", ["produce", "probe", "takeover"])
def test_a_model_that_answers_by_likelihood_says_the_likeliest_option(purpose):
    for table, said in (({"Paris": -1.0}, "Paris"), ({"Lima": -1.0}, "Lima")):
        with Server(likely(table)) as server:
            done = ask(server, request(CAPITAL.messages, purpose=purpose), answers="likelihood")
        assert answers.read(CAPITAL.form, done.texts[0]) == said


def test_a_task_without_options_is_answered_in_text_all_the_same():
    with Server(say("The answer is 2.")) as server:
        done = ask(server, request(SUM.messages, purpose="produce", item="sum/1"), SUM, answers="likelihood")
    assert done.texts == ("The answer is 2.",)


def test_a_broken_preamble_comes_before_the_stem():
    with Server(likely({})) as server:
        ask(server, request(likelihood.endings(CAPITAL.cloze), "endings"), preamble="### ")
    assert server.asked[0].body["prompt"][0] == "### The capital of France is Paris"


def test_a_rating_takes_one_token_and_reads_its_likelihoods():
    with Server(tops({"9": log(0.6), "6": log(0.3), "yes": log(0.1)})) as server:
        done = ask(server, request(prompts.rate(SUM, "2"), "rating"))
    assert server.asked[0].body["max_tokens"] == 1
    assert server.asked[0].body["logprobs"] is True
    assert likelihood.read_rating(done.texts[0]).value == pytest.approx((9 * 0.6 + 6 * 0.3) / 0.9 / 9)


@pytest.mark.parametrize(
    ("behaviour", "asked"),
    [
        (say(), request(prompts.rate(SUM, "2"), "rating")),
        (fail(404, "no such route"), request(likelihood.endings(CAPITAL.cloze), "endings")),
        (fail(400, "echo is not supported"), request(likelihood.endings(CAPITAL.cloze), "endings")),
        (say(ignore_n=True), request(likelihood.endings(Cloze("a", (" b",))), "endings")),
    ],
)
def test_a_server_without_likelihoods_is_one_clear_error(behaviour, asked):
    with Server(behaviour) as server, pytest.raises(ModelError) as caught:
        ask(server, asked)
    assert caught.value.boundary == "no_likelihoods"
    assert len(server.asked) == 1


# --- in the ladder -------------------------------------------------------------------------------


class Knowing(Scripted):
    """Finds option A likelier than the others, by 3 nats."""

    async def complete(self, asked):
        if asked.score == "endings":
            self._script.asked.append(asked)
            options = [m for m in asked.messages if m.role == "assistant"]
            return Completion((likelihood.write_endings([-1.0] + [-4.0] * (len(options) - 1)),), Usage(40, 0))
        return await super().complete(asked)


def play(script, n=1, **fields):
    world = make_world(n, script=script, settings={"review": {"by": "likelihood", **fields}})
    world.model = lambda name: Knowing(name, script)
    return Played(world)


def test_a_right_answer_is_accepted_by_one_prefill(script):
    log = play(script)
    (look,) = log.of(FirstLook)
    assert look.scores == (pytest.approx(1 / (1 + exp(-3.0))),)
    assert log.outcome().outcome == "accepted"
    (review,) = log.calls("review")
    assert review.usage == Usage(40, 0)


def test_a_wrong_answer_is_taken_over_without_repeats_or_deliberation(script):
    script.wrong = {0, 1, 2, 3, 4, 5}
    log = play(script, repeats=5, disagree_at=0.0)
    (met,) = log.of(CommitteeMet)
    assert met.verdict < 0.1
    assert met.deliberated == ()
    assert log.of(TookOver)
    assert not log.calls("deliberate")
    assert all(len(e.replies) == 1 for e in log.of(ModelCalled))


def test_a_free_answer_is_scored_by_the_expected_digit_of_one_token(script):
    world = make_world(1, script=script, settings={"review": {"by": "likelihood"}})
    world.tasks = [Task("t0", (Message("user", "What is 1 + 1?"),), AnswerForm("number"), world.tasks[0].ability)]
    world.sheet.add("t0", "2")

    class Rating(Scripted):
        async def complete(self, asked):
            if asked.score == "rating":
                assert asked.messages == prompts.rate(world.tasks[0], "The answer is 2.")
                return Completion((likelihood.write_rating({"9": log(0.8), "0": log(0.2)}),), Usage(40, 1))
            return Completion(("The answer is 2.",), Usage(40, 5))

    world.model = lambda name: Rating(name, script)
    (look,) = Played(world).of(FirstLook)
    assert look.scores == (pytest.approx(0.8),)


def test_the_scale_sharpens_the_score(script):
    (look,) = play(script, likelihood_scale=0.5).of(FirstLook)
    assert look.scores == (pytest.approx(1 / (1 + exp(-6.0))),)
