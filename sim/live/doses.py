"""What can quietly go wrong behind a served name, as doses of one experiment: from nothing at all to four-bit weights.

Each dose is a second server under the same name. Where the weights are the healthy ones, the fault is in what is sent to
it: a gateway in front of a server can break prompts as well as a bad copy can break weights.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from meshheal.errors import UsageError
from meshheal.models import Served
from sim.live.vllm import SERVED, Copy

STALE_PROMPT = "You answer for a shop of garden furniture. Q: Is the bench weatherproof? A: Yes. Q: "
"""A system prompt that belongs to another product."""
BROKEN_TEMPLATE = "<|im_start|>system\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>"
"""A chat template whose turns are doubled and closed before they say anything."""
CONTEXT_LEFT = 6
"""Tokens that a cut context keeps, the last ones: most of the question is lost."""


class Dose(Struct, frozen=True):
    """A fault. `degraded` says whether it is one: a placebo must not be found. `what` describes it in a few words."""

    what: str
    weights: str = "healthy"
    preamble: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    degraded: bool = True

    def copy(self, name: str) -> Copy:
        """The server's side of it."""
        return Copy(name, self.weights)

    def served(self, url: str) -> Served:
        """The client's side of it: same served name and family, answers by likelihood."""
        return Served(
            endpoints=(url,),
            served_as=SERVED,
            family=SERVED,
            key_env="none",
            answers="likelihood",
            preamble=self.preamble,
            body=self.body,
            timeout=120.0,
            deadline=240.0,
        )


HEALTHY = Dose("the model as it is", degraded=False)
DOSES: dict[str, Dose] = {
    "placebo": Dose("a second identical server", degraded=False),
    "q8": Dose("weights at 8 bits", "q8", degraded=False),
    "q5": Dose("weights at 5 bits", "q5"),
    "q4": Dose("weights at 4 bits", "q4"),
    "prefix": Dose("another product's system prompt before every prompt", preamble=STALE_PROMPT),
    # Measured beforehand: what comes of it is as good as without, so that finding it would be a false alarm.
    "template": Dose("a broken chat template before every prompt", preamble=BROKEN_TEMPLATE, degraded=False),
    "cut": Dose(f"context cut to its last {CONTEXT_LEFT} tokens", body={"truncate_prompt_tokens": CONTEXT_LEFT}),
}
"""Arms of the live experiment, by name."""


def dose(name: str) -> Dose:
    """A dose by name. Raises `UsageError`."""
    if name == "healthy":
        return HEALTHY
    if name not in DOSES:
        raise UsageError(f"dose {name!r}: there is none; choose one of {', '.join(DOSES)}")
    return DOSES[name]
