"""What a synthetic model is made of: figures with their sources, and the profile that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

End = Literal["low", "value", "high"]
"""Which end of the estimated ranges to take: `low` is the less able model's, `high` the abler one's."""
Benchmark = Literal["BBH", "MATH", "MMLU-Pro"]
BENCHMARKS: tuple[Benchmark, ...] = ("BBH", "MATH", "MMLU-Pro")


@dataclass(frozen=True, slots=True)
class Published:
    """A figure somebody measured and published; `source` says where."""

    value: float
    source: str

    def at(self, end: End) -> Published:
        """Itself: a published figure has no range to move in."""
        del end
        return self


@dataclass(frozen=True, slots=True)
class Estimated:
    """A figure derived from others. `low` is the end of a less able or dearer model, `high` of an abler one.

    For a rate of errors, tokens or seconds `low` is therefore the larger number.
    """

    value: float
    low: float
    high: float
    derivation: str

    def __post_init__(self) -> None:
        if not min(self.low, self.high) <= self.value <= max(self.low, self.high):
            raise ValueError(f"estimate {self.value} lies outside its range {self.low} to {self.high}")

    def at(self, end: End) -> Estimated:
        """The same estimate with the asked end of the range as its value."""
        return self if end == "value" else replace(self, value=self.low if end == "low" else self.high)


Figure = Published | Estimated

_AGREEMENT = "800 labelled samples of Qwen2.5-Math (100 MATH problems x 8)"
_RECORDED = "published MMLU-Pro outputs of five models (benchmarks/model_correlations.py)"

FRESH = Estimated(
    0.15,
    0.30,
    0.05,
    (
        "Share k of calls that are a fresh draw at the model's accuracy instead of following what it can "
        "solve. 800 labelled samples of Qwen2.5-Math (100 MATH problems, 8 samples each; "
        "benchmarks/model_correlations.py): two samples of a problem correlate .72 = (1 - k)^2; P(right | "
        "another right) .975, P(wrong | another wrong) .746"
    ),
)
FAMILY = Estimated(
    0.30,
    0.40,
    0.0,
    (
        "Loading on what models of a family share of an item. Published MMLU-Pro outputs of five models "
        "(benchmarks/model_correlations.py): the factor fit gives pairs of one family .09 = .30^2 beyond "
        "what all share"
    ),
)
LEVEL = Estimated(
    0.40,
    0.55,
    0.25,
    (
        "Correlation of an item's difficulty with the level its data set gives. Solve rates fall .06 "
        "probit a MATH level for Qwen2.5-Math, .15 for gpt-oss-120b (third-party MATH-500 by level), "
        "about .4 for small Llamas; between them"
    ),
)
JUDGE_ITEM = Estimated(
    0.35,
    0.55,
    0.20,
    (
        "Share of the leniency towards one answer that all models have in common: errors of different "
        "judges correlate .3 to .6 (prior)"
    ),
)
JUDGE_MODEL = Estimated(
    0.45,
    0.35,
    0.55,
    ("Share that agents on one model have in common beyond that: two agents on the same model are nearly one opinion"),
)
JUDGE_AGENT = Estimated(
    0.10,
    0.05,
    0.10,
    ("Share that an agent keeps over its repeats beyond that; what is left varies from repeat to repeat"),
)
UNSURE = Estimated(
    0.08,
    0.20,
    0.03,
    (
        "Share of scores in the middle of the scale, doubled where the reviewer cannot solve the item. "
        "Graders at temperature 0 flip on 2 of 7 borderline items (inspect_ai PR 4170)"
    ),
)
FOLLOW_SOLVED = Estimated(
    0.15,
    0.40,
    0.05,
    ("Chance that a reviewer able to solve the item moves to the others' mean opinion when it sees it (prior)"),
)
FOLLOW_UNSOLVED = Estimated(
    0.60, 0.80, 0.40, ("The same where it is not able: that is where debate converges on the majority (prior)")
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A named model's figures. Rates are probabilities, tokens are medians per completion, times in seconds.

    `accept_right_*` are true positive rates, `accept_wrong_*` false positive rates of a review, by whether
    the reviewer can solve the item itself. `loading` is the correlation of the model's success with the
    difficulty that all models share (Gaussian copula); `modal` is the chance that a wrong answer is the
    item's common one.
    """

    name: str
    family: str
    accuracy: Mapping[str, Figure]
    loading: Figure
    modal: Figure
    accept_right_solved: Figure
    accept_right_unsolved: Figure
    accept_wrong_solved: Figure
    accept_wrong_unsolved: Figure
    unreadable_review: Figure
    unreadable_answer: Figure
    answer_tokens: Figure
    review_tokens: Figure
    token_sigma: Figure
    tokens_per_second: Figure
    first_token: Figure
    fresh: Figure = FRESH
    family_loading: Figure = FAMILY
    level_loading: Figure = LEVEL
    judge_item: Figure = JUDGE_ITEM
    judge_model: Figure = JUDGE_MODEL
    judge_agent: Figure = JUDGE_AGENT
    unsure: Figure = UNSURE
    follow_solved: Figure = FOLLOW_SOLVED
    follow_unsolved: Figure = FOLLOW_UNSOLVED

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure with its name; accuracies as `accuracy BBH` and so on."""
        for field in fields(self):
            held = getattr(self, field.name)
            if isinstance(held, Mapping):
                for benchmark, figure in held.items():
                    yield f"{field.name} {benchmark}", figure
            elif isinstance(held, Published | Estimated):
                yield field.name, held

    def agreeable(self, rate: float) -> Profile:
        """This profile as a judge that accepts a wrong answer with chance `rate`, and right ones at least as often.

        Such judges are common: true positive rate .96 at true negative rate .25 over 14 models (arXiv 2510.11822).
        """
        wrong = Estimated(rate, rate, rate, "declared by the experiment")

        def right(figure: Figure) -> Estimated:
            value = max(rate, figure.value)
            return Estimated(value, value, value, "declared by the experiment")

        return replace(
            self,
            accept_wrong_solved=wrong,
            accept_wrong_unsolved=wrong,
            accept_right_solved=right(self.accept_right_solved),
            accept_right_unsolved=right(self.accept_right_unsolved),
        )

    def at(self, end: End) -> Profile:
        """This profile with every estimated figure at one end of its range; published figures stay.

        The name stays too, so that both ends are drawn from the same random streams.
        """
        moved: dict[str, Any] = {"accuracy": {b: f.at(end) for b, f in self.accuracy.items()}}
        for field in fields(self):
            held = getattr(self, field.name)
            if isinstance(held, Published | Estimated):
                moved[field.name] = held.at(end)
        return replace(self, **moved)
