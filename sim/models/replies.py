"""The texts that simulated and recorded models reply with: real replies for the real parsers, kept short.

Scores stand on a grid of 0.05, as models that are asked for a number between 0 and 1 tend to give them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from meshheal.types import AnswerForm

LEVELS = 20
"""Score levels run from 0 to this, i.e. from 0.0 to 1.0."""
VARIANTS = 4
"""Ways of wording each reply."""


class Spoilt(NamedTuple):
    """A reply that cannot be read, and how it ended."""

    text: str
    finish: Literal["stop", "length"]


_OPENINGS = (
    "Working through the given facts one at a time leaves one possibility. ",
    "I set up what is asked, carried out each step and checked it against the statement. ",
    "First the conditions, then the calculation that follows from them. ",
    "Comparing what remains after each step settles it. ",
)
_PRAISE = (
    "I solved the task independently and reach the same final result.",
    "Each step follows from the one before and the result fits the statement.",
    "Checked against the conditions of the task; the final answer agrees.",
    "My own working ends at the same value.",
)
_BLAME = (
    "I solved the task independently and reach a different final result.",
    "One of the steps does not follow, so the final answer is not supported.",
    "Checked against the conditions of the task; the final answer does not fit them.",
    "My own working ends at another value.",
)
_DOUBT = (
    "The approach looks plausible but I could not confirm the last step.",
    "Parts of the working check out, others I am not certain about.",
    "I could neither confirm nor refute the final result.",
    "The result may be right, though a step is left without support.",
)


Frame = tuple[tuple[str, str], ...]
"""What stands before and after a value in a reply, for each of the `VARIANTS`."""


@lru_cache(maxsize=1024)
def frame(form: AnswerForm) -> Frame:
    """Replies that assert a value the way `meshheal.answers.instruction(form)` asks for."""
    match form.kind:
        case "choice":
            before, after = "The answer is (", ")."
        case "math":
            before, after = "\\boxed{", "}"
        case "text" if not form.options:
            before, after = "\nThe answer is: ", ""
        case _:
            before, after = "The answer is ", "."
    return tuple([(opening + before, after) for opening in _OPENINGS])


def _review(level: int, variant: int) -> str:
    words = _PRAISE if level >= 15 else _BLAME if level <= 6 else _DOUBT
    return f'{{"score": {level / LEVELS:g}, "reason": "{words[variant]}"}}'


REVIEWS = tuple([tuple([_review(level, way) for way in range(VARIANTS)]) for level in range(LEVELS + 1)])
"""Reviews by level and variant, in the form that `meshheal.prompts.RUBRIC` asks for."""

SPOILT_REVIEWS = (
    Spoilt("The answer seems reasonable to me, although I did not verify every step of it.", "stop"),
    Spoilt('{"score": "N/A", "reason": "I cannot judge this without further information."}', "stop"),
    Spoilt('{"score": 7, "reason": "Mostly right, with a small gap."}', "stop"),
    Spoilt("<think>Let me redo this from the start. The first condition says that", "length"),
    Spoilt('{"verdict": "correct", "confidence": "high"}', "stop"),
    Spoilt('{"score": null, "reason": "Not enough information."}', "stop"),
    Spoilt('{"score": 0.8, "reason": "The steps are right up to the point where', "length"),
    Spoilt("", "stop"),
)
"""What unreadable reviews look like; `meshheal.prompts.read_review` finds no score in any of them."""

CUT = "Let us begin by restating what is given.\nThen we consider each condition, and"
"""What is left of an answer or a review that was cut off: it asserts nothing and gives no score."""

SPOILT_ANSWERS = (
    Spoilt(CUT, "length"),
    Spoilt("", "stop"),
    Spoilt("I am not able to solve this.\nMore would have to be known than is given here.", "stop"),
    Spoilt("<think>Okay, so we need to work this out. Wait, let me read it once more. Wait,", "length"),
    Spoilt("Then we see that\nthe the the the the the the the the the the the the the the the", "length"),
)
"""What unreadable answers look like; `meshheal.answers.read` finds no value in any of them, in any form."""
