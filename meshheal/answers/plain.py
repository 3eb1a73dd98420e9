"""Text without its decoration (Markdown, LaTeX wrappers, full-width letters), and numbers as people write
them.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

_THOUGHT_END = "</think>"
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathbf|mathrm|mathit|mathsf|mathtt|bf|rm|emph|underline|mbox|hbox)"
    r"\s*\{([^{}]*)\}"
)
_MARKS = {ord(c): None for c in "`$"}
# Emphasis, not multiplication: an asterisk with blanks or operands on both sides stays.
_STARS = re.compile(r"(?<![\w)\s*])\*+|\*+(?![\w(\s*])|(?<=\s)\*+(?=[^\s*])|(?<=[^\s*])\*+(?=\s)")
_NOISE = re.compile(r"(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)|\\[()\[\],;:! ]|</?(?:b|i|em|strong|u|mark)>")
_SPACES = {ord(c): " " for c in "\u00a0\u2007\u2009\u200a\u202f\u3000"} | {
    ord(c): None for c in "\u200b\u200c\u200d\u2060\ufeff"
}
_DIGITS_MAX = 400
"""Longer numbers are not numbers to compare by value, but noise."""
_EXPONENT_MAX = 400


def reply_part(text: str) -> str:
    """What comes after a model's thought: behind the last `</think>`; nothing if the thought was never
    closed.
    """
    if "<think>" not in text and _THOUGHT_END not in text:
        return text
    end = text.rfind(_THOUGHT_END)
    if text.rfind("<think>") > end:
        return ""
    return text[end + len(_THOUGHT_END) :]


def plain(text: str) -> str:
    """`text` with emphasis marks, dollar signs and LaTeX font wrappers taken off, and compatibility letters
    folded.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_SPACES))
    while "\\" in text:
        unwrapped = _WRAPPER.sub(r"\1", text)
        if unwrapped == text:
            break
        text = unwrapped
    text = text.translate(_MARKS)
    if "*" in text:
        text = _STARS.sub("", text)
    return _NOISE.sub("", text) if "\\" in text or "_" in text or "</" in text else text


NUMBER = (
    r"[-+\u2212\u2013]?\s?[$\u20ac\u00a3]?\s?"
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:(?:\{,\}|\\,)\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+|\s?(?:\\times|\u00d7|x|\*)\s?10\s?(?:\^|\*\*)\s?\{?[-+\u2212]?\d+\}?)?"
)
"""A decimal number as it stands in prose: sign, currency, thousands separators, scientific notation."""
QUANTITY = (
    rf"(?:[-+]?\d+(?:\s\d+/\d+|\s?\\[dt]?frac\s?\{{\d+\}}\s?\{{\d+\}})|[-+\u2212]?\s?\\[dt]?frac\s?\{{[^{{}}]+\}}\s?\{{[^{{}}]+\}}|{NUMBER}(?:\s?/\s?\d[\d,]*)?)"
    rf"(?:\s?\\?%)?"
)
"""A number, a mixed number, a fraction of two numbers, or one of these as a percentage."""

_FRAC = re.compile(r"^([-+]?)\s*\\[dt]?frac\s*\{\s*([^{}]+?)\s*\}\s*\{\s*([^{}]+?)\s*\}$")
_MIXED = re.compile(r"^([-+]?)(\d{1,20})(?:\s+(\d{1,20})/(\d{1,20})|\s*\\[dt]?frac\s*\{(\d{1,20})\}\s*\{(\d{1,20})\})$")
_DECIMAL = re.compile(r"^([-+]?)(\d*)(?:\.(\d*))?(?:e([-+]?\d+))?$")
_TIMES_TEN = re.compile(r"\s*(?:\\times|\\cdot|\u00d7|x|\*)\s*10\s*(?:\^|\*\*)\s*\{?\s*([-+]?\d+)\s*\}?$")
_GROUP = re.compile(r"(?<=\d)(?:,|\{,\}|\\,|\\!|,\\!| |_)(?=\d{3}(?!\d))")


def number_text(text: str) -> str | None:
    """The canonical writing of a number: no separators, no needless zeros, `a/b` for a fraction, `%` kept.

    None if `text` is not one number. Not reduced: what was written as `2/4` stays so (`value_of` compares).
    """
    text = text.strip().strip("$").strip().replace("\u2212", "-").replace("\u2013", "-")
    percent = text.endswith("%")
    if percent:
        text = text[:-1].removesuffix("\\").rstrip()
    body = _mixed_text(text) or (_fraction_text(text) if "frac" in text or "/" in text else _decimal_text(text))
    return None if body is None else body + ("%" if percent else "")


def _mixed_text(text: str) -> str | None:
    """`3 1/2` and `3\\frac{1}{2}` as `7/2`; None for what is no mixed number."""
    found = _MIXED.match(text)
    if not found:
        return None
    sign, whole, top, bottom = found[1], int(found[2]), int(found[3] or found[5]), int(found[4] or found[6])
    return f"{'-' if sign == '-' else ''}{whole * bottom + top}/{bottom}" if bottom else None


def _fraction_text(text: str) -> str | None:
    found = _FRAC.match(text)
    if found:
        sign, top, bottom = found.groups()
    else:
        top, _, bottom = text.partition("/")
        sign = ""
    above, below = _decimal_text(top), _decimal_text(bottom)
    if above is None or below is None or not below.strip("-0."):
        return None
    negative = (sign == "-") ^ above.startswith("-") ^ below.startswith("-")
    above, below = above.lstrip("-"), below.lstrip("-")
    return ("-" if negative and above != "0" else "") + (above if below == "1" else f"{above}/{below}")


def _decimal_text(text: str) -> str | None:
    text = text.strip().lower().replace("$", "").replace("\u20ac", "").replace("\u00a3", "").replace("- ", "-")
    power = 0
    scaled = _TIMES_TEN.search(text)
    if scaled:
        power, text = int(scaled[1][:6]), text[: scaled.start()]
    found = _DECIMAL.match(_GROUP.sub("", text).strip())
    if not found or not (found[2] or found[3]) or len(text) > _DIGITS_MAX:
        return None
    power += int((found[4] or "0")[:6])
    if abs(power) > _EXPONENT_MAX:
        return None
    whole, part = found[2], found[3] or ""
    digits = whole + part
    point = len(whole) + power
    if point < 0:
        digits, point = "0" * -point + digits, 0
    if point > len(digits):
        digits += "0" * (point - len(digits))
    whole, part = digits[:point].lstrip("0") or "0", digits[point:].rstrip("0")
    body = whole + ("." + part if part else "")
    return "-" + body if found[1] == "-" and body != "0" else body


@lru_cache(maxsize=65536)
def value_of(canonical: str) -> Fraction | None:
    """The exact value of what `number_text` wrote, a percentage by its number (50% is 50)."""
    text = canonical.removesuffix("%")
    try:
        if "/" in text:
            top, bottom = text.split("/")
            return Fraction(top) / Fraction(bottom)
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


class Found(NamedTuple):
    """One assertion: where it stands, and its value (None: it says that no value holds, or its box never
    closes).
    """

    at: int
    value: str | None


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:(\{)|(\\?[A-Za-z0-9]+))")


def boxes(text: str) -> list[tuple[int, str | None]]:
    r"""Place and content of each `\boxed{...}`, braces matched; content None where the box never closes."""
    found: list[tuple[int, str | None]] = []
    at = 0
    while m := _BOX.search(text, at):
        if m[1]:
            end = closing(text, m.end(1) - 1)
            found.append((m.start(), None if end is None else text[m.end(1) : end].strip()))
            at = m.end() if end is None else end + 1
        else:
            found.append((m.start(), m[2]))
            at = m.end()
    return found


def closing(text: str, opening: int) -> int | None:
    """Index of the brace that closes the one at `opening`, escaped braces aside; None if there is none."""
    depth = 0
    i = opening
    while i < len(text):
        c = text[i]
        if c == "\\":
            i += 1
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return None


_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*([^{}]+?)\s*\}\s*\{\s*([^{}]+?)\s*\}")
_PRODUCT = re.compile(r"^\d+(?:\s*(?:\u00d7|\*|\\times|\\cdot|\u00b7|x)\s*\d+)*$")
_COMPLEX = re.compile(r"^([-+]?[\d.]+)?\s*(?:([-+])\s*)?([\d.]*)[ij]$")
_BRACKETS = re.compile(r"^[()\[\]{}<>\s]+$")


@lru_cache(maxsize=16384)
def text_form(text: str) -> str:
    """A short text without case, quotes, commas between words, final stop and needless blanks; factors in
    order.
    """
    bare = text.strip()
    if _BRACKETS.match(bare):
        return " ".join(bare.replace(" ", ""))
    if _PRODUCT.match(bare):
        return " \u00d7 ".join(sorted(re.findall(r"\d+", bare), key=int))
    bare = _FRACTION.sub(r"\1/\2", plain(bare)).strip().rstrip(".").strip("\"'\u201c\u201d\u2018\u2019").casefold()
    bare = " ".join(bare.replace(", ", " ").split())
    if _PRODUCT.match(bare):
        return " \u00d7 ".join(sorted(re.findall(r"\d+", bare), key=int))
    return _complex_form(bare) or bare


def _complex_form(text: str) -> str | None:
    m = _COMPLEX.match(text.replace(" ", ""))
    if not m:
        return None
    real = _decimal_text(m[1] or "0")
    imaginary = _decimal_text((m[2] or "") + (m[3] or "1"))
    if real is None or imaginary is None:
        return None
    return f"{real} {'-' if imaginary.startswith('-') else '+'} {imaginary.lstrip('-')}i"


_DENIED = re.compile(
    r"(?:(?:\b(?:not|never|cannot|hardly|nor|neither)|n['\u2019]t)(?:\s+(?:think|believe|mean|say|claim|agree|true|be|"
    r"certain|sure|imply|necessarily|convinced|the\s+case))*|\b(?:if|suppose|supposing|assume|assuming|whether|unless|why))"
    r"(?:\s+that)?(?:\s+(?:the|its|your|our|my))?(?:\s+(?:correct|right|best|final|only))?\s*$",
    re.IGNORECASE,
)


def denied(text: str, at: int) -> bool:
    """Whether the words just before `at`, on its line, deny or merely suppose what follows ("I don't think
    that the").
    """
    return _DENIED.search(text, max(0, at - 60, text.rfind("\n", 0, at) + 1), at) is not None
