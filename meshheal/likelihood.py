"""Judging and answering by likelihood: what a model is asked, how its reply is read, and what it comes to.

A model that cannot judge in words may still know: it finds the right ending of a sentence more likely than a wrong one. For a
task with options it is asked how likely each ending is (`endings`, read with `read_endings`): one prefill, no output. For a
free answer it is asked for one number on a scale, and the number's expectation is taken (`prompts.rate`, read with `read_rating`).

Both are requests with `score` set (`meshheal.model.Scoring`); the likelihoods come back as one text of JSON, so that logs,
replay and recordings hold them as they hold any reply. Formulas, with l_j the mean log-likelihood per token of ending j:

    score of option p      sigma((l_p - max over j != p of l_j) / scale)          `beats`: 1/2 where the best two are equal
    answer                 the option with the largest l_j                        `best`
    score of a free answer sum over k of (k / RATING_MAX) P(k), P renormalised over the numbers of the scale
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import exp, fsum, isfinite
from typing import Final

import msgspec

from meshheal import answers
from meshheal.prompts import RATING_MAX
from meshheal.types import Cloze, Message, Review, Score, Task, Unscored

MIN_MASS: Final = 0.5
"""Probability that the numbers of the scale must have together; below it the model was about to say something else."""


class Endings(msgspec.Struct, frozen=True):
    """Mean log-likelihood per token of each ending, in nats, in the order asked."""

    loglik: tuple[float, ...]


class Rating(msgspec.Struct, frozen=True):
    """Log-probability of each number of the scale that was among the likeliest first tokens."""

    rating: dict[str, float]


# --- what is asked -------------------------------------------------------------------------------


def cloze(task: Task) -> Cloze | None:
    """The task as a text to be continued; None for a task without options.

    Without a cloze of its own it is the text of its messages, then the words that end an answer, and its options.
    """
    if task.cloze is not None:
        return task.cloze
    options = task.form.options
    if len(options) < 2:
        return None
    said = "\n\n".join([m.content for m in task.messages])
    if task.form.kind == "choice":
        return Cloze(f"{said}\n\nThe answer is (", tuple([f"{option})" for option in options]))
    return Cloze(f"{said}\n\nThe answer is", tuple([f" {option}" for option in options]))


def endings(of: Cloze) -> tuple[Message, ...]:
    """The messages of a request with score `endings`: the stem, then each ending."""
    return (Message("user", of.stem), *[Message("assistant", e) for e in of.endings])


def option_of(task: Task, value: str | None) -> int | None:
    """Which option of the task a value is; None where it is none of them."""
    if value is None:
        return None
    for i, option in enumerate(task.form.options):
        if option == value or answers.same(task.form, option, value):
            return i
    return None


def answer_text(task: Task, option: int) -> str:
    """The reply that asserts an option, in the form that the task asks for."""
    label = task.form.options[option]
    return f"The answer is ({label})." if task.form.kind == "choice" else f"The answer is {label}."


# --- what came back ------------------------------------------------------------------------------


def write_endings(loglik: Sequence[float]) -> str:
    return msgspec.json.encode(Endings(tuple(loglik))).decode()


def write_rating(top: Mapping[str, float]) -> str:
    return msgspec.json.encode(Rating(dict(top))).decode()


def read_endings(text: str, of: Cloze) -> tuple[float, ...] | None:
    """The likelihoods in a reply; None where it holds none that fit the cloze."""
    try:
        found = msgspec.json.decode(text, type=Endings).loglik
    except (msgspec.DecodeError, ValueError):
        return None
    return found if len(found) == len(of.endings) and all(map(isfinite, found)) else None


def review(task: Task, value: str | None, text: str, scale: float) -> Review:
    """The score of a producer's answer `value` from a reply to `endings(cloze(task))`."""
    of = cloze(task)
    chosen = option_of(task, value)
    if of is None or chosen is None:
        return Unscored("unreadable")
    loglik = read_endings(text, of)
    if loglik is None:
        return Unscored("no_score")
    likeliest = best(loglik)
    reason = "" if likeliest == chosen else f"{of.endings[likeliest].strip()} is likelier."
    return Score(beats(loglik, chosen, scale), reason)


def beats(loglik: Sequence[float], chosen: int, scale: float = 1.0) -> float:
    """How surely an option beats its strongest rival: sigma((l_chosen - max of the others) / scale), in [0, 1].

    With two options and scale 1 this is the softmax over them. With more it stays comparable: 1/2 means undecided, however
    many options there are. `scale` is in nats per token.
    """
    rival = max([value for i, value in enumerate(loglik) if i != chosen])
    z = (loglik[chosen] - rival) / scale
    return 1.0 / (1.0 + exp(-z)) if z >= 0 else 1.0 - 1.0 / (1.0 + exp(max(z, -700.0)))


def best(loglik: Sequence[float]) -> int:
    """The likeliest ending; the first of equals."""
    return max(range(len(loglik)), key=loglik.__getitem__)


_NUMBER = re.compile(r"\s*([0-9]+)\s*")


def read_rating(text: str) -> Review:
    """The expected score in [0, 1] in a reply to `prompts.rate`; `Unscored` where the model was about to say something else."""
    try:
        top = msgspec.json.decode(text, type=Rating).rating
    except (msgspec.DecodeError, ValueError):
        return Unscored("no_score")
    mass = [0.0] * (RATING_MAX + 1)
    for token, logprob in top.items():
        digit = _NUMBER.fullmatch(token)
        if digit and int(digit.group(1)) <= RATING_MAX and logprob <= 0.0:
            mass[int(digit.group(1))] += exp(logprob)
    total = fsum(mass)
    if not total >= MIN_MASS:
        return Unscored("no_score")
    return Score(fsum([k * p for k, p in enumerate(mass)]) / (total * RATING_MAX))
