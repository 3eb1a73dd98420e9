"""Prober: one agent's part in probing its neighbours: in the background, in bursts on suspicion, and for the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from meshheal import answers, reply
from meshheal.errors import NetworkError
from meshheal.events import EventId, Probed, ProbeSkipped, ReferenceBanked, ReviewersUninformative, State
from meshheal.network import Produce, Reviewed, ReviewIt, TakeDuty
from meshheal.opinion import Opinion
from meshheal.recovery import Bank, Candidate, Reference, Schedule, on_duty
from meshheal.reviewers import Calibration
from meshheal.rng import Stream, number
from meshheal.types import Ability, AgentId, Answer, ReviewRecord, Score, Task

if TYPE_CHECKING:
    from meshheal.agent import Agent

Motive = Literal["background", "burst", "recovery"]


class Prober:
    """Knows which neighbours are due, asks them, and shares what came of it."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self._agent = agent
        self._settings = agent.settings.recovery
        self.bank = Bank(self._settings, agent.routing.mixed)
        self._candidates: list[Candidate] = []
        self._background_for = ("healthy", "probation") if self._settings.burst else ("healthy", "probation", "suspect")
        self._allowance = 0.0
        """Calls that may be spent on background probes; below 0 while bursts have spent more."""
        self.calibration = Calibration()
        self._draws = Stream(seed, "prober", agent.id)
        self._schedules: dict[AgentId, Schedule] = {}
        self._planned: dict[AgentId, int] = {}

    # --- references ----------------------------------------------------------------------------------------------

    def bank_if_agreed(
        self, task: Task, value: str, agreed: list[AgentId], answered: list[AgentId], cause: EventId
    ) -> None:
        """Keep a settled task as a reference, where those who agreed on its answer are different enough."""
        families = sorted({self._agent.model_of(a) for a in agreed})
        if not answers.comparable(task.form) or len(set(agreed)) < 2:
            return
        self.bank.add(Reference(task, value, tuple(families), tuple(answered), self._agent.network.beat()))
        journal = self._agent.journal
        journal.write(
            ReferenceBanked(
                node=journal.node,
                incarnation=journal.incarnation,
                seq=journal.next(),
                t=journal.now(),
                task=task.id,
                causes=(cause,),
                families=tuple(families),
            )
        )

    # --- when ----------------------------------------------------------------------------------------------------

    async def background(self) -> None:
        """After a task of one's own: with what is left of the budget, probe the neighbour at work that is most in doubt.

        Suspects have their bursts; only where these are switched off are they probed in the background too.
        """
        self._allowance = min(max(self._allowance, -_DEBT) + self._settings.budget, _SAVINGS)
        while self._allowance >= 1.0:
            before, beliefs = self._allowance, self._agent.beliefs
            at_work = [
                a
                for a in self._agent.neighbours
                if beliefs.state(a) in self._background_for and a not in self._agent.routing.down
            ]
            for agent in beliefs.most_in_doubt(at_work)[:3]:
                if await self.probe(agent, "background"):
                    break
            if self._allowance == before:
                return

    def changed(self, agent: AgentId, to: State) -> None:
        """A belief changed: suspects get bursts, excluded agents a schedule, healthy ones neither."""
        if to == "excluded":
            self._schedules[agent] = Schedule(self._settings, self._agent.network.beat())
            self._plan(agent)
        elif to == "suspect":
            if self._settings.burst:
                self._plan(agent)
        elif not self._agent.beliefs.opinions[agent].excluded_abilities:
            self._schedules.pop(agent, None)
            self._planned.pop(agent, None)

    def saw(self, record: ReviewRecord, causes: tuple[EventId, ...]) -> None:
        """A probe, by whomever, moves the common schedule of its agent and may tell something about reviews."""
        if record.checked is not None:
            self._calibrate(record, record.checked, causes)
        schedule = self._schedules.get(record.producer)
        if schedule is not None:
            schedule.probed(record.score >= 0.5, self._agent.network.beat())
            self._plan(record.producer)

    def _plan(self, agent: AgentId) -> None:
        """Wake at the next beat at which `agent` is due and this one is on duty."""
        network = self._agent.network
        beat = network.beat()
        schedule = self._schedules.get(agent)
        due = beat + 1
        if schedule is not None and self._agent.beliefs.state(agent) != "suspect":
            due = max(schedule.due, due)
        candidates = self._watchers(agent)
        # Who is on duty may not exclude the agent and then will not probe it: a lone observer does not wait for long.
        latest = due + len(candidates) // 2 if schedule is not None and due == schedule.due else None
        while on_duty(agent, due, candidates) != self._agent.id and due != latest:
            due += 1
        if self._planned.get(agent) != due:
            self._planned[agent] = due
            network.wake(due - beat, lambda: self._woke(agent, due))

    def _watchers(self, agent: AgentId) -> tuple[AgentId, ...]:
        return self._agent.neighbours[agent].neighbours

    async def _woke(self, agent: AgentId, beat: int) -> None:
        if self._planned.get(agent) != beat:
            return
        del self._planned[agent]
        opinion = self._agent.beliefs.opinions[agent]
        schedule = self._schedules.get(agent)
        if schedule is not None and beat >= schedule.due:
            await self._probe_or_hand_over(agent, "recovery", beat)
        if opinion.state == "suspect":
            await self._burst(agent, opinion, beat)
        if opinion.state == "suspect" or agent in self._schedules:
            self._plan(agent)

    async def _burst(self, agent: AgentId, opinion: Opinion, beat: int) -> None:
        """Probes one after another, up to the limit, while each makes the suspicion worse."""
        for _ in range(1 if opinion.withheld else self._settings.burst):
            before = opinion.evidence
            if not await self._probe_or_hand_over(agent, "burst", beat):
                break
            if opinion.state != "suspect" or opinion.evidence <= before:
                break

    # --- how -----------------------------------------------------------------------------------------------------

    async def _probe_or_hand_over(self, agent: AgentId, motive: Literal["burst", "recovery"], beat: int) -> bool:
        """Probe; with no reference left that the agent may be asked, have another neighbour do it, or make one."""
        if await self.probe(agent, motive):
            return True
        others = [c for c in self._watchers(agent) if c != self._agent.id and c not in self._agent.routing.down]
        for _ in range(min(_HAND_OVERS, len(others))):
            to = on_duty(agent, beat, others)
            others.remove(to)
            try:
                if await self._agent.ask(to, TakeDuty(agent, motive)):
                    return True
            except NetworkError:
                continue
        schedule = self._schedules.get(agent)
        worth = motive == "burst" or (schedule is not None and schedule.hopeful)
        if worth and await self._restock(agent, motive):
            return await self.probe(agent, motive)
        self._agent.journal.add(ProbeSkipped, agent=agent, motive=motive)
        return False

    async def _restock(self, agent: AgentId, motive: Motive) -> bool:
        """Have a recent task answered by others until two say the same: that is a reference.

        Where two families other than that of `agent` hold the ability, it takes one of each, and what the agent's like said
        of the task plays no part: a reference chosen because its like agreed would flatter it.
        """
        abilities = self._askable(agent, motive)
        fresh = [c for c in reversed(self._candidates) if c.task.ability in abilities and agent not in c.answered]
        for candidate in fresh[:_RESTOCK_TRIES]:
            if candidate not in self._candidates:
                continue  # used up while another one was being settled
            self._candidates.remove(candidate)
            if await self._settle_anew(candidate, agent):
                return True
        return False

    async def _settle_anew(self, candidate: Candidate, agent: AgentId) -> bool:
        """Ask up to two helpers for their answer to a candidate; True where it became a reference for `agent`."""
        a, task = self._agent, candidate.task
        family = a.neighbours[agent].family
        mixed = a.routing.mixed(task.ability, family)
        allowed = {b: v for b, v in candidate.values if not mixed or a.model_of(b) != family}
        agreed = [next(iter(allowed))] if allowed else []
        if agreed and any(f != family for f in candidate.disputed):
            return False
        helpers = a.routing.reviewers_for(number(task.id), task.ability, agent, a.network.beat(), _RESTOCK)
        for helper in helpers:
            barred = {a.model_of(b) for b in agreed} | {family} if mixed else set()
            if helper in agreed or a.model_of(helper) in barred:
                continue
            self._allowance -= 1.0
            try:
                done = await a.ask(helper, Produce(task, "probe", n=_RESTOCK))
            except NetworkError:
                continue
            candidate.answered += (helper,)
            answer = answers.to_answer(task, helper, reply.visible(done.text), done.finish)
            if answer.value is None:
                return False
            if not agreed:
                agreed, allowed = [helper], {helper: answer.value}
                continue
            value = allowed[agreed[0]]
            if not answers.same(task.form, value, answer.value):
                return False
            self.bank_if_agreed(task, value, [*agreed, helper], sorted(candidate.answered), done.call)
            return True
        return False

    def remember(
        self, task: Task, producer: AgentId, value: str | None, answered: list[AgentId], disputed: tuple[str, ...]
    ) -> None:
        """Keep a task one coordinated as a candidate for a reference."""
        if answers.comparable(task.form):
            values = () if value is None else ((producer, value),)
            self._candidates.append(Candidate(task, values, tuple(answered), disputed))
            if len(self._candidates) > self._settings.bank_size:
                del self._candidates[0]

    def _askable(self, agent: AgentId, motive: Motive) -> tuple[Ability, ...]:
        """Abilities the agent is to be probed in: those in question."""
        abilities, opinion = self._agent.neighbours[agent].abilities, self._agent.beliefs.opinions[agent]
        if motive == "recovery" and opinion.state != "excluded":
            return tuple(sorted(opinion.excluded_abilities))
        if opinion.excluded_abilities:
            return tuple(x for x in abilities if x not in opinion.excluded_abilities)
        return abilities

    async def probe(self, agent: AgentId, motive: Motive) -> bool:
        """Ask one reference task of `agent` and share the score; False where there is no reference to ask."""
        a = self._agent
        beat = a.network.beat()
        neighbour, abilities = a.neighbours[agent], self._askable(agent, motive)
        frozen = motive == "background" and self._draws.uniform() < _TRANCHE_SHARE
        reference = self.bank.pick(agent, neighbour.family, abilities, beat, self._draws, frozen)
        if reference is None:
            return False
        again = agent in reference.answered
        if not again:
            reference.answered += (agent,)
        self._allowance -= 1.0
        try:
            done = await a.ask(agent, Produce(reference.task, "probe", n=beat if again else 0))
        except NetworkError:
            done = None
        if done is None or done.failure:
            a.journal.add(
                Probed,
                reference.task.id,
                agent=agent,
                reference=reference.task.id,
                score=None,
                motive=motive,
                unanswered=True,
            )
            return True
        answer = answers.to_answer(reference.task, agent, reply.visible(done.text), done.finish)
        await self._judge(reference, answer, motive, done.call)
        return True

    async def _judge(self, reference: Reference, answer: Answer, motive: Motive, cause: EventId) -> None:
        a, task, agent = self._agent, reference.task, answer.producer
        compared = self._settings.compare
        reviewer: AgentId | None = None
        score: float | None
        checked: float | None = None
        if answer.value is None:
            score = 0.0
        elif compared:
            score = float(answers.same(task.form, reference.value, answer.value))
            if motive != "burst":  # which must not wait, nor spend on other questions
                checked = await self._checked(task, answer, score >= 0.5, cause)
        else:
            reviewer, score = await self._reviewed(task, answer, cause)
        journal = a.journal
        event = journal.write(
            Probed(
                node=a.id,
                incarnation=journal.incarnation,
                seq=journal.next(),
                t=journal.now(),
                task=task.id,
                causes=(cause,),
                agent=agent,
                reference=task.id,
                score=score,
                motive=motive,
                compared=compared,
            )
        )
        if score is None:
            return
        own = a.neighbours[agent].family in reference.families
        await a.share(
            ReviewRecord(
                id=a.record_id(),
                task=task.id,
                producer=agent,
                ability=task.ability,
                kind=task.kind,
                channel="probe",
                score=score,
                reviewers=() if reviewer is None else (reviewer,),
                coordinator=a.id,
                time=a.network.now(),
                family=("own" if own else "other") if compared else "reviewed",
                tranche=compared and reference.tranche,
                checked=checked,
            ),
            event,
        )

    async def _reviewed(self, task: Task, answer: Answer, cause: EventId) -> tuple[AgentId | None, float | None]:
        """(reviewer, its score) of a probed answer; (None, None) where nobody could score it."""
        a = self._agent
        beat = a.network.beat()
        for reviewer in a.routing.reviewers_for(number(task.id), task.ability, answer.producer, beat, beat)[:2]:
            self._allowance -= 1.0
            try:
                reviewed: Reviewed = await a.ask(reviewer, ReviewIt(task, answer, n=beat, cause=cause, probing=True))
            except NetworkError:
                continue
            scores = [r.value for r in reviewed.reviews if isinstance(r, Score)]
            if scores:
                return reviewer, sum(scores) / len(scores)
        return None, None

    async def _checked(self, task: Task, answer: Answer, agreed: bool, cause: EventId) -> float | None:
        """What a reviewer makes of a compared answer, where that is to be learnt; None else."""
        if not self.calibration.wants("agreed" if agreed else "disputed"):
            return None
        rate = self._settings.calibrate_reviewers
        if self._draws.uniform() >= (rate if self.calibration.known else _EAGER * rate):
            return None
        return (await self._reviewed(task, answer, cause))[1]

    def _calibrate(self, record: ReviewRecord, checked: float, causes: tuple[EventId, ...]) -> None:
        found = self.calibration.observe(record.score >= 0.5, checked)
        if found is not None:
            self._agent.journal.add(
                ReviewersUninformative,
                record.task,
                causes,
                agreed_mean=found.agreed_mean,
                disputed_mean=found.disputed_mean,
                n_agreed=found.n_agreed,
                n_disputed=found.n_disputed,
            )

    # --- checkpoint ----------------------------------------------------------------------------------------------

    def state(self) -> Any:
        return {
            "allowance": self._allowance,
            "candidates": [[c.task, list(c.values), list(c.answered), list(c.disputed)] for c in self._candidates],
            "bank": self.bank.state(),
            "calibration": self.calibration.state(),
            "draws": self._draws.state(),
            "schedules": [[a, s.state()] for a, s in self._schedules.items()],
        }

    def restore(self, state: Any) -> None:
        """Continue, and plan anew: plans are not state, they follow from it."""
        self._allowance = state["allowance"]
        self.bank.restore(state["bank"])
        self._candidates = [
            Candidate(t, tuple(map(tuple, v)), tuple(a), tuple(d)) for t, v, a, d in state["candidates"]
        ]
        self.calibration.restore(state["calibration"])
        self._draws.restore(state["draws"])
        self._schedules = {}
        for agent, inner in state["schedules"]:
            self._schedules[agent] = Schedule(self._settings, 0)
            self._schedules[agent].restore(inner)
        self._planned = {}
        for agent, opinion in self._agent.beliefs.opinions.items():
            if agent in self._schedules or (opinion.state == "suspect" and self._settings.burst):
                self._plan(agent)


_SAVINGS = 2.0
"""Calls an agent can save up for background probes."""
_DEBT = 40.0
"""Calls above its budget that an agent makes up for later; what bursts spend beyond is forgiven."""
_HAND_OVERS = 4
"""Neighbours that are asked in turn to probe where one has no reference left."""
_EAGER = 5.0
"""How much more often probes are reviewed as well until it is known whether reviews tell right from wrong."""
_RESTOCK = 2
"""Salt of the draw of helpers, and number of their calls."""
_RESTOCK_TRIES = 3
"""Candidates tried for one probe."""
_TRANCHE_SHARE = 0.2
"""Share of background probes that use a frozen reference."""
