"""Whether an answer is the same as a reference. Asked as (reference, answer); it is not symmetric.

No clock is involved: limits are on the size of what is compared, so that the result depends neither on the
machine nor on the thread it runs in.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import lru_cache

from meshheal.answers.plain import closing, number_text, text_form, value_of
from meshheal.types import AnswerForm


def comparable(form: AnswerForm) -> bool:
    """Whether answers of this form can be compared by `same`: of all four kinds they can."""
    return form.kind in ("choice", "number", "math", "text")


def same(form: AnswerForm, reference: str, answer: str) -> bool:
    """Whether `answer` (as `read` gave it) says what `reference` says. Cached; equal strings need no work."""
    if reference == answer:
        return True
    if form.kind == "choice":
        return False
    return _same(form.kind, reference, answer)


@lru_cache(maxsize=65536)
def _same(kind: str, reference: str, answer: str) -> bool:
    match kind:
        case "number":
            return same_number(reference, answer)
        case "math":
            return same_formula(reference, answer)
        case _:
            return text_form(reference) == text_form(answer)


def same_number(reference: str, answer: str) -> bool:
    """By exact value. `50%` equals 50 (the question asked for a percentage) and 0.5, where the reference says
    so.
    """
    ref, ans = number_text(reference), number_text(answer)
    if ref is None or ans is None:
        return False
    a, b = value_of(ref), value_of(ans)
    if a is None or b is None:
        return False
    if a == b:
        return True
    if ref.endswith("%") != ans.endswith("%"):
        return a == b / 100 if ans.endswith("%") else a / 100 == b
    return False


_MAX_LENGTH = 300
"""Longer formulas are compared as text only."""


def same_formula(reference: str, answer: str) -> bool:
    """By writing, then by number, then by `math_verify` within limits on size."""
    ref, ans = tidy(reference), tidy(answer)
    if ref == ans:
        return True
    a, b = number_text(ref), number_text(ans)
    if a is not None and b is not None:
        return same_number(a, b)
    if _words(ref) or _words(ans):  # names and words are not products of variables
        return _words(ref, shortest=1) == _words(ans, shortest=1)
    if max(len(ref), len(ans)) > _MAX_LENGTH or explosive(ref) or explosive(ans):
        return False
    return _verified(ref, ans)


_TIDY = [
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\varnothing"), r"\\emptyset"),
    (re.compile(r"\\(?:left|right|bigl|bigr|Bigl|Bigr|big|Big|displaystyle|limits)(?![a-zA-Z])"), ""),
    (re.compile(r"(?<!\\)\\[!,;:> ]"), ""),
    (re.compile(r"\\(?:q?quad)(?![a-zA-Z])"), " "),
    (re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree|\u00b0"), ""),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\\$|\$"), ""),
    (re.compile(r"\s+"), " "),
]


def tidy(latex: str) -> str:
    """LaTeX without spacing, sizing, dollar and degree marks, and with one spelling of fractions."""
    for pattern, replacement in _TIDY:
        latex = pattern.sub(replacement, latex)
    return latex.strip().rstrip(".").strip()


_EXPONENT_PRODUCT = 100_000
_FACTORIAL = 500
_BINOMIAL = 1000
_RISKY = re.compile(
    r"\\(?:sum|prod|int|lim|iint|oint)(?![a-zA-Z])|!\s*!|[)}]\s*!|[a-zA-Z]\s*!|\d\s*[eE]\s*[-+]?\d{4}|\d{200}"
    r"|\^\s*(?:\{[^{}]*\}|\\?\w+)\s*\^"
)
_DEPTH = 7
_FUNCTION_COUNT = 8
_FUNCTIONS = re.compile(r"\\(?:a(?:rc)?)?(?:sin|cos|tan|cot|sec|csc|log|ln|exp)")
_FACTORIALS = re.compile(r"(\d+)\s*!")
_BINOMIALS = re.compile(r"binom\D*(\d*)\D*(\d*)")
_GROUP_POWER = re.compile(r"[a-zA-Z][^()]*\)\s*\^\s*\{?\s*(\d+)")
_INTEGER = re.compile(r"\d+")


_TEXT = re.compile(r"^\(?\s*\\(?:text|textbf|textit|mathrm|mbox|mathbf|textrm)\s*\{([^{}]*)\}\s*\)?$")
_WORDS = re.compile(r"[^\W\d_][^\W\d_ '.-]*(?:[ '.-]+[^\W\d_ '.-]+)*\.?")


def _words(latex: str, shortest: int = 3) -> str:
    """The words, folded, of a formula that is nothing but words: wrapped in `\\text{}`, or of `shortest`
    letters or more.
    """
    m = _TEXT.match(latex)
    inner = (m[1] if m else latex).strip().strip("()")
    if (m or len(inner) >= shortest) and _WORDS.fullmatch(inner):
        return " ".join(inner.casefold().split())
    return ""


def explosive(latex: str) -> bool:
    """Whether evaluating `latex` could take for ever: towers of powers, huge exponents, factorials of large
    numbers.

    Judged by writing alone, generously: what is called explosive is compared as text only.
    """
    text = latex.replace("**", "^")
    if _depth(text) > _DEPTH or len(_FUNCTIONS.findall(text)) > _FUNCTION_COUNT:
        return True
    if _RISKY.search(text) or any(int(n[:6]) > _FACTORIAL for n in _FACTORIALS.findall(text)):
        return True
    if any(int(n[:6] or "0") > _BINOMIAL for pair in _BINOMIALS.findall(text) for n in pair):
        return True
    if any(int(n[:6]) > 20 for n in _GROUP_POWER.findall(text)):
        return True
    product = 1
    for exponent in _exponents(text):
        integers = [int(n[:7]) for n in _INTEGER.findall(exponent)]
        if "!" in exponent or ("^" in exponent and (exponent.count("^") > 1 or any(n > 4 for n in integers))):
            return True
        for n in integers:
            product *= max(n, 1)
            if product > _EXPONENT_PRODUCT:
                return True
    return False


def _depth(text: str) -> int:
    """How deep round and square brackets nest; the parser's time grows exponentially with it."""
    depth = deepest = 0
    for c in text:
        if c in "([":
            depth += 1
            deepest = max(deepest, depth)
        elif c in ")]":
            depth -= 1
    return deepest


def _exponents(text: str) -> Iterator[str]:
    """What stands behind each `^` that is not inside another exponent."""
    at = 0
    while (at := text.find("^", at)) >= 0:
        start = at + 1
        while start < len(text) and text[start] == " ":
            start += 1
        at = start
        if text.startswith(("{", "("), start):
            end = closing(text, start) if text[start] == "{" else text.find(")", start)
            if end is None or end < 0:
                end = len(text)
            yield text[start + 1 : end]
            at = end
        elif m := _INTEGER.match(text, start):
            yield m[0]


@lru_cache(maxsize=16384)
def _parsed(latex: str) -> tuple[object, ...]:
    """What `math_verify` makes of a formula; without its time limit, which works by signal and in the main
    thread only.
    """
    from math_verify import LatexExtractionConfig, parse

    _silence()
    return tuple(parse(f"${latex}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=None))


@lru_cache(maxsize=1)
def _silence() -> None:
    """`math_verify` warns of every time limit that is off; ours are on size."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)


def _verified(reference: str, answer: str) -> bool:
    from math_verify import verify

    try:
        gold, found = list(_parsed(reference)), list(_parsed(answer))
        return bool(gold) and bool(found) and bool(verify(gold, found, timeout_seconds=None))
    except Exception:  # a formula that the library cannot digest is not shown to be the same
        return False
