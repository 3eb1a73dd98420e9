"""Answers and scores by likelihood from a real server: for models too small to judge, or to answer, in words.

How it is used:

    Served(endpoints=("http://127.0.0.1:8101/v1",), answers="likelihood")     the model answers tasks with options by the
                                                                              likeliest one, in every purpose but reviews
    settings={"review": {"by": "likelihood", "likelihood_scale": 1.0}}        reviewers score by likelihood

A task says how it reads as a sentence to be completed in `Task.cloze`, e.g. Cloze("The capital of France is", (" Paris",
" Lima")), one ending an option of its form, in that order: `AnswerForm("text", ("Paris", "Lima"))`. Without a cloze the
sentence is the task's prompt followed by "The answer is". What is asked and how scores come about, with formulas, stands in
`meshheal.likelihood`; here is the one request behind it: POST /completions with the prompts echoed (`echo`, `logprobs`), as
vLLM and SGLang offer it. No text is generated, no chat template applied: a `preamble` of the server's description is.

The mean runs over the tokens that reach into the ending, so options of different lengths compare. One request holds all the
options; the server's prefix cache or batching shares the stem between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshheal.errors import ModelError
from meshheal.likelihood import answer_text, best, cloze, write_endings
from meshheal.models.replies import Asked, clean, read_loglik

if TYPE_CHECKING:
    from meshheal.model import Request
    from meshheal.models.openai import Ledger, OpenAI
    from meshheal.types import Task


def answerable(task: Task) -> bool:
    """Whether a task has options to choose from."""
    return cloze(task) is not None


async def weigh(model: OpenAI, request: Request, ledger: Ledger) -> tuple[str, ...]:
    """The reply to a request with score `endings`."""
    stem, *endings = [m.content for m in request.messages]
    return (write_endings(await mean_loglik(model, request, stem, endings, ledger)),)


async def answer(model: OpenAI, request: Request, task: Task, ledger: Ledger) -> tuple[str, ...]:
    """Replies that assert the likeliest option: the same one for every sample asked for."""
    of = cloze(task)
    assert of is not None
    loglik = await mean_loglik(model, request, of.stem, list(of.endings), ledger)
    return (answer_text(task, best(loglik)),) * request.sampling.n


async def mean_loglik(model: OpenAI, request: Request, stem: str, endings: list[str], ledger: Ledger) -> list[float]:
    """Mean log-likelihood per token, in nats, of each ending after the stem. Raises `ModelError`."""
    prompts = [stem + e for e in endings]
    size = sum([len(p.encode("utf-8", "replace")) for p in prompts])
    body = model.plain_body(prompts, max_tokens=0, echo=True, logprobs=1, temperature=0.0)
    cleaned = [clean(e) for e in endings]
    bounds = Asked(size, len(prompts), len(prompts))
    try:
        found = await model.post(
            "/completions", body, lambda data: read_loglik(data, body["prompt"], cleaned, bounds), ledger, request
        )
    except ModelError as error:
        if error.boundary in ("bad_request", "not_found"):
            detail = f"{error.detail}; likelihoods need /completions with echo and logprobs, as vLLM and SGLang have it"
            raise ModelError("no_likelihoods", detail, error.usage) from None
        raise
    return list(found[0])
