"""Simulated models: a profile's ability and judgement, expressed in real reply text.

Latent variables (whether a model can solve an item, how lenient a judge is towards an answer) are drawn once
per seed and name, so that every method, agent and purpose meets the same ones; what varies from call to call
comes from a stream keyed (seed, branch, item, model, agent, purpose, subject, n). Gold answers come from the
world's answer sheet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import exp, sqrt
from statistics import NormalDist, fmean, pstdev
from struct import Struct as Layout
from typing import Literal, NamedTuple

from meshheal.answers import read
from meshheal.errors import InternalError, UsageError
from meshheal.model import CallKey, Completion, Request
from meshheal.rng import digest, mix, number
from meshheal.types import AgentId, Message, Task, TaskId, Usage
from sim.models import conversation, replies
from sim.models.figures import Profile
from sim.workloads.sheet import AnswerSheet, base_id

_NORMAL = NormalDist()
_WORDS = Layout("<8I").unpack
_LONGS = Layout("<4Q").unpack
_TWO32 = 2.0**32
_TWO64 = 2.0**64
_MASK = 2**64 - 1
_NOISE = [_NORMAL.inv_cdf((i + 0.5) / 4096) for i in range(4096)]
"""Standard normal quantiles: 12 random bits give a normal draw where no tail is needed."""
_OPINION = re.compile(r"^\d+\. score ([0-9.eE+-]+):", re.MULTILINE)
_CACHED = 16_384
"""Entries a cache may hold before it is emptied; all of it can be drawn again."""


class _Item(NamedTuple):
    """What is drawn once per (seed, item, model)."""

    solves: bool
    chance: int
    """P(solves) given the item's level, in units of 2**-32."""
    gold: str
    frame: replies.Frame
    common: int
    own: int
    """Random bits of the item, and of the model with the item: what its judgement of answers comes from."""


class _Look(NamedTuple):
    """One answer as this model sees it: it is accepted where leniency plus noise exceeds the cut."""

    leniency: float
    bits: int
    cut: float
    unsure: int


@lru_cache(maxsize=_CACHED)
def _bits(*name: str | int) -> tuple[int, ...]:
    """Four draws of 64 bits for a name, remembered: the models of a run share them."""
    return _LONGS(digest(*name))


def _normal(bits: int) -> float:
    return _NORMAL.inv_cdf((bits | 1) / _TWO64 if bits < _MASK - 4096 else 1 - 1e-16)


def _standardised(levels: Mapping[TaskId, float] | None, tasks: Mapping[TaskId, Task]) -> dict[TaskId, float]:
    """Levels by item, with mean 0 and deviation 1 over the tasks; empty where they do not differ."""
    held = [(item, float(levels[item])) for item in map(base_id, tasks) if item in levels] if levels else []
    spread = pstdev([level for _, level in held]) if len(held) > 1 else 0.0
    if not spread:
        return {}
    centre = fmean([level for _, level in held])
    return {item: (level - centre) / spread for item, level in held}


class Synthetic:
    """A model that is drawn, not run: `nature` is `simulated`.

    `benchmark` names the profile's accuracy to use (a declared proxy for generated tasks). `levels` are the
    data set's own difficulty levels by item, any scale, higher is harder. Over `tasks` the mean accuracy is
    the profile's. Raises `UsageError` for a benchmark without an accuracy.
    """

    nature: Literal["simulated"] = "simulated"

    def __init__(
        self,
        profile: Profile,
        sheet: AnswerSheet,
        tasks: Mapping[TaskId, Task],
        benchmark: str,
        seed: int,
        levels: Mapping[TaskId, float] | None = None,
    ) -> None:
        if benchmark not in profile.accuracy:
            known = ", ".join(profile.accuracy)
            raise UsageError(f"synthetic/{profile.name} has no accuracy on {benchmark!r}; it has {known}")
        self.name = f"synthetic/{profile.name}"
        self.family = profile.family
        self.profile = profile
        self.accuracy = profile.accuracy[benchmark].value
        self._sheet = sheet
        self._tasks = tasks
        self._seed = seed
        self._stream_name = f"call {seed} {profile.name}"
        self._model_bits = number("model", profile.name)
        self._family_bits = number("family", profile.family)
        self._levels = _standardised(levels, tasks)
        self._items: dict[TaskId, _Item] = {}
        self._looks: dict[tuple[TaskId, str], _Look] = {}
        self._set_ability()
        self._set_judgement()
        spread = profile.token_sigma.value
        self._answer_tokens = [int(profile.answer_tokens.value * exp(spread * z)) for z in _NOISE[::4]]
        self._review_tokens = [int(profile.review_tokens.value * exp(spread * z)) for z in _NOISE[::4]]
        self._seconds = 1.0 / profile.tokens_per_second.value
        self._first = profile.first_token.value

    def _set_ability(self) -> None:
        p = self.profile
        self._shared = p.loading.value
        self._kin = min(p.family_loading.value, sqrt(1.0 - self._shared**2))
        self._own = sqrt(max(0.0, 1.0 - self._shared**2 - self._kin**2))
        self._level = p.level_loading.value
        self._threshold = self._calibrated()
        self._fresh = int(p.fresh.value * _TWO32)
        self._modal = int(p.modal.value * _TWO32)
        among_wrong = min(1.0, p.unreadable_answer.value / max(1.0 - self.accuracy, 1e-9))
        self._spoilt_answer = int(among_wrong * _TWO32)

    def _set_judgement(self) -> None:
        p = self.profile
        item, model, agent = p.judge_item.value, p.judge_model.value, p.judge_agent.value
        self._by_item, self._by_model, self._by_agent = sqrt(item), sqrt(model), sqrt(agent)
        self._by_call = sqrt(max(0.0, 1.0 - item - model - agent))
        rates = {
            (True, True): p.accept_right_solved,
            (True, False): p.accept_right_unsolved,
            (False, True): p.accept_wrong_solved,
            (False, False): p.accept_wrong_unsolved,
        }
        self._cuts = {k: -_NORMAL.inv_cdf(min(max(f.value, 1e-9), 1 - 1e-9)) for k, f in rates.items()}
        self._unsure = int(p.unsure.value * _TWO32)
        self._spoilt_review = int(p.unreadable_review.value * _TWO32)
        self._follow = (int(p.follow_unsolved.value * _TWO32), int(p.follow_solved.value * _TWO32))

    # --- what is drawn once ----------------------------------------------------------------------------

    def _chance(self, threshold: float, level: float) -> float:
        """P(ability exceeds the item) at a standardised level."""
        pull = self._shared * self._level
        return _NORMAL.cdf((threshold - pull * level) / sqrt(1.0 - pull * pull))

    def _calibrated(self) -> float:
        """The threshold at which the mean chance over the tasks is the profile's accuracy."""
        wanted = min(max(self.accuracy, 1e-9), 1 - 1e-9)
        if not self._levels:
            return _NORMAL.inv_cdf(wanted)
        counts: dict[float, int] = {}
        for task in self._tasks:
            level = self._levels.get(base_id(task), 0.0)
            counts[level] = counts.get(level, 0) + 1
        low, high = -12.0, 12.0
        for _ in range(60):
            middle = (low + high) / 2
            mean = sum(n * self._chance(middle, level) for level, n in counts.items()) / len(self._tasks)
            low, high = (middle, high) if mean < wanted else (low, middle)
        return (low + high) / 2

    def _item(self, task: Task) -> _Item:
        """What concerns this model and the item of a task; an item that is dealt again is the same item."""
        return self._items.get(base_id(task.id)) or self._draw(task, base_id(task.id))

    def _draw(self, task: Task, name: TaskId) -> _Item:
        """Draw what concerns this model and one item, and remember it."""
        drawn, own, kin, common = _bits("item", self._seed, name)
        own = mix(own, self._model_bits)
        difficulty = _normal(drawn)
        chance = self.accuracy
        if self._levels:
            level = self._levels.get(name, 0.0)
            difficulty = self._level * level + sqrt(1.0 - self._level**2) * difficulty
            chance = self._chance(self._threshold, level)
        burden = self._shared * difficulty + self._own * _normal(own)
        if self._kin:
            burden += self._kin * _normal(mix(kin, self._family_bits))
        item = _Item(
            burden < self._threshold,
            int(chance * _TWO32),
            self._sheet.gold(name),
            replies.frame(task.form),
            common,
            own,
        )
        if len(self._items) >= _CACHED:
            self._items.clear()
        self._items[name] = item
        return item

    def solves(self, task: Task) -> bool:
        """Whether this model can solve the item: one draw per (seed, item, model), shared by all purposes."""
        return self._item(task).solves

    def _see(self, task: Task, text: str) -> _Look:
        """Read an answer and form an opinion of it, and remember it."""
        value = read(task.form, text)
        item = self._item(task)
        right = value is not None and self._sheet.correct(task, value)
        solves = item.solves or value is None  # that a result is missing anyone can see
        answer = _bits("answer", value or "")[0]
        bits = mix(item.own, answer)
        leniency = self._by_item * _NOISE[mix(item.common, answer) >> 52]
        leniency += self._by_model * _NOISE[bits >> 52]
        unsure = self._unsure if solves else 2 * self._unsure
        look = _Look(leniency, bits, self._cuts[right, solves], unsure)
        if len(self._looks) >= _CACHED:
            self._looks.clear()
        self._looks[base_id(task.id), text] = look
        return look

    # --- calls -----------------------------------------------------------------------------------------

    async def complete(self, request: Request) -> Completion:
        """Answer `request`; never waits: `latency` says how long it took."""
        task = self._tasks.get(request.key.item)
        if task is None:
            raise InternalError(f"{self.name} was asked about {request.key.item!r}, none of its tasks")
        return self.sample(request, task)

    def sample(self, request: Request, task: Task) -> Completion:
        """The completion of `request`, which is about `task`."""
        purpose = request.key.purpose
        if purpose == "review" or purpose == "deliberate":
            return self._review(request, task)
        if purpose in conversation.PURPOSES:
            return conversation.sample(self, request, task)
        return self._answer(request, task)

    def _stream(self, key: CallKey, sample: int) -> tuple[int, ...]:
        """Eight draws of 32 bits for a sample of a call. The item comes last: it may hold any character."""
        call = f"{key.branch} {key.agent} {key.purpose} {key.subject} {key.n} {sample} {key.item}"
        return _WORDS(digest(self._stream_name, call))

    def _answer(self, request: Request, task: Task, parts: int = 1) -> Completion:
        """An answer; as one of so many parts of the work, at that part of its length."""
        item = self._item(task)
        texts: list[str] = []
        lengths: list[int] = []
        finish: Literal["stop", "length"] = "stop"
        cap = request.sampling.max_tokens
        for sample in range(request.sampling.n):
            u = self._stream(request.key, sample)
            length = self._answer_tokens[u[6] >> 22] // parts
            lengths.append(length)
            if length > cap:  # cut before it came to its answer
                texts.append(replies.CUT)
                finish = "length"
                continue
            if u[1] < item.chance if u[0] < self._fresh else item.solves:
                value = item.gold
            elif u[2] < self._spoilt_answer:
                spoilt = replies.SPOILT_ANSWERS[u[3] % len(replies.SPOILT_ANSWERS)]
                texts.append(spoilt.text)
                finish = spoilt.finish
                continue
            elif u[3] < self._modal:
                value = self._sheet.plausible_wrong(task, 0.0, True)
            else:
                value = self._sheet.plausible_wrong(task, u[4] / _TWO32, False)
            before, after = item.frame[u[5] % replies.VARIANTS]
            texts.append(before + value + after)
        return self._completion(request, texts, lengths, finish)

    def _review(self, request: Request, task: Task) -> Completion:
        key = request.key
        text = _under_review(request.messages)
        look = self._looks.get((base_id(task.id), text)) or self._see(task, text)
        cut = look.cut - look.leniency - self._by_agent * _NOISE[mix(look.bits, _agent_bits(key.agent)) >> 52]
        others = _opinions(request.messages) if key.purpose == "deliberate" else None
        texts: list[str] = []
        lengths: list[int] = []
        finish: Literal["stop", "length"] = "stop"
        cap = request.sampling.max_tokens
        for sample in range(request.sampling.n):
            u = self._stream(key, sample)
            length = self._review_tokens[u[6] >> 22]
            lengths.append(length)
            if length > cap:
                texts.append(replies.CUT)
                finish = "length"
                continue
            if u[3] < self._spoilt_review:
                spoilt = replies.SPOILT_REVIEWS[u[2] % len(replies.SPOILT_REVIEWS)]
                texts.append(spoilt.text)
                finish = spoilt.finish
                continue
            if self._by_call * _NOISE[u[0] >> 20] > cut:
                level = 10 + u[2] % 5 if u[1] < look.unsure else 16 + u[2] % 5
            else:
                level = 7 + u[2] % 5 if u[1] < look.unsure else u[2] % 7
            if others is not None and u[5] < self._follow[self.solves(task)]:
                level = round(0.3 * level + 0.7 * others * replies.LEVELS)
            texts.append(replies.REVIEWS[level][u[4] % replies.VARIANTS])
        return self._completion(request, texts, lengths, finish)

    def _completion(
        self, request: Request, texts: list[str], lengths: list[int], finish: Literal["stop", "length"]
    ) -> Completion:
        """Tokens are estimates: a quarter of the prompt's characters, and lengths drawn from the profile."""
        characters = 0
        for message in request.messages:
            characters += len(message.content)
        cap = request.sampling.max_tokens
        longest = spent = lengths[0] if lengths[0] < cap else cap
        for length in lengths[1:]:
            length = min(length, cap)
            spent += length
            longest = max(longest, length)
        prompt = (characters >> 2) + 4 * len(request.messages)
        return Completion(tuple(texts), Usage(prompt, spent), self._first + longest * self._seconds, finish)


@lru_cache(maxsize=_CACHED)
def _agent_bits(agent: AgentId) -> int:
    return number("agent", agent)


def _under_review(messages: tuple[Message, ...]) -> str:
    """The answer a reviewer is shown: the last turn of the assistant."""
    for message in reversed(messages):
        if message.role == "assistant":
            return message.content
    raise InternalError("a review was asked for without an answer in the prompt")


def _opinions(messages: tuple[Message, ...]) -> float | None:
    """The mean of the other reviewers' scores that the last message lists; None where it lists none."""
    scores = [float(found) for found in _OPINION.findall(messages[-1].content)]
    return min(max(fmean(scores), 0.0), 1.0) if scores else None
