"""Reading the value that a reply asserts.

What counts as an assertion is a cue ("the answer is", `\boxed{}`, a line "Answer: B", "B is correct")
followed by an allowed value, or a reply that is nothing but the value. The last assertion counts: a text that
corrects itself ends with what it means, and of the published MMLU-Pro texts that assert several letters the
last is right more often than the first. Nothing is ever guessed: a text without an assertion has no answer.
"""

from __future__ import annotations

import re
from functools import lru_cache

from meshheal.answers.choice import choices
from meshheal.answers.plain import QUANTITY, Found, boxes, denied, number_text, plain, reply_part, text_form
from meshheal.types import AnswerForm

LEAD = "The answer is"
"""How a reply announces its value: told to models by `instruction`, looked for by `read`."""


@lru_cache(maxsize=1024)
def instruction(form: AnswerForm) -> str:
    """The sentence that tells a model how to end its reply, so that `read` finds the value."""
    match form.kind:
        case "choice":
            listed = ", ".join(form.options[:-1]) + f" or {form.options[-1]}" if form.options else "a letter"
            return f'End your reply with "{LEAD} (X)." where X is {listed}.'
        case "number":
            return f'End your reply with "{LEAD} N." where N is the number alone.'
        case "math":
            return "Put your final answer, and nothing else, in \\boxed{...} at the end of your reply."
        case "text":
            if form.options:
                return f'End your reply with "{LEAD} X." where X is one of: {", ".join(form.options)}.'
            return f'End your reply with a line "{LEAD}: X" where X is the answer alone.'


@lru_cache(maxsize=8192)
def read(form: AnswerForm, text: str) -> str | None:
    """The value that `text` asserts, in the form's own writing; None if it asserts nothing.

    A choice becomes its label as in `form.options`, a number its canonical writing, a mathematical answer the
    LaTeX of its last box, a text answer its normalised words.
    """
    quick = _quick(form, text)
    if quick is not None:
        return quick
    found = assertions(form, text)
    return found[-1].value if found else None


def asserted(form: AnswerForm, text: str) -> tuple[str, ...]:
    """All values that `text` asserts, in order, repeats included."""
    return tuple([f.value for f in assertions(form, text) if f.value is not None])


def _quick(form: AnswerForm, text: str) -> str | None:
    """The value of a reply that ends exactly as `instruction` asks; None leaves it to the full reading.

    The last assertion counts, so nothing before such an ending matters.
    """
    if form.kind == "math":
        return None
    start = text.rfind(LEAD, max(0, len(text) - 120))
    if start < 0 or not (start == 0 or text[start - 1] == "\n" or text[start - 2 : start] == ". "):
        return None
    if "\\boxed" in text or "\\fbox" in text or "think>" in text or "Q" in text:
        return None  # a box, a thought, an invented question
    rest = text[start + len(LEAD) :].rstrip()
    if form.kind == "text" and not form.options:
        return text_form(rest[1:]) or None if rest[:2] == ": " and "\n" not in rest else None
    rest = rest[1:-1] if rest.endswith(".") else rest[1:]
    if form.kind == "number":
        return number_text(rest) if _PLAIN_NUMBER.fullmatch(rest) else None
    if form.kind == "choice":
        rest = rest[1:-1] if rest[:1] == "(" and rest[-1:] == ")" else ""
    return rest if rest in form.options else None


_PLAIN_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:/\d{1,20})?")


def assertions(form: AnswerForm, text: str) -> list[Found]:
    """All assertions in `text`, in order, with those that take back what was said before."""
    text = reply_part(text)
    if not text or text.isspace():
        return []
    match form.kind:
        case "choice":
            return choices(form.options, text)
        case "text" if form.options:
            return _words(form.options, text)
        case "number":
            return _numbers(text)
        case "math":
            return _formulas(text)
        case _:
            return _texts(text)


_IS = r"(?:is|are|was|be|equals|becomes|would\s+be|must\s+be|should\s+be|will\s+be)"
_CUE = (
    rf"\b(?:answers?|result|total|solution)(?:\s+(?!not\b|is\b)[\w'-]+){{0,6}}?(?:\s+{_IS}(?:\s+(?:therefore|thus|then|approximately|"
    rf"about|exactly|simply|now|actually))?\s*[:=]?|\s*[:=])\s*"
)
_CUED_NUMBER = re.compile(
    rf"(?i:{_CUE})(?:the\s+)?(?:[a-zA-Z]\w?\s*=\s*)?(?P<number>{QUANTITY})(?P<after>\s*\?)?(?!\w*\.?\d)"
)
_OTHER_NUMBER = re.compile(r"\s*,?\s*(?:or|and)\s+[-+]?[$]?\d")
_ALONE = re.compile(
    rf"^\s*(?:[a-zA-Z]\s*=\s*)?(?P<number>{QUANTITY})\s*"
    rf"(?P<unit>\\?\s*[a-zA-Z\u00b0\u00b2\u00b3^{{}}/ ]{{0,24}})?[.]?\s*$"
)
_EQUALS_END = re.compile(rf"=\s*(?P<number>{QUANTITY})\s*[.]?\s*$")
_HASHES = re.compile(rf"####\s*(?P<number>{QUANTITY})")


def _numbers(text: str) -> list[Found]:
    boxed = [Found(at, None if c is None else _lone_number(c)) for at, c in boxes(text)] if "\\" in text else []
    if boxed:
        return boxed[-1:] if boxed[-1].value is None else [b for b in boxed if b.value is not None]
    text = plain(text)
    found = []
    for m in _CUED_NUMBER.finditer(text):
        if m["after"] or denied(text, m.start()):
            continue
        value = None if _OTHER_NUMBER.match(text, m.end()) else number_text(m["number"])
        found.append(Found(m.start(), value))
    found += [Found(m.start(), number_text(m["number"])) for m in _HASHES.finditer(text)]
    body = text.rstrip()
    start = body.rfind("\n") + 1
    line = body[start:]
    last = _ALONE.match(line) or _EQUALS_END.search(line)
    if last and not any(f.at >= start for f in found):
        found.append(Found(start, number_text(last["number"])))
    return sorted(found, key=lambda f: f.at)


def _lone_number(text: str) -> str | None:
    m = _ALONE.match(plain(text))
    return number_text(m["number"]) if m else number_text(text)


_CUED_REST = re.compile(
    r"\b(?:answer|result)(?:\s+(?!not\b|is\b)[\w'-]+){0,4}?(?:\s+(?:is|are)\s*:?|\s*:)[ \t]*(?P<rest>[^\n]*)",
    re.IGNORECASE,
)


def _formulas(text: str) -> list[Found]:
    boxed = boxes(text) if "boxed" in text or "\\fbox" in text else []
    if boxed:
        if boxed[-1][1] is None:
            return [Found(boxed[-1][0], None)]
        return [Found(at, content or None) for at, content in boxed if content is not None]
    found = []
    for m in _CUED_REST.finditer(text):
        if denied(text, m.start()):
            continue
        value = _formula_at(m["rest"])
        if value:
            found.append(Found(m.start(), value))
    return found


_DELIMITED = re.compile(r"\$\$?(?P<dollar>[^$]+)\$\$?|\\\((?P<paren>.+?)\\\)|\\\[(?P<bracket>.+?)\\\]")


def _formula_at(rest: str) -> str:
    """The formula that a line after "the answer is" holds: the delimited one, else the line without its full
    stop.
    """
    rest = rest.replace("**", "").strip()
    m = _DELIMITED.match(rest)
    if m:
        return (m["dollar"] or m["paren"] or m["bracket"]).strip()
    return rest.rstrip(".").strip()


def _texts(text: str) -> list[Found]:
    boxed = boxes(text) if "boxed" in text or "\\fbox" in text else []
    if boxed:
        last = boxed[-1]
        return [Found(last[0], None)] if last[1] is None else [Found(a, text_form(c)) for a, c in boxed if c]
    found = []
    for m in _CUED_REST.finditer(text):
        if denied(text, m.start()):
            continue
        value = text_form(m["rest"])
        if value:
            found.append(Found(m.start(), value))
    if not found and "\n" not in text.strip():
        value = text_form(text)
        if value and len(value) <= 200:
            found.append(Found(0, value))
    return found


def _words(options: tuple[str, ...], text: str) -> list[Found]:
    pattern, other = _word_pattern(options), _other_word(options)
    bare = plain(text)
    found = []
    for m in pattern.finditer(bare):
        if denied(bare, m.start()):
            continue
        hedged = m["word"] and other.match(bare, m.end())
        found.append(Found(m.start(), None if hedged else _as_word(options, m["word"] or m["boxed"])))
    body = bare.rstrip()
    start = body.rfind("\n") + 1
    last = _word_alone(options).match(body[start:])
    if last and not any(f.at >= start for f in found):
        found.append(Found(start, _as_word(options, last["word"])))
    return sorted(found, key=lambda f: f.at)


def _as_word(options: tuple[str, ...], word: str) -> str:
    return next(o for o in options if o.lower() == word.lower())


@lru_cache(maxsize=256)
def _word_pattern(options: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(re.escape(o) for o in sorted(options, key=len, reverse=True))
    return re.compile(
        rf"\banswer(?:\s+(?!not\b|is\b)[\w'-]+){{0,5}}?(?:\s+{_IS}\s*:?|\s*:)\s*(?:\\boxed\s*\{{)?[\"'(\u201c]*(?P<word>{words})\b(?!\s*\?)"
        rf"|\\boxed\s*\{{\s*(?P<boxed>{words})\s*\}}",
        re.IGNORECASE,
    )


@lru_cache(maxsize=256)
def _other_word(options: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(re.escape(o) for o in sorted(options, key=len, reverse=True))
    return re.compile(rf"\s*(?:,?\s*(?:or|and)\s+|/\s*)(?:{words})\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def _word_alone(options: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(re.escape(o) for o in sorted(options, key=len, reverse=True))
    return re.compile(rf"^\W*(?P<word>{words})(?:\W*$|[,.;:](?=\s))", re.IGNORECASE)
