"""Symphony as its released code does it, which differs from its paper in what decides.

Source: the code of "Symphony" (arXiv 2508.20019), mirror halloji1/Symphony_Gradient at 6c428c7. A beacon's matching score is
the largest `difflib` ratio between one of the agent's tags and the requirement, rounded to three places, ties in favour of
who asks. The user's beacon requires "Plan" and takes the best `planners`; each writes what the question is, then a list of
subtasks; executors hand over to one another, and every subtask requires "math", whatever the task. Subtasks are answered
tersely, within 512 tokens. The answers' raw strings are counted: the most frequent one wins, unweighted.
Parameters: `methods.symphony_code.planners` (2, the command line's default; its README says 3), `steps` (4), `max_output` (512).
Deviations: an agent's tags are its abilities; among planners that match alike the draw decides (in the code the order of
replies). A chain that fails has no vote (in the code its text is "[TIMEOUT]"). The cap cuts the simulated tokens, not the
simulated text: in its favour.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from functools import lru_cache

from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.parts import nobody, revised, settled, written
from meshheal.network import Settled
from meshheal.rng import mix
from meshheal.types import Ability, AgentId, Answer


async def settle(agent: Agent, work: Work) -> Settled:
    wanted = agent.settings.methods.symphony_code.planners
    everyone = (agent.id, *agent.neighbours)
    planners = sorted(everyone, key=lambda a: (-likeness(tags(agent, a), "Plan"), mix(mix(work.item, agent.seed), a)))[
        :wanted
    ]
    chains = await agent.network.gather([chain(agent, work, p, i) for i, p in enumerate(planners)])
    answers = [a for a in chains if a is not None]
    if not answers:
        return nobody(work)
    return settled(work, "direct", answers[0], most_frequent(answers))


def most_frequent(answers: list[Answer]) -> Answer | None:
    """The first of those whose string is the most frequent; equal values that are written differently are two."""
    strings = Counter([a.value for a in answers if a.value is not None])
    if not strings:
        return None
    (most, _), *_ = strings.most_common(1)
    return next(a for a in answers if a.value == most)


async def chain(agent: Agent, work: Work, planner: AgentId, i: int) -> Answer | None:
    """One planner's answer: two calls for the plan, then a subtask after the other, each handed over by the one before."""
    s, task = agent.settings.methods.symphony_code, work.task
    await written(agent, work, planner, "plan", prompts.extract(task), n=2 * i)
    plan = await written(agent, work, planner, "plan", prompts.plan(task, s.steps), n=2 * i + 1)
    todo = prompts.read_plan("" if plan is None else plan.texts[0], s.steps)
    before: list[str] = []
    answer, holder = None, planner
    for k, step in enumerate(todo):
        holder = handed_to(agent, holder)
        words = prompts.step(task, step, before, k + 1, s.steps, terse=True)
        answer = await revised(agent, work, holder, words, 1 + i * s.steps + k, s.max_output)
        if answer is None:
            return None
        before.append(answer.text)
    return answer


def handed_to(agent: Agent, holder: AgentId) -> AgentId:
    """Who is asked next: the best match with "math" among those the coordinator knows, ties in favour of the holder."""
    everyone = (agent.id, *agent.neighbours)
    return max(everyone, key=lambda a: (likeness(tags(agent, a), "math"), a == holder, -a))


def tags(agent: Agent, of: AgentId) -> tuple[Ability, ...]:
    return agent.me.abilities if of == agent.id else agent.neighbours[of].abilities


@lru_cache(maxsize=4096)
def likeness(held: tuple[Ability, ...], requirement: str) -> float:
    """The largest similarity of a tag with the requirement, rounded to three places."""
    return round(max((SequenceMatcher(None, tag, requirement).ratio() for tag in held), default=0.0), 3)
