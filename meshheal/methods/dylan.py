"""DyLAN: agents in rounds over one another's answers, early stopping on agreement, a ranker that keeps the best.

Source: Liu et al., "A Dynamic LLM-Powered Agent Network", arXiv 2310.02170, and its released code: a round stops the task
when more than two thirds agree; from the third round on a ranker keeps the best two.
Parameters: `methods.dylan.agents` (4), `rounds` (3), `keep` (2), `agree` (.667).
Deviations: the ranker scores every answer instead of naming the best two. The importance of agents over many tasks, with
which the source chooses a team once before work begins, is not computed: all candidates here hold the ability.
"""

from __future__ import annotations

from meshheal import answers as reading
from meshheal.agent import Agent, Work
from meshheal.methods import prompts
from meshheal.methods.debate import another_round
from meshheal.methods.parts import elect, independent, nobody, settled, team, written
from meshheal.network import Settled
from meshheal.types import Answer


async def settle(agent: Agent, work: Work) -> Settled:
    s = agent.settings.methods.dylan
    answers = await independent(agent, work, team(agent, work, s.agents))
    if not answers:
        return nobody(work)
    first = answers[0]
    for n in range(1, s.rounds):
        if agreed(work, answers, s.agree):
            break
        if n >= _RANKED_FROM:
            answers = await best(agent, work, answers, s.keep, n)
        answers = await another_round(agent, work, answers, n)
    return settled(work, "direct", first, elect(work, answers))


def agreed(work: Work, answers: list[Answer], share: float) -> bool:
    """Whether more than `share` of the agents give one answer."""
    used = elect(work, answers)
    if used is None or used.value is None:
        return False
    alike = [a for a in answers if a.value is not None and reading.same(work.task.form, used.value, a.value)]
    return len(alike) > share * len(answers)


async def best(agent: Agent, work: Work, answers: list[Answer], keep: int, n: int) -> list[Answer]:
    """The answers that a ranker rates highest, in their order; the first ones where its reply cannot be read."""
    if len(answers) <= keep:
        return answers
    ranker = team(agent, work, 1, salt=_RANKER)
    done = await written(agent, work, ranker[0], "judge", prompts.rank(work.task, [a.text for a in answers]), n=n)
    found = None if done is None else prompts.read_scores(done.texts[0], len(answers))
    if found is None:
        return answers[:keep]
    top = sorted(range(len(answers)), key=lambda i: -found.scores[i])[:keep]
    return [answers[i] for i in sorted(top)]


_RANKED_FROM = 2
"""Index of the first round before which the ranker is asked: the third."""
_RANKER = 7
"""Salt of the draw of the ranker."""
