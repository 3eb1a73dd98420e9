"""The part of a model's text that it meant to be read: what follows its thoughts."""

from __future__ import annotations

import re

from msgspec import Struct

# Reasoning models mark thoughts by tags; servers without a reasoning parser leave them in the text.
_TAG = re.compile(r"<(/?)(?:seed:)?(?:think|thinking|thought|reasoning)>|\[(/?)THINK\]", re.IGNORECASE)
# gpt-oss without its parser: channels, with special tokens kept or skipped by the detokeniser.
_FINAL = re.compile(r"<\|channel\|>final[^<]*<\|message\|>")
_ANALYSIS = re.compile(r"<\|channel\|>(?:analysis|commentary)")
_BARE_ANALYSIS = re.compile(r"analysis(?=[A-Z])")
_END = re.compile(r"(?:<\|(?:return|end|call)\|>\s*)+\Z")


class Reply(Struct, frozen=True, gc=False):
    """A text without its thoughts. `cut`: it ends inside a thought; what the model meant to say is
    missing."""

    text: str
    cut: bool = False


def visible(text: str) -> str:
    """`text` without its thoughts, unchanged where there are none: what a thought holds is never an answer.

    A closing tag without an opening one ends a thought that began with the text (the prompt held the opening
    tag); an opening tag that is never closed begins a thought that the output limit cut.
    """
    if "<" not in text and "[" not in text and not text.startswith("analysis"):
        return text
    return _without_thoughts(text).text


def read(text: str) -> Reply:
    """Like `visible`, and whether the text was cut inside a thought."""
    if "<" not in text and "[" not in text and not text.startswith("analysis"):
        return Reply(text)
    return _without_thoughts(text)


def _without_thoughts(text: str) -> Reply:
    harmony = _last_channel(text)
    if harmony is not None:
        return harmony
    kept: list[str] = []
    start = 0
    inside = False
    for tag in _TAG.finditer(text):
        if tag.group(1) or tag.group(2):
            if not inside:
                kept.clear()  # everything so far was a thought
            inside = False
            start = tag.end()
        elif not inside:
            kept.append(text[start : tag.start()])
            inside = True
    if inside:
        return Reply("".join(kept), cut=True)
    if not kept and start == 0:
        return Reply(text)
    kept.append(text[start:])
    return Reply("".join(kept))


def _last_channel(text: str) -> Reply | None:
    """The final channel of a gpt-oss reply whose channel marks were left in; None where there are none."""
    if "<|channel|>" in text:
        finals = list(_FINAL.finditer(text))
        if finals:
            return Reply(_END.sub("", text[finals[-1].end() :]))
        return Reply("", cut=True) if _ANALYSIS.search(text) else None
    if _BARE_ANALYSIS.match(text):
        _, mark, final = text.rpartition("assistantfinal")
        return Reply(final) if mark else Reply("", cut=True)
    return None
