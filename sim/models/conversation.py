"""How a simulated model answers calls in which it sees other answers, rates several, or writes no answer at all.

- `revise`: an answer given after seeing answers (debate, aggregation, refinement, a later step of a chain). The model works
  the task out anew, as in a takeover; then, with the chance by which a reviewer moves to the others' opinion (`follow_*`),
  it takes the plurality of what it is shown and its own result. Without readable answers in sight it is a new attempt.
  One step of K takes a K-th of an answer's tokens (estimated: nobody has published how long they are).
- `judge`: each shown answer is scored as this model would in a review, with the same leniencies towards it.
- `plan`: text without an answer (a plan, a routing decision): no effect on correctness, tokens like a review's.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from meshheal import prompts
from meshheal.answers import read
from meshheal.methods.prompts import shown, steps_asked, steps_in_all
from meshheal.model import Completion, Request, Sampling
from meshheal.rng import uniforms
from meshheal.types import Score, Task
from sim.models import replies

if TYPE_CHECKING:
    from sim.models.synthetic import Synthetic

PURPOSES: Final = ("plan", "revise", "judge")
_TWO32 = 2.0**32
_STEPS = (
    "Restate what is given and what is asked.",
    "Set up the relations between the quantities.",
    "Carry out the calculation or the inference.",
    "Check the result and state the final answer.",
)


def sample(model: Synthetic, request: Request, task: Task) -> Completion:
    """The completion of a request of one of `PURPOSES`, which is about `task`."""
    match request.key.purpose:
        case "revise":
            return _revise(model, request, task)
        case "judge":
            return _judge(model, request, task)
    return _plan(model, request, task)


def _revise(model: Synthetic, request: Request, task: Task) -> Completion:
    own = model._answer(request, task, steps_in_all(request.messages))
    form = task.form
    seen = [v for v in (read(form, text) for text in shown(request.messages)) if v is not None]
    if not seen:
        return own
    follow = model._follow[model.solves(task)] / _TWO32
    key, frame, texts = request.key, replies.frame(form), list(own.texts)
    for i, text in enumerate(texts):
        u = uniforms("revise", model._seed, model.name, key.item, key.agent, key.n, i)
        if u[0] >= follow or text == replies.CUT:  # cut off before it could
            continue
        mine = read(form, text)
        votes = Counter(seen if mine is None else [*seen, mine])
        most = max(votes.values())
        top = sorted(v for v, n in votes.items() if n == most)
        if mine not in top:
            before, after = frame[int(u[2] * replies.VARIANTS)]
            texts[i] = before + top[int(u[1] * len(top))] + after
    return replace(own, texts=tuple(texts))


def _judge(model: Synthetic, request: Request, task: Task) -> Completion:
    scores: list[float] = []
    length = 1
    for i, text in enumerate(shown(request.messages)):
        key = replace(request.key, purpose="review", n=_JUDGED + 64 * request.key.n + i)
        done = model.sample(Request(prompts.review(task, text), Sampling(n=1), key), task)
        read_as = prompts.read_review(done.texts[0])
        length = max(length, done.usage.completion)
        if not isinstance(read_as, Score):
            return model._completion(
                request, [done.texts[0]], [length], "length" if done.finish == "length" else "stop"
            )
        scores.append(read_as.value)
    words = "No error was found." if min(scores, default=0.0) >= 0.5 else "A step does not follow; work it out again."
    return model._completion(request, [json.dumps({"scores": scores, "feedback": words})], [length], "stop")


_JUDGED: Final = 1 << 20
"""Keeps the draws of these scores apart from those of reviews."""


def _plan(model: Synthetic, request: Request, task: Task) -> Completion:
    del task
    u = model._stream(request.key, 0)
    n = steps_asked(request.messages)
    text = json.dumps([_STEPS[min(i * 4 // max(n, 1), 3)] for i in range(n)])
    return model._completion(request, [text], [model._review_tokens[u[6] >> 22]], "stop")
