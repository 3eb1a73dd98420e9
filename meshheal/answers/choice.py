"""The letters that a reply asserts, told from those that merely occur (the pronoun I, `Answer: Because`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from meshheal.answers.plain import Found, boxes, denied, plain

_VERB = r"(?:is|was|are|be|becomes|remains|(?:should|must|would|will|has\s+to|seems\s+to)\s+be)"
_ADVERB = (
    r"(?:therefore|thus|then|hence|clearly|indeed|definitely|probably|(?:most\s+)?likely|simply|"
    r"still|actually|now|closest\s+to)"
)
_NOUN = r"(?:answers?|options?|choices?|response|conclusion|solution|letter|alternative)"
_GAP = r"(?:\s+(?!not\b|isn|is\b|if\b|or\b)[\w'-]+){0,6}?"
_CUE = (
    rf"\b{_NOUN}{_GAP}\s+{_VERB}(?:\s+{_ADVERB})*\s*[:=]?\s*"
    rf"|\banswers?\s*[:=]\s*"
    rf"|\b(?:answer\s+)?(?:choice|option|letter|response|conclusion|solution)\s*[:=][ \t]*"
    rf"|\b(?:correct|right|best|closest)\s+(?:one|statement|match|description|explanation)(?:,\s+which)?"
    rf"\s+{_VERB}\s*:?\s*"
    rf"|\bclosest\s+(?:to|is)\s+(?=\()"
    rf"|\b(?:choose|select|pick|go\s+with|opt\s+for|settle\s+on)\s+(?=\(|{_NOUN})"
)
_BEFORE = (
    rf"(?:not[ ]\(?[A-Za-z]\)?[ ]?,?[ ]?(?:but|rather|it[ ]is|it's)[ ](?:rather[ ])?)?"
    rf"(?:the[ ])?(?:(?:correct|right|best|final)[ ])?(?:{_NOUN}(?:[ ]{_VERB})?:?[ ]?)?"
    rf"(?:\\boxed\s*\{{\s*)?[\"'\u201c\u2018]?[ ]?"
)
_BECAUSE = r"(?:because|since|which|due\s+to|given|(?:(?:and|but)\s+)?not)\b"
_CONNECTIVE = rf"(?:{_BECAUSE}|(?:as|for|and|with|when|if|where|but|so|is|in)\b)"
_NONE = (
    r"(?P<none>(?i:[(\[]?(?:(?:none|neither|all|both)\s+of|(?:cannot|can't|could\s+not)\s+be\s+determined|"
    r"undetermined|indeterminate)))"
)
"""Saying that no listed option holds: takes back what was asserted before."""
_STOP = r"\s*(?:$|\n|[.,;:!?)\]}\"'\u201d\u2019|](?!\w))"
_DENIED_LABEL = re.compile(
    r"\b(?:if|whether|suppose|nor|neither|not|or|and|both|why)\s+(?:option\s+|choice\s+)?$", re.IGNORECASE
)
_FIRST_WORD = re.compile(
    r"\b(?:answer|option|choice|response|conclusion|solution|letter|alternative|correct|right|best|closest|choose|"
    r"select|pick|go\s|opt\s|settle\s)"
)
_QUESTION = re.compile(r"[)\]}\"'\u201d\u2019]*\s?\?")
_LETTER_LINE = re.compile(r"^[ \t]*(?:[A-Z][ \t]*$|\([A-Z]\) \S)", re.MULTILINE)
_TURN = re.compile(r"\n\s*(?:Question|Q)\s*:")


class _Patterns(NamedTuple):
    """Compiled for one set of labels."""

    cued: re.Pattern[str]
    hedge: re.Pattern[str]
    upheld: re.Pattern[str]
    named_line: re.Pattern[str]
    alone: re.Pattern[str]
    opening: re.Pattern[str]
    parenthesised: re.Pattern[str]


@lru_cache(maxsize=256)
def _patterns(options: tuple[str, ...]) -> _Patterns:
    upper = "|".join(re.escape(o) for o in sorted(options, key=len, reverse=True))
    lower = "|".join(re.escape(o.lower()) for o in sorted(options, key=len, reverse=True))
    wary = "|".join(re.escape(o) for o in options if o in ("A", "I")) or r"(?!)"
    bold = "|".join(re.escape(o) for o in options if o not in ("A", "I")) or r"(?!)"
    enclosed = rf"[(\[{{<]\s*(?P<enclosed>{upper}|{lower})\s*[.:]?\s*[)\]}}>]"
    bare = (
        rf"(?P<wary>{wary})(?={_STOP}|\s+{_BECAUSE})"
        rf"|(?P<bold>{bold})(?={_STOP}|\s+(?:{_CONNECTIVE}|[^\sa-z+*/^=<>_]))"
        rf"|(?P<lower>{lower})(?=\s*(?:$|\n|[.;:)\]}}](?!\w)))"
    )
    label = rf"(?:{enclosed}|{bare})"
    several = rf"(?P<several>[(\[]\s*(?:{upper})\s*(?:,|/|&|\band\b|\bor\b)\s*(?:{upper}|and\b|or\b|I+\b))"
    plain_label = rf"(?:[(\[]\s*(?:{upper}|{lower})\s*[)\]]|(?:{upper})(?![\w'\u2019]))"
    return _Patterns(
        re.compile(rf"(?i:{_CUE})(?i:{_BEFORE})(?:{label}|{several}|{_NONE})"),
        re.compile(
            rf"\s*(?:,\s*{plain_label}\s*)*,?\s*(?:\bor\b|\band\b|&|/)\s*(?:perhaps\s+|maybe\s+|possibly\s+)?{plain_label}"
            rf"(?!\s+(?:is|was|does|cannot|would|has|can)\b)"
        ),
        re.compile(
            rf"(?:[(\[]\s*(?P<enclosed>{upper}|{lower})\s*[)\]]|(?<![\w'\u2019.])(?P<bare>{upper}))\s+(?:is|must\s+be|would\s+be)\s+"
            rf"(?i:therefore\s+|thus\s+|clearly\s+|indeed\s+)?(?i:(?:the|my|our)\s+)?(?i:only\s+|single\s+)?"
            rf"(?i:(?:most\s+(?:likely|probable)\s+)?(?:(?:correct|right|best|final)(?:\s+(?:answer|option|choice|one))?|answer))\b"
        ),
        re.compile(rf"^[ \t]*(?P<word>[A-Za-z][\w ]{{0,20}}):[ \t]*\(?(?P<label>{upper})\)?[.]?[ \t]*$"),
        re.compile(
            rf"^[ \t]*(?:[(\[][ \t]*(?P<enclosed>{upper}|{lower})[ \t]*[)\]]|(?P<label>{upper}|{lower})\)?)"
            rf"[.:]?[ \t]*$"
        ),
        re.compile(
            rf"^\s*(?:(?i:option|choice|answer)\s+)?(?:\((?P<enclosed>{upper})\)(?!\s+(?:is|are|was|or|and|cannot|does)\b)"
            rf"|(?P<bare>{upper})[.)](?=\s+\S))"
        ),
        re.compile(rf"\(\s*({upper})\s*\)"),
    )


def choices(options: tuple[str, ...], text: str) -> list[Found]:
    """Assertions of one of `options` in `text`, in order."""
    turn = _TURN.search(text)
    if turn:  # a base model that went on to invent the next question has answered before
        before = _asserted(options, text[: turn.start()])
        if before:
            return before
    return _asserted(options, text)


def _asserted(options: tuple[str, ...], text: str) -> list[Found]:
    boxed = boxes(text) if "boxed" in text or "\\fbox" in text else []
    labels = [Found(at, None if content is None else _boxed_label(options, content)) for at, content in boxed]
    if boxed and boxed[-1][1] is None:
        return labels[-1:]
    found = [f for f in labels if f.value is not None]
    cut_in_formula = text[text.rstrip().rfind("\n") + 1 :].count("$$") % 2 == 1
    return _spoken(options, plain(text) + ("\n$$" if cut_in_formula else "")) or found


def _spoken(options: tuple[str, ...], text: str) -> list[Found]:
    patterns = _patterns(options)
    found = []
    for m in _cued(patterns.cued, text):
        if denied(text, m.start()):
            continue
        label = m["enclosed"] or m["wary"] or m["bold"] or m["lower"]
        after = m.end()
        hedge = patterns.hedge.match(text, after) if label else None
        if _QUESTION.match(text, hedge.end() if hedge else after):
            continue
        found.append(Found(m.start(), None if hedge or not label else _as_option(options, label)))
    for m in patterns.upheld.finditer(text):
        if _DENIED_LABEL.search(text, max(0, m.start() - 30), m.start()) or text[m.end() : m.end() + 1] == "?":
            continue
        found.append(Found(m.start(), _as_option(options, m["enclosed"] or m["bare"])))
    last = _last_line(options, text)
    if last is not None and not any(f.at >= last.at for f in found):
        found.append(last)
    return sorted(found)


def _cued(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches of `pattern` in order, tried only where one of its first words stands: several times
    faster.
    """
    folded = text.lower()
    if len(folded) != len(text):
        yield from pattern.finditer(text)
        return
    end = 0
    for start in _FIRST_WORD.finditer(folded):
        if start.start() >= end and (m := pattern.match(text, start.start())):
            end = m.end()
            yield m


def _last_line(options: tuple[str, ...], text: str) -> Found | None:
    """A label that is all of the last line (`(B)`, `GRID: B`), or opens a reply of one line (`B. 45 kg`)."""
    patterns = _patterns(options)
    body = text.rstrip()
    start = body.rfind("\n") + 1
    line = body[start:]
    m = patterns.alone.match(line)
    if m and not _LETTER_LINE.search(body, 0, start):  # else a list or table of letters
        return Found(start, _as_option(options, m["enclosed"] or m["label"]))
    m = patterns.named_line.match(line)
    if m and m["word"].strip().lower() not in ("error", "warning", "code", "exception", "note", "question"):
        return Found(start, m["label"])
    if "\n" not in body.strip():
        m = patterns.opening.match(line)
        if m:
            label = m["enclosed"] or m["bare"]
            others = set(patterns.parenthesised.findall(line)) - {label}
            if not others:
                return Found(start, label)
    return None


def _boxed_label(options: tuple[str, ...], content: str) -> str | None:
    inner = plain(content).strip()
    patterns = _patterns(options)
    m = patterns.alone.match(inner)
    if m:
        return _as_option(options, m["enclosed"] or m["label"])
    m = patterns.opening.match(inner)
    return (m["enclosed"] or m["bare"]) if m else None


def _as_option(options: tuple[str, ...], label: str) -> str:
    return label if label in options else label.upper()
