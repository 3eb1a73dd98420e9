"""Model: Request -> Completion. The one boundary between the protocol and whatever writes text."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Literal, Protocol

from msgspec import Struct

from meshheal.types import AgentId, Message, TaskId, Usage

Purpose = Literal["produce", "review", "deliberate", "takeover", "probe", "plan", "revise", "judge"]
PURPOSES: tuple[Purpose, ...] = ("produce", "review", "deliberate", "takeover", "probe", "plan", "revise", "judge")
"""What a call is for. The last three are of methods beside MeshHeal: text that holds no answer (a plan, a routing
decision); an answer given after seeing others' or one's own earlier one; scores of one or more shown answers."""


class Sampling(Struct, frozen=True, gc=False):
    """How to sample. `n` completions are asked for in one request; its prompt is billed once."""

    temperature: float = 0.7
    max_tokens: int = 4096
    n: int = 1


class CallKey(Struct, frozen=True, gc=False):
    """Identity of a call across methods, runtimes and replays: never the method's or the run's name.

    `item` is the task, `subject` the producer whose answer is looked at (the agent itself when it produces), `n` counts
    calls that are alike in everything else.
    """

    item: TaskId
    agent: AgentId
    purpose: Purpose
    subject: AgentId
    n: int = 0
    branch: int = 0


Scoring = Literal["", "endings", "rating"]
"""What is wanted of a model: text (empty), or likelihoods, which come back as one text of JSON (`meshheal.likelihood`).

`endings`: how likely each `assistant` message is to follow the `user` message before them. `rating`: how likely each number
of the rating scale is as the first token of the reply.
"""


class Request(Struct, frozen=True, gc=False):
    """What a model is asked. The shared part of the prompt (task, then answer) comes first in `messages`."""

    messages: tuple[Message, ...]
    sampling: Sampling
    key: CallKey
    score: Scoring = ""


class CallNotes(Struct, frozen=True, omit_defaults=True):
    """What is known of a call to a real server, beside its completion.

    `attempts` counts requests sent, `queued` the seconds spent waiting for a free slot of an endpoint. `estimated`: the server
    counted no tokens, or impossible ones, and ours are estimates. `cache_told`: it said how much of the prompt came from its
    prefix cache. `served` is the model's name in its reply where it is not the one asked for; `detail` says why a call failed.
    """

    attempts: int = 1
    queued: float = 0.0
    estimated: bool = False
    cache_told: bool = False
    served: str = ""
    detail: str = ""


class Completion(Struct, frozen=True, gc=False):
    """What came back: `texts` has `sampling.n` entries. `reasoning` is kept apart from content.

    `finish` is `stop`, `length` (cut by max_tokens) or `error`; `latency` is in seconds of the runtime's clock. Models behind a
    server add `notes`.
    """

    texts: tuple[str, ...]
    usage: Usage
    latency: float = 0.0
    finish: Literal["stop", "length", "error"] = "stop"
    reasoning: tuple[str, ...] = ()
    notes: CallNotes | None = None


class Model(Protocol):
    """Anything that answers requests. `name` appears in logs; `family` groups models that err together."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def nature(self) -> Literal["simulated", "recorded", "live"]: ...

    async def complete(self, request: Request) -> Completion:
        """Answer `request`; raises `ModelError` where no completion can be had."""
        ...


@lru_cache(maxsize=4096)
def text_id(text: str) -> str:
    """Identity of a long text in a log: 16 hex digits of its BLAKE2b hash."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def prompt_id(messages: tuple[Message, ...]) -> str:
    """Identity of a prompt: equal if and only if roles and contents are equal."""
    return prompt_id_of(tuple([(m.role, text_id(m.content)) for m in messages]))


def prompt_id_of(prompt: tuple[tuple[str, str], ...]) -> str:
    """`prompt_id` of a prompt given as (role, text id) of its messages."""
    whole = "|".join([f"{role}:{text}" for role, text in prompt])
    return blake2b(whole.encode(), digest_size=8).hexdigest()
