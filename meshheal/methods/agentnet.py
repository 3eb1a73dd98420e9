"""AgentNet: a router weighs its edges to the others, edges learn from success, and weak ones are dropped for good.

Source: Yang et al., "AgentNet: Decentralized Evolutionary Coordination", arXiv 2504.00587, and code zoe-yyx/AgentNet. Abilities
start at .6 and fade by .9 per ten tasks unused; an edge's weight is multiplied by 1.1 after a success and .9 after a failure,
and by 10 over the seconds of a slow call even when it was right, within .1 and 2; at .3 or less it is dropped; solved tasks
are remembered (40) and the most similar (3) shown with a new one.
Parameters: `methods.agentnet.gain`, `loss`, `slow_after`, `drop_at`, `memory`, `retrieve`.
Deviations: success is a review's score of at least `review.accept_at`, as no truth is at hand. Paths have two agents, router and
executor, each with a routing call; tasks are not split. The coordinator keeps the memory. An edge stays while without it
fewer than two producers of one of its abilities would be left. Similarity is that of word sets.
"""

from __future__ import annotations

from typing import Any

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import (
    believe,
    nobody,
    note_answer,
    note_asked,
    read,
    review,
    settled,
    spared,
    team,
    written,
)
from meshheal.network import Settled
from meshheal.types import Ability, AgentId, Answer

_START = 0.6
_LOW, _HIGH = 0.1, 2.0
_UNUSED = 10
_FADE = 0.9
_EMA = 0.1


class Edges:
    """One agent's edges: weight, success and abilities of each other agent, and what it solved before."""

    def __init__(self) -> None:
        self.weight: dict[AgentId, float] = {}
        self.success: dict[AgentId, float] = {}
        self.ability: dict[tuple[AgentId, Ability], float] = {}
        self.used: dict[tuple[AgentId, Ability], int] = {}
        self.tasks = 0
        self.solved: dict[AgentId, list[tuple[str, str]]] = {}

    def attraction(self, agent: AgentId, ability: Ability) -> float:
        """How good an executor an agent looks for an ability."""
        fit = self.ability.get((agent, ability), _START)
        return self.weight.get(agent, 1.0) * fit * (0.5 + 0.5 * self.success.get(agent, _START))

    def learn(self, agent: AgentId, ability: Ability, factor: float, *, ok: bool) -> float:
        """Take one outcome; the new weight."""
        self.tasks += 1
        held = self.ability.get((agent, ability), _START)
        self.ability[agent, ability] = held + _EMA * (ok - held)
        self.used[agent, ability] = self.tasks
        for key, last in self.used.items():
            if self.tasks - last and (self.tasks - last) % _UNUSED == 0:
                self.ability[key] *= _FADE
        before = self.success.get(agent, _START)
        self.success[agent] = before + _EMA * (ok - before)
        self.weight[agent] = min(max(self.weight.get(agent, 1.0) * factor, _LOW), _HIGH)
        return self.weight[agent]

    def remember(self, agent: AgentId, question: str, answer: str, most: int) -> None:
        kept = self.solved.setdefault(agent, [])
        kept.append((question, answer))
        del kept[: max(0, len(kept) - most)]

    def alike(self, agent: AgentId, question: str, n: int) -> list[tuple[str, str]]:
        """The remembered tasks with the most words in common, best first."""
        words = set(question.split())

        def overlap(pair: tuple[str, str]) -> float:
            others = set(pair[0].split())
            return len(words & others) / max(1, len(words | others))

        return sorted(self.solved.get(agent, []), key=overlap, reverse=True)[:n]

    def state(self) -> Any:
        return {
            "weight": list(self.weight.items()),
            "success": list(self.success.items()),
            "ability": [[a, x, v] for (a, x), v in self.ability.items()],
            "used": [[a, x, v] for (a, x), v in self.used.items()],
            "tasks": self.tasks,
            "solved": [[a, [list(p) for p in kept]] for a, kept in self.solved.items()],
        }

    def restore(self, state: Any) -> None:
        self.weight, self.success = dict(map(tuple, state["weight"])), dict(map(tuple, state["success"]))
        self.ability = {(a, x): v for a, x, v in state["ability"]}
        self.used = {(a, x): v for a, x, v in state["used"]}
        self.tasks = state["tasks"]
        self.solved = {a: [(q, t) for q, t in kept] for a, kept in state["solved"]}


async def settle(agent: Agent, work: Work) -> Settled:
    s, task, edges = agent.settings.methods.agentnet, work.task, agent.memory(Edges)
    ranked = team(agent, work, len(agent.neighbours) + 1)
    ranked.sort(key=lambda a: -edges.attraction(a, task.ability))
    asked = prompts.route(task, [f"agent {a}" for a in ranked])
    await written(agent, work, agent.id, "plan", asked)
    question = task.messages[-1].content
    for executor in ranked[: agent.settings.routing.attempts]:
        if executor != agent.id:
            await written(agent, work, executor, "plan", asked, n=1)
        began, work.cause = agent.network.now(), note_asked(agent, work, executor)
        shown = prompts.remembered(task, edges.alike(executor, question, s.retrieve))
        got = read(work, executor, await written(agent, work, executor, "produce", shown))
        if not got:
            continue
        seconds = agent.network.now() - began
        note_answer(agent, work, got[0])
        _, score = await review(agent, work, got[0])
        if score is not None:
            learn(agent, work, edges, got[0], seconds, ok=score >= agent.settings.review.accept_at)
        return settled(work, "direct", got[0], got[0])
    return nobody(work)


def learn(agent: Agent, work: Work, edges: Edges, answer: Answer, seconds: float, *, ok: bool) -> None:
    """Move the edge to the executor; drop it where it became weak, for good."""
    s, executor = agent.settings.methods.agentnet, answer.producer
    factor = (s.gain if ok else s.loss) * min(1.0, s.slow_after / max(seconds, 1e-9))
    weight = edges.learn(executor, work.task.ability, factor, ok=ok)
    if ok and s.memory:
        edges.remember(executor, work.task.messages[-1].content, answer.text, s.memory)
    if executor != agent.id and weight <= s.drop_at and not spared(agent, executor):
        believe(agent, executor, "excluded", s.drop_at / weight, "edge dropped", work.task.id)
