"""The rivals' prompts, each next to the parser of its reply. Wording is ours; what is asked follows the named source.

The shared part (the task) comes first. Answers of several agents are shown between marks, so that a reader, a simulated one
too, can tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from meshheal import reply
from meshheal.prompts import EMPTY, SCALE_MAX, SCALE_MIN
from meshheal.types import Message, Task

_SHOWN = re.compile(r"\[Answer (\d+)\]\n(.*?)\n\[End of answer \1\]", re.DOTALL)
_IN_FORM: Final = "Give your final answer in the form that the task asks for."


def show(texts: Sequence[str]) -> str:
    """Answers one after another, numbered from 1."""
    parts = [f"[Answer {i}]\n{text.strip() or EMPTY}\n[End of answer {i}]" for i, text in enumerate(texts, 1)]
    return "\n".join(parts)


def shown(messages: Sequence[Message]) -> list[str]:
    """The answers that the last message shows; where it shows none, the last turn of the assistant."""
    found = [text for _, text in _SHOWN.findall(messages[-1].content)]
    if found:
        return found
    return [m.content for m in reversed(messages) if m.role == "assistant"][:1]


def _own(text: str) -> Message:
    return Message("assistant", text if text and not text.isspace() else EMPTY)


def debate(task: Task, own: str, others: Sequence[str]) -> tuple[Message, ...]:
    """A further round of multi-agent debate (Du et al., arXiv 2305.14325): one's own answer, then the others'."""
    words = f"""{show(others)}

These are other agents' answers to the same task. Take their reasoning as advice that may be mistaken, check your own
answer against it, and give your updated answer. {_IN_FORM}"""
    return (*task.messages, _own(own), Message("user", words))


def feedback(task: Task, own: str) -> tuple[Message, ...]:
    """Feedback on one's own answer (Self-Refine, arXiv 2303.17651). Read the reply with `read_scores`."""
    words = f"""Look for errors in your answer above, step by step.
{_scores(1)}"""
    return (*task.messages, _own(own), Message("user", words))


def refine(task: Task, own: str, criticism: str) -> tuple[Message, ...]:
    """The next attempt of Self-Refine, given the feedback."""
    words = f"""Feedback on your answer above: {criticism.strip() or "none"}

Improve your answer accordingly. {_IN_FORM}"""
    return (*task.messages, _own(own), Message("user", words))


def rank(task: Task, texts: Sequence[str]) -> tuple[Message, ...]:
    """Ask a ranker to rate all answers of a round (DyLAN, arXiv 2310.02170). Read the reply with `read_scores`."""
    words = f"""{show(texts)}

Rate how likely each of these {len(texts)} answers is right.
{_scores(len(texts))}"""
    return (*task.messages, Message("user", words))


def aggregate(task: Task, texts: Sequence[str]) -> tuple[Message, ...]:
    """Ask an aggregator for one answer out of several (Mixture-of-Agents, arXiv 2406.04692)."""
    words = f"""{show(texts)}

These are answers of several models to the task. Some of what they say may be biased or wrong; evaluate it critically
and do not simply copy. Synthesise one accurate answer. {_IN_FORM}"""
    return (*task.messages, Message("user", words))


def _scores(n: int) -> str:
    return (
        f'Reply with one JSON object and nothing after it: {{"scores": [{n} number{"s" * (n > 1)} from {SCALE_MIN} to '
        f'{SCALE_MAX}, one for each answer], "feedback": "<one or two sentences>"}}'
    )


class Scores(msgspec.Struct, frozen=True):
    """Scores of shown answers, in their order, and words."""

    scores: list[float]
    feedback: str = ""


_decode = msgspec.json.Decoder(Scores).decode
_OBJECT = re.compile(r"\{[^{}]*\}", re.DOTALL)


def read_scores(text: str, n: int) -> Scores | None:
    """The scores of `n` answers in a reply; None where they cannot be read, are of another number, or off the scale."""
    said = reply.read(text)
    if said.cut:
        return None
    for found in reversed(_OBJECT.findall(said.text)):
        try:
            scores = _decode(found)
        except (msgspec.MsgspecError, ValueError):
            continue
        fits = len(scores.scores) == n and all(SCALE_MIN <= s <= SCALE_MAX for s in scores.scores)
        return scores if fits else None
    return None


# --- Symphony ----------------------------------------------------------------------------------------------------------

_STEPS = re.compile(r"exactly (\d+) steps?")
_STEP = re.compile(r"The step to carry out now, \d+ of (\d+):")


def plan(task: Task, steps: int) -> tuple[Message, ...]:
    """Ask a planner for a chain of subtasks (Symphony, arXiv 2508.20019). Read the reply with `read_plan`."""
    words = f"""Do not solve the task above. Decompose it into exactly {steps} step{"s" * (steps > 1)}, each of which another
agent can carry out with the results of those before it; the last one gives the final answer.
Reply with a JSON list of strings and nothing after it."""
    return (*task.messages, Message("user", words))


def steps_asked(messages: Sequence[Message]) -> int:
    """How many steps a prompt of `plan` asks for; 1 where it asks for none."""
    found = _STEPS.search(messages[-1].content)
    return int(found.group(1)) if found else 1


def extract(task: Task) -> tuple[Message, ...]:
    """Symphony's released planner asks first what the question is (`extract_task`)."""
    words = """Do not solve the task above. State its background and its question in one short paragraph each."""
    return (*task.messages, Message("user", words))


def read_plan(text: str, steps: int) -> list[str]:
    """The steps of a plan, `steps` of them: what is missing or cannot be read is to go on with the task."""
    found: Any = []
    body = reply.visible(text)
    start, end = body.find("["), body.rfind("]")
    if 0 <= start < end:
        try:
            found = msgspec.json.decode(body[start : end + 1])
        except (msgspec.MsgspecError, ValueError):
            found = []
    lines = [str(s) for s in found][:steps]
    return lines + ["Go on with the task."] * (steps - len(lines))


def step(
    task: Task, todo: str, before: Sequence[str], number: int, of: int, *, terse: bool = False
) -> tuple[Message, ...]:
    """Have subtask `number` (from 1) of a chain carried out, given all results before it. `terse`: without explanations."""
    lines = []
    if before:
        lines += ["Results of the steps before:", show(before), ""]
    lines += [f"The step to carry out now, {number} of {of}: {todo}"]
    lines.append("It is the last one. " + _IN_FORM if number == of else "End with the result that you reach.")
    if terse:
        lines.append("No explanations.")
    return (*task.messages, Message("user", "\n".join(lines)))


def steps_in_all(messages: Sequence[Message]) -> int:
    """Of how many steps the one is that a prompt of `step` asks for; 1 for other prompts."""
    found = _STEP.search(messages[-1].content)
    return int(found.group(1)) if found else 1


# --- AgentNet ----------------------------------------------------------------------------------------------------------


def route(task: Task, candidates: Sequence[str]) -> tuple[Message, ...]:
    """Ask a router what to do with a task (AgentNet, arXiv 2504.00587): the reply is text; weights decide."""
    words = "\n".join(
        [
            "Do not solve the task above. Decide whether to execute it yourself, to split it, or to forward it to one of:",
            *candidates,
            "Reply with the decision and one sentence of reason.",
        ]
    )
    return (*task.messages, Message("user", words))


def remembered(task: Task, examples: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    """The task after earlier tasks and answers that resemble it (AgentNet's memory); as it is where there are none."""
    if not examples:
        return task.messages
    lines = ["Earlier tasks that were solved, and how:"]
    for question, answer in examples:
        lines += ["", f"Task: {question}", f"Solution: {answer}"]
    return (Message("user", "\n".join(lines)), Message("assistant", "Understood."), *task.messages)
