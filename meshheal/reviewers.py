"""Reviewers are watched too: those that keep losing committee votes, and a whole set of reviewers that tells nothing."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from meshheal.detector import EDetector
from meshheal.reference import Tally
from meshheal.types import AgentId, ReviewRecord

_WINDOW = 60.0
_BETS = (0.5, 1.0, 2.0)
_PRIOR_VOTES, _PRIOR_WINS = 10.0, 8.0
"""A new reviewer is taken to win four votes in five, with the weight of ten votes."""


class Sidelined(Struct, frozen=True):
    """A reviewer is no longer asked (`active` False), or asked again."""

    agent: AgentId
    active: bool
    evidence: float


class ReviewerWatch:
    """One observer's view of how its neighbours vote. A loss: voting to accept what the others reject, or the reverse.

    Each reviewer's wins are tested against the win rate of its peers by the same sequential test that judges producers.
    """

    def __init__(self, neighbours: int, cut: float, drop: float = 0.2, at: float = 100.0, rest: int = 200) -> None:
        self._cut = cut
        self._at = at * max(1, neighbours)
        self._drop = drop
        self._rest = rest
        self._wins: dict[AgentId, Tally] = {}
        self._all = Tally()
        """Sums over all reviewers."""
        self._tests: dict[AgentId, EDetector] = {}
        self.resting: dict[AgentId, int] = {}
        """Who is not asked for a while, and the beat until which."""

    def trusted(self, agent: AgentId) -> bool:
        return agent not in self.resting

    def observe(self, record: ReviewRecord, beat: int) -> list[Sidelined]:
        """Count the votes of a committee. A sidelined reviewer is tried again after `rest` beats."""
        committee = record.committee is not None and len(record.votes) >= 2
        if not committee and not self.resting:
            return []
        found = [Sidelined(a, True, 1.0) for a, until in self.resting.items() if beat >= until]
        for back in found:
            del self.resting[back.agent]
            self._tests.pop(back.agent, None)
        if not committee:
            return found
        total = sum([v for _, v in record.votes])
        others = len(record.votes) - 1
        for agent, vote in record.votes:
            won = (vote >= self._cut) == (total - vote >= self._cut * others)
            evidence = self._count(agent, float(won))
            if evidence >= self._at and agent not in self.resting:
                self.resting[agent] = beat + self._rest
                found.append(Sidelined(agent, False, evidence))
        return found

    def _count(self, agent: AgentId, won: float) -> float:
        """Count a vote that was won (1) or lost (0); return the evidence against the reviewer."""
        wins, test, everyone = self._wins.get(agent), self._tests.get(agent), self._all
        if wins is None:
            wins = self._wins[agent] = Tally()
        n, total = everyone.n - wins.n, everyone.total - wins.total
        if test is None and not won:
            test = self._tests[agent] = EDetector(_BETS, self._drop)
        evidence = 1.0 if test is None else test.update(won, (total + _PRIOR_WINS) / (n + _PRIOR_VOTES))
        wins.add(won, _WINDOW)
        everyone.n, everyone.total = n + wins.n, total + wins.total
        return evidence

    def state(self) -> Any:
        return {
            "wins": [[a, t.n, t.total] for a, t in self._wins.items()],
            "tests": [[a, t.state()] for a, t in self._tests.items()],
            "until": [[a, u] for a, u in self.resting.items()],
        }

    def restore(self, state: Any) -> None:
        self._wins = {a: Tally(n, total) for a, n, total in state["wins"]}
        self._all = Tally(sum([t.n for t in self._wins.values()]), sum([t.total for t in self._wins.values()]))
        self.resting = dict(state["until"])
        self._tests = {}
        for agent, inner in state["tests"]:
            self._tests[agent] = EDetector(_BETS, self._drop)
            self._tests[agent].restore(inner)


class Uninformative(Struct, frozen=True):
    """Mean review scores of answers that agreed with their reference, and of answers that did not."""

    agreed_mean: float
    disputed_mean: float
    n_agreed: int
    n_disputed: int


class Calibration:
    """Whether reviews tell right from wrong, learnt from probes, by whomever, that were compared with a reference and
    reviewed as well.
    """

    def __init__(self, least: int = 12, gap: float = 0.3) -> None:
        self._least = least
        self._gap = gap
        self._agreed = Tally()
        self._disputed = Tally()
        self.raised = False

    @property
    def known(self) -> bool:
        """Whether there are enough of both to tell."""
        return min(self._agreed.n, self._disputed.n) >= self._least

    def wants(self, outcome: Literal["agreed", "disputed"]) -> bool:
        """Reviews are spent evenly: an outcome that has plenty more than the other needs none."""
        a, d = self._agreed.n, self._disputed.n
        return a <= d + 2 if outcome == "agreed" else d <= a + 2

    def observe(self, agreed: bool, score: float) -> Uninformative | None:
        """Take one pair; the finding once, until the reviews separate again."""
        (self._agreed if agreed else self._disputed).add(score, _WINDOW)
        a, d = self._agreed, self._disputed
        if not self.known:
            return None
        agreed_mean, disputed_mean = a.total / a.n, d.total / d.n
        if agreed_mean - disputed_mean >= self._gap:
            self.raised = False
            return None
        if self.raised:
            return None
        self.raised = True
        return Uninformative(agreed_mean, disputed_mean, int(a.n), int(d.n))

    def state(self) -> Any:
        return [self._agreed.n, self._agreed.total, self._disputed.n, self._disputed.total, self.raised]

    def restore(self, state: Any) -> None:
        self._agreed, self._disputed = Tally(state[0], state[1]), Tally(state[2], state[3])
        self.raised = state[4]
