"""Recorded models: what real models once answered, with reviews by solving and comparing.

A review that was recorded of the very same answer is given again. Any other compares the answer under review with
the reviewer's own recorded one; the score depends on whether the two agree, with noise that depends on agreement
only. Nothing here knows a gold answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from struct import Struct as Layout
from typing import Literal

from meshheal.answers import read, same
from meshheal.errors import InternalError, UsageError
from meshheal.model import CallKey, Completion, Purpose, Request, prompt_id, text_id
from meshheal.rng import digest, uniform
from meshheal.types import Message, Task, TaskId, Usage
from sim.models import recordings, replies
from sim.models.recordings import Recording, Sample
from sim.workloads.sheet import base_id

SLIP = 0.03
"""Chance that a judge's score goes against its own comparison (estimated)."""
UNSURE = 0.05
"""Chance of a score in the middle of the scale (estimated)."""
SECONDS_PER_TOKEN = 0.01
FIRST_TOKEN = 0.3
"""Latency of a recorded call, which recordings do not hold (estimated: 100 tokens a second)."""
RECORDED: tuple[Purpose, ...] = ("produce", "review", "deliberate", "takeover", "probe")
"""Purposes that a recording of plain answers serves."""
_CHARACTERS = 4
"""Characters a token, where a recording does not count tokens (estimated)."""
_TWO32 = 2.0**32
_WORDS = Layout("<8I").unpack


class Recorded:
    """A model that says what was recorded of it: `nature` is `recorded`, or `simulated` where that is what was recorded;
    tokens are estimated where the recording has none, latencies always.

    Of several samples of an item, the call's key draws one. `agreeable` is the chance, drawn once per model
    and item, that this judge accepts an answer that disagrees with its own (0 by default).
    """

    def __init__(
        self,
        model: str,
        recording: Recording,
        tasks: Mapping[TaskId, Task],
        seed: int,
        *,
        source: str = "the recording",
        agreeable: float | None = None,
    ) -> None:
        if agreeable is not None and not 0 <= agreeable <= 1:
            raise UsageError(f"model recorded/{model}: agreeable is {agreeable}; give a probability, 0 to 1")
        _require(model, recording, tasks, source)
        self.name = f"recorded/{model}"
        self.nature: Literal["simulated", "recorded"] = "simulated" if _simulated(recording) else "recorded"
        # Each its own family: errors of Gemini's two correlate little more (.52) than strangers' (.46, .48).
        self.family = recordings.known_as(model)
        self._model = model
        self._recording = recording
        self._tasks = tasks
        self._seed = seed
        self._agreeable = agreeable or 0.0
        self._compared: dict[tuple[str, str, str], bool | None] = {}

    async def complete(self, request: Request) -> Completion:
        """Answer `request`; never waits. Raises `UsageError` for a prompt or purpose that was not recorded."""
        task = self._tasks.get(request.key.item)
        if task is None:
            raise InternalError(f"{self.name} was asked about {request.key.item!r}, none of its tasks")
        return self.sample(request, task)

    def sample(self, request: Request, task: Task) -> Completion:
        """The completion of `request`, which is about `task`."""
        purpose = request.key.purpose
        if request.score:
            return self._likelihood(request, task)
        if purpose == "review" or purpose == "deliberate":
            return self._review(request, task)
        return self._answer(request, task)

    def _stream(self, key: CallKey, sample: int) -> tuple[int, ...]:
        call = f"{key.branch} {key.agent} {key.purpose} {key.subject} {key.n} {sample} {key.item}"
        return _WORDS(digest("recorded", self._seed, self._model, call))

    def _samples(self, task: Task, purpose: Purpose) -> tuple[Sample, ...]:
        """What was recorded for a purpose: a probe or a takeover without a recording of its own is an answer."""
        held = self._recording[base_id(task.id)]
        found = held.get(purpose) or (recordings.answer_to(held) if purpose in RECORDED else None)
        if not found:
            raise UsageError(
                f"model {self.name}: no {purpose!r} call was recorded for item {base_id(task.id)!r}, only "
                f"{', '.join(held)}; choose a method that needs no others, or a recording that has them"
            )
        return found

    def _answer(self, request: Request, task: Task) -> Completion:
        key, wanted = request.key, request.sampling.n
        asked = request.messages
        if key.purpose != "takeover" and asked is not task.messages and asked != task.messages:
            raise UsageError(
                f"model {self.name}: this prompt was not recorded (item {base_id(task.id)!r}, purpose "
                f"{key.purpose!r}), only the task's own; this method cannot run on recorded models"
            )
        samples = self._samples(task, key.purpose)
        if wanted > len(samples):
            raise UsageError(
                f"model {self.name}: {wanted} samples of item {base_id(task.id)!r} asked for, {len(samples)} "
                "recorded; this method cannot run on this recording"
            )
        return self._drawn(request, samples)

    def _recorded_of(self, task: Task, of: str) -> tuple[Sample, ...]:
        """Recorded reviews of one answer (by its text's id), or replies to one question about likelihoods."""
        held = self._recording[base_id(task.id)].get("review", ())
        return tuple([s for s in held if s.of == of])

    def _likelihood(self, request: Request, task: Task) -> Completion:
        """Likelihoods as they were recorded; those of another question cannot be made up."""
        found = self._recorded_of(task, prompt_id(request.messages))
        if not found:
            raise UsageError(
                f"model {self.name}: its token likelihoods of item {base_id(task.id)!r} were not recorded; run with "
                "review.by=sampling, or record a run of it with review.by=likelihood"
            )
        return self._drawn(request, found)

    def _drawn(self, request: Request, samples: tuple[Sample, ...]) -> Completion:
        """As many samples as asked for, from one on that the call's key draws; round again where there are fewer."""
        first = self._stream(request.key, 0)[0]
        chosen = [samples[(first + i) % len(samples)] for i in range(request.sampling.n)]
        lengths = [_completion_tokens(s) for s in chosen]
        counted = chosen[0].prompt
        prompt = counted if counted is not None else _prompt_tokens(request.messages)
        return Completion(
            tuple([s.text for s in chosen]),
            Usage(prompt, sum(lengths)),
            FIRST_TOKEN + SECONDS_PER_TOKEN * max(lengths),
            chosen[-1].finish,
        )

    def _review(self, request: Request, task: Task) -> Completion:
        """Solve and compare. A reviewer whose own answer cannot be read has no opinion: its reply has no
        score.
        """
        key = request.key
        text = _under_review(request.messages)
        if key.purpose == "review" and (same := self._recorded_of(task, text_id(text))):
            return self._drawn(request, same)
        own = self._samples(task, "produce")
        texts: list[str] = []
        lengths: list[int] = []
        for sample in range(request.sampling.n):
            u = self._stream(key, sample)
            mine = own[u[0] % len(own)]
            agrees = self._agrees(task, mine.text, text)
            texts.append(_verdict(agrees, u))
            lengths.append(_completion_tokens(mine) + len(texts[-1]) // _CHARACTERS)
        prompt = _prompt_tokens(request.messages)
        latency = FIRST_TOKEN + SECONDS_PER_TOKEN * max(lengths)
        return Completion(tuple(texts), Usage(prompt, sum(lengths)), latency)

    def _agrees(self, task: Task, mine: str, theirs: str) -> bool | None:
        """Whether two texts assert the same value, or the judge lets the difference pass; None without an own
        value.
        """
        at = (base_id(task.id), mine, theirs)
        if at in self._compared:
            return self._compared[at]
        own, other = read(task.form, mine), read(task.form, theirs)
        agrees = None if own is None else other is not None and same(task.form, own, other)
        if agrees is False and self._agreeable:
            agrees = uniform("agreeable", self._seed, self._model, base_id(task.id)) < self._agreeable
        if len(self._compared) >= 100_000:
            self._compared.clear()
        self._compared[at] = agrees
        return agrees


def _verdict(agrees: bool | None, u: tuple[int, ...]) -> str:
    """The review's text, from agreement and chance alone."""
    if agrees is None:
        return replies.SPOILT_REVIEWS[0].text
    if u[1] < SLIP * _TWO32:
        agrees = not agrees
    if u[2] < UNSURE * _TWO32:
        level = (10 if agrees else 7) + u[3] % 5
    else:
        level = 16 + u[3] % 5 if agrees else u[3] % 7
    return replies.REVIEWS[level][u[4] % replies.VARIANTS]


def _simulated(recording: Recording) -> bool:
    return any(s.nature == "simulated" for by in recording.values() for samples in by.values() for s in samples)


def _completion_tokens(sample: Sample) -> int:
    return sample.completion if sample.completion is not None else 1 + len(sample.text) // _CHARACTERS


def _prompt_tokens(messages: tuple[Message, ...]) -> int:
    return sum([4 + len(m.content) // _CHARACTERS for m in messages])


def _under_review(messages: tuple[Message, ...]) -> str:
    for message in reversed(messages):
        if message.role == "assistant":
            return message.content
    raise InternalError("a review was asked for without an answer in the prompt")


def _require(model: str, recording: Recording, tasks: Mapping[TaskId, Task], source: str) -> None:
    """Every asked item must have been recorded."""
    missing = sorted({base_id(t) for t in tasks} - recording.keys())
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UsageError(
            f"model recorded/{model}: {len(missing)} of the asked items are not in {source}: {shown}. Use a "
            "workload made from the same recordings, or leave these items out"
        )


def available(data: Path | None) -> tuple[str, ...]:
    """Names of the models recorded at `data`, a file or a folder."""
    return tuple(recordings.find(data))


def find_recorded(model: str, data: Path | None) -> tuple[str, tuple[Path, ...]] | None:
    """A model's name as its files spell it (case and punctuation do not matter), and the files; None if
    unknown.
    """
    wanted = recordings.known_as(model)
    for name, paths in recordings.find(data).items():
        if recordings.known_as(name) == wanted:
            return name, paths
    return None


def open_recorded(
    model: str,
    paths: tuple[Path, ...],
    tasks: Mapping[TaskId, Task],
    seed: int,
    *,
    agreeable: float | None = None,
) -> Recorded:
    """The recorded model `model`, from its files, holding only what it said about `tasks`.

    Raises `UsageError` for damaged files, and for asked items that are not in them.
    """
    recording = recordings.read(model, paths, tasks)
    source = ", ".join(p.name for p in paths)
    return Recorded(model, recording, tasks, seed, source=source, agreeable=agreeable)
