"""Canaries: MeshHeal's probes and slow timescale without any review; answers are used as they are.

Source: canary tasks as operators of services run them; here with MeshHeal's prober (background, bursts, the way back) under the
same budget. Two forms: `canary-threshold` excludes on a fixed threshold of the probes' mean, `canary-ecusum` on MeshHeal's test.
Parameters: `methods.canary.reference_every` (4), and those of `recovery` and `detector`.
Deviations: where no review says that an answer is right, a reference is made by asking a second agent, of another family
where there is one, for every so many tasks; both must agree. Real canaries have known answers, which nobody has here.
"""

from __future__ import annotations

from meshheal import answers, reply
from meshheal.agent import Agent, Work
from meshheal.errors import NetworkError
from meshheal.methods.parts import nobody, produced, settled
from meshheal.network import Produce, Produced, Settled
from meshheal.rng import mix
from meshheal.types import Answer


async def settle(agent: Agent, work: Work) -> Settled:
    answer = await produced(agent, work)
    if answer is None:
        return nobody(work)
    if mix(work.item, _DRAW) % agent.settings.methods.canary.reference_every == 0:
        await second_answer(agent, work, answer)
    else:
        agent.prober.remember(work.task, answer.producer, answer.value, [answer.producer], ())
    agent.network.spawn(agent.prober.background())
    return settled(work, "direct", answer, answer)


async def second_answer(agent: Agent, work: Work, answer: Answer) -> None:
    """Have another agent answer too; where both say the same, the task becomes a reference."""
    task, routing = work.task, agent.routing
    bench = routing.reviewers_for(work.item, task.ability, answer.producer, agent.network.beat(), 1)
    if not bench or answer.value is None or not answers.comparable(task.form):
        return
    try:
        done: Produced = await agent.ask(bench[0], Produce(task, "probe", n=_CALL, cause=work.cause))
    except NetworkError:
        return
    other = answers.to_answer(task, bench[0], reply.visible(done.text), done.finish)
    if other.value is not None and answers.same(task.form, answer.value, other.value):
        both = sorted([answer.producer, bench[0]])
        agent.prober.bank_if_agreed(task, answer.value, both, both, done.call)


_DRAW = 13
"""Salt of the draw of the tasks that are answered twice."""
_CALL = 3
"""Number of the second answer among an agent's probe calls about a task."""
