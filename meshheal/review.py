"""The fast timescale: what a first look, a committee and a takeover decide. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

from meshheal.config import Reviewing
from meshheal.events import State
from meshheal.types import AgentId


class Look(Struct, frozen=True):
    """What a first look leads to, and why."""

    decision: Literal["accept", "committee", "unscored"]
    why: Literal["", "low", "spread", "suspect", "unscored"] = ""


class Ladder:
    """Decisions of the review ladder under given settings."""

    __slots__ = ("_s", "_speaks")

    def __init__(self, settings: Reviewing) -> None:
        self._s = settings
        self._speaks = settings.by == "sampling"
        """Likelihoods come out the same when asked for again, and hold no reasons to deliberate on."""

    def samples_first(self) -> int:
        """Scores asked for at once in a first look."""
        return self._s.repeats if self._s.repeat == "always" and self._speaks else 1

    def samples_more(self, scores: Sequence[float]) -> int:
        """Further scores, in one more request, where the first is low or near the cut."""
        s = self._s
        if not self._speaks or s.repeat == "always" or not scores or scores[0] >= s.accept_at + s.near_cut:
            return 0
        return s.repeats - 1

    def look(self, scores: Sequence[float], producer: State) -> Look:
        """Accept if the mean is high enough, the spread small enough, and the producer not suspect."""
        s = self._s
        if not scores:
            return Look("unscored", "unscored")
        if sum(scores) / len(scores) < s.accept_at:
            return Look("committee", "low")
        if max(scores) - min(scores) > s.spread_at:
            return Look("committee", "spread")
        if producer != "healthy" and s.mandatory_for_suspects:
            return Look("committee", "suspect")
        return Look("accept")

    def split(self, votes: Sequence[float]) -> bool:
        """Whether the members disagree enough to see one another's reasons."""
        return self._speaks and len(votes) > 1 and max(votes) - min(votes) >= self._s.disagree_at

    def verdict(self, votes: Mapping[AgentId, float], model_of: Callable[[AgentId], str]) -> float | None:
        """One number from the votes, one vote per model: members on the same model are one opinion (their mean).

        `median`, or under `minority_veto` the lower quartile, so that a quarter of the votes can reject.
        """
        by_model: dict[str, list[float]] = {}
        for agent, score in votes.items():
            by_model.setdefault(model_of(agent), []).append(score)
        opinions = sorted(sum(v) / len(v) for v in by_model.values())
        if not opinions:
            return None
        if self._s.verdict == "minority_veto":
            return opinions[(len(opinions) - 1) // 4]
        return median(opinions)

    def rejects(self, verdict: float) -> bool:
        return verdict < self._s.reject_at


def plurality(
    answers: Sequence[tuple[AgentId, str | None]],
    same: Callable[[str, str], bool],
    suspicion: Callable[[AgentId], float],
) -> AgentId | None:
    """Whose answer the most agree with; ties go to the least suspect, then to the earlier. None: nobody answered."""
    groups: list[list[tuple[AgentId, str]]] = []
    for agent, value in answers:
        if value is None:
            continue
        for group in groups:
            if same(group[0][1], value):
                group.append((agent, value))
                break
        else:
            groups.append([(agent, value)])
    if not groups:
        return None
    best = max(groups, key=lambda g: (len(g), -min(suspicion(a) for a, _ in g)))
    return min(best, key=lambda m: suspicion(m[0]))[0]
