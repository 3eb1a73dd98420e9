"""The values that agents exchange: tasks, answers, reviews, review records. All immutable, none with a gold answer."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

AgentId = int
"""Number of an agent in its topology, from 0."""
TaskId = str
Ability = str
ANY: Ability = "any"
"""The ability every agent has; the default of a task that names none."""

Channel = Literal["first_look", "probe"]
"""How a score was obtained. Scores are compared only within a channel."""


class Message(Struct, frozen=True, gc=False):
    """One chat message, as OpenAI-compatible servers take it."""

    role: Literal["system", "user", "assistant"]
    content: str


class AnswerForm(Struct, frozen=True, gc=False):
    """What an answer looks like, so that it can be read from text and compared without knowing the right one.

    `kind`: `choice` (one of `options`, e.g. letters A to J), `number`, `math` (a LaTeX expression), `text` (a short
    string, compared after normalisation). `options` are the allowed labels of a `choice`, or the allowed words of a
    `text` answer where the set is closed (yes/no); empty otherwise.
    """

    kind: Literal["choice", "number", "math", "text"]
    options: tuple[str, ...] = ()


class Cloze(Struct, frozen=True, gc=False):
    """A task with options as a text to be continued: `stem`, and the `endings` that may follow it, one an option of the
    task's form, in that order, each with its leading blank ("The capital of France is", (" Paris", " Lima")).
    """

    stem: str
    endings: tuple[str, ...]


class Task(Struct, frozen=True):
    """One unit of work. `kind` is the workload's own sub-type (a BBH file, a MATH level, an MMLU-Pro category).

    `cloze` is how models that are read by likelihood see the task; without it, they see its messages (`meshheal.likelihood`).
    """

    id: TaskId
    messages: tuple[Message, ...]
    form: AnswerForm
    ability: Ability = ANY
    kind: str = ""
    cloze: Cloze | None = None


class Usage(Struct, frozen=True, gc=False):
    """Tokens that one or more model calls took. `prompt` is billed once for a request of several samples."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens served from a prefix cache (part of `prompt`)."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached)


class Answer(Struct, frozen=True):
    """A producer's output. `value` is what was read from `text`; None with a `fault` says why nothing was."""

    task: TaskId
    producer: AgentId
    text: str
    value: str | None = None
    fault: Literal["", "empty", "truncated", "unreadable"] = ""


class Score(Struct, frozen=True, gc=False, tag=True):
    """One reviewer's opinion of one answer: 0 (wrong) to 1 (right), with its words."""

    value: float
    reason: str = ""


class Unscored(Struct, frozen=True, gc=False, tag=True):
    """A review without a verdict. Counted and reported, never turned into a number."""

    reason: str


Review = Score | Unscored


class ReviewRecord(Struct, frozen=True, omit_defaults=True):
    """What the neighbours of a producer learn about one of its outputs.

    `score` was obtained as `channel` says and is all that a detector reads. `committee` is the verdict where one was
    asked, `votes` the single opinions behind it as (reviewer, score). `family` says how a probe was judged: against
    answers of `other` model families than the producer's, or also of its `own`, or `reviewed` as a first look is.
    """

    id: str
    task: TaskId
    producer: AgentId
    ability: Ability
    kind: str
    channel: Channel
    score: float
    reviewers: tuple[AgentId, ...]
    coordinator: AgentId
    time: float
    committee: float | None = None
    votes: tuple[tuple[AgentId, float], ...] = ()
    family: Literal["other", "own", "reviewed"] = "reviewed"
    tranche: bool = False
    """A probe with a reference from before the frozen date: reads the group as well as the agent."""
    checked: float | None = None
    """What a reviewer made of a probe's answer that was compared: whether reviews tell right from wrong."""
