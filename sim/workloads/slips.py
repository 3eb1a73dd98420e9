"""Plausible wrong answers: what someone who slips on an item might say instead of the gold answer."""

from __future__ import annotations

import re
from fractions import Fraction

from meshheal.answers import same
from meshheal.answers.plain import text_form, value_of
from meshheal.rng import Stream
from meshheal.types import AnswerForm, TaskId

_WANTED = 6
_INTEGER = re.compile(r"\d+")


def slips(item: TaskId, form: AnswerForm, gold: str) -> tuple[str, ...]:
    """Wrong values for an item, the most tempting first. All different from `gold` by `answers.same`, in both
    directions.
    """
    draw = Stream(item, "slips")
    match form.kind:
        case "choice":
            return _others(form.options, gold, draw)
        case "text" if form.options:
            return _others(form.options, gold, draw)
        case "number":
            candidates = _numbers(gold, draw)
        case "math":
            candidates = _formulas(gold, draw)
        case _:
            candidates = _texts(gold, draw)
    wrong: list[str] = []
    for candidate in candidates:
        if candidate not in wrong and _differs(form, gold, candidate):
            wrong.append(candidate)
            if len(wrong) == _WANTED:
                break
    return tuple(wrong)


def _differs(form: AnswerForm, gold: str, candidate: str) -> bool:
    if form.kind == "number":  # both are written canonically
        return value_of(gold) != value_of(candidate)
    if form.kind == "text":
        return gold != text_form(candidate)
    return not same(form, gold, candidate) and not same(form, candidate, gold)


def _others(options: tuple[str, ...], gold: str, draw: Stream) -> tuple[str, ...]:
    others = [o for o in options if o != gold]
    draw.shuffle(others)
    return tuple(others)


def _numbers(gold: str, draw: Stream) -> list[str]:
    if gold.isdigit():
        return _counts(gold, draw)
    value = value_of(gold) or Fraction(0)
    digits = gold.lstrip("-")
    if value.denominator != 1 and "/" in gold:
        return [*_changed_integers(gold, draw), str(value + 1), str(-value)]
    unit = Fraction(1, 10 ** len(digits.partition(".")[2])) if "." in digits else Fraction(1)
    ten = unit * 10 if abs(value) >= 20 * unit else unit * 3
    near = [value + unit, value - unit, value + ten, value - ten, value * 2, value + 2 * unit]
    draw.shuffle(near)
    out = [_written(v, gold) for v in near]
    out.insert(1 + draw.index(3), _swapped(gold, draw))
    return [o for o in out if o] + [_written(-value, gold), _written(value + 7 * unit, gold)]


def _counts(gold: str, draw: Stream) -> list[str]:
    """Slips on a whole number that is not negative; they stay so."""
    value = int(gold)
    near = [value + 1, value - 1, value + 10, value - 10, 2 * value, value + 2, value + 3]
    draw.shuffle(near)
    out = [str(v) for v in near if v >= 0]
    swapped = _swapped(gold, draw)
    if swapped:
        out.insert(1 + draw.index(3), swapped)
    return [*out, str(value + 7), str(value + 20)]


def _written(value: Fraction, like: str) -> str:
    if value.denominator == 1 and "." not in like:
        return str(value.numerator)
    places = len(like.partition(".")[2])
    scaled = round(value * 10**places)
    body = str(abs(scaled)).rjust(places + 1, "0")
    text = f"{body[:-places]}.{body[-places:]}".rstrip("0").rstrip(".") if places else body
    return f"-{text}" if scaled < 0 else text


def _swapped(text: str, draw: Stream) -> str:
    """Two neighbouring digits changed about, the classic slip of the pen; empty where there are none to swap."""
    places = [
        i for i in range(len(text) - 1) if text[i : i + 2].isdigit() and text[i] != text[i + 1] and text[i + 1] != "0"
    ]
    if not places:
        return ""
    i = draw.choice(places)
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]


def _changed_integers(text: str, draw: Stream) -> list[str]:
    """`text` with one of its integers a little off, in several ways."""
    spans = [m.span() for m in _INTEGER.finditer(text)]
    draw.shuffle(spans)
    steps = [1, -1, 2, 10, 3]
    draw.shuffle(steps)
    out = []
    for step in steps:
        for start, end in spans:
            changed = int(text[start : min(end, start + 30)]) + step
            if changed > 0:
                out.append(text[:start] + str(changed) + text[end:])
    return out


def _formulas(gold: str, draw: Stream) -> list[str]:
    out = _changed_integers(gold, draw)[:12]
    signs = [gold.replace("+", "-", 1)] if "+" in gold else [gold[1:] if gold.startswith("-") else f"-{gold}"]
    if "+" not in gold and "-" in gold[1:]:
        signs.insert(0, gold[0] + gold[1:].replace("-", "+", 1))
    out[1:1] = signs
    return [*out, f"2{gold}", f"{gold}+1", "0", "1"]


def _texts(gold: str, draw: Stream) -> list[str]:
    out = []
    if _INTEGER.search(gold):
        out = _changed_integers(gold, draw)
    words = gold.split(" ")
    pairs = [i for i in range(len(words) - 1) if words[i] != words[i + 1]]
    draw.shuffle(pairs)
    if not out:
        for i in pairs[:_WANTED]:
            out.append(" ".join([*words[:i], words[i + 1], words[i], *words[i + 2 :]]))
    if len(words) > 1:
        out += [" ".join(words[:-1]), " ".join([*words, words[-1]])]
    letters = [i for i in range(len(gold) - 1) if gold[i] != gold[i + 1] and gold[i : i + 2].isalpha()]
    out += [gold[:i] + gold[i + 1] + gold[i] + gold[i + 2 :] for i in letters[:_WANTED]]
    brackets = [b for b in ")]}>" if b != gold] if set(gold) <= set("()[]{}<> ") else []
    return [*out, *brackets, "unknown", "none"]
