"""Completions from a log, by key and prompt: what resume, replay and fork have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol

from meshheal.errors import ModelError, ReplayDivergence
from meshheal.events import ModelCalled, TaskArrived
from meshheal.model import Completion, Request, prompt_id
from meshheal.trace.recorder import MemoryLog

Mode = Literal["resume", "never", "fork"]
"""What happens to a call that the log does not hold. `resume`: it goes to the model. `never`: it ends the
run. `fork`: it ends the run if its branch is in the log, which is the frozen prefix, and goes to the model
under any other branch."""
_SHOWN = 60


class Record(Protocol):
    """Where recorded calls are found: a `LogFile`."""

    @property
    def complete(self) -> bool: ...

    def calls(self, until: int | None) -> Iterator[tuple[Any, ModelCalled]]: ...

    def call_at(self, position: Any) -> ModelCalled: ...

    def text(self, id: str) -> str: ...


class Replay:
    """The calls of a log, each to be taken once.

    A call is found by (branch, item, agent, purpose, subject, n, model) and the hash of its prompt; calls
    alike in all of that are given in the order recorded. The log may be cut. Holds some 100 bytes a call;
    texts are read when asked for.
    """

    def __init__(self, log: Record | MemoryLog, mode: Mode, *, until: int | None = None) -> None:
        """`until` (for a fork) leaves out what was recorded from the arrival after that index on."""
        self.mode = mode
        self._source: Record = _InMemory(log) if isinstance(log, MemoryLog) else log
        self._places: dict[int, Any] = {}
        self._branches: set[int] = set()
        self._most = 1
        self.found = 0
        """Calls answered from the log so far."""
        for place, call in self._source.calls(until):
            self._branches.add(call.branch)
            key = _key_of(call)
            same = 0
            while (place_key := hash((key, same))) in self._places:
                same += 1
            self._places[place_key] = place
            self._most = max(self._most, same + 1)

    def __len__(self) -> int:
        """Calls of the log that were not taken yet."""
        return len(self._places)

    def find(self, request: Request, model: str) -> Completion | None:
        """The recorded completion of a request; None where it is to be had from the model.

        Raises `ModelError` where the recorded call failed, with what was recorded, and `ReplayDivergence`
        where the mode forbids going on without the record.
        """
        key = _key(request, model)
        for same in range(self._most):
            place_key = hash((key, same))
            place = self._places.get(place_key)
            if place is None:
                continue
            call = self._source.call_at(place)
            if _key_of(call) == key:
                del self._places[place_key]
                self.found += 1
                return self._completion(call)
        if self.mode == "resume" or (self.mode == "fork" and request.key.branch not in self._branches):
            return None
        raise ReplayDivergence(self._difference(request, model))

    def _completion(self, call: ModelCalled) -> Completion:
        # A completion that came after the caller's deadline is given again, to come too late again.
        if call.failure and not (call.failure == "timeout" and call.latency):
            raise ModelError(call.failure, "" if call.notes is None else call.notes.detail, call.usage)
        text = self._source.text
        return Completion(
            texts=tuple([text(id) for id in call.replies]),
            usage=call.usage,
            latency=call.latency,
            finish=call.finish,  # type: ignore[arg-type]
            reasoning=tuple([text(id) for id in call.reasoning]),
            notes=call.notes,
        )

    def _difference(self, request: Request, model: str) -> str:
        """One line: which call, and how the record differs. Reads the log again, which only a failed replay
        does."""
        key = request.key
        name = f"{key.purpose} call {key.n} of agent {key.agent} on {key.item} (subject {key.subject}, {model})"
        end = "" if self._source.complete else "; the log is cut before its end"
        wanted = _key(request, model)
        of_item: list[str] = []
        for _, call in self._source.calls(None):
            recorded = _key_of(call)
            if recorded == wanted:
                return f"replay: {name} is asked for again; the record holds it fewer times"
            if recorded[:-1] == wanted[:-1]:
                difference = self._prompt_difference(request, call)
                return f"replay: {name} has another prompt than the record: {difference}"
            if call.task == key.item:
                of_item.append(f"{call.purpose} {call.n} by {call.node} on {call.subject} ({call.model})")
        if of_item:
            return f"replay: the record holds no {name}, but for this task {'; '.join(of_item[:4])}{end}"
        return f"replay: the record holds no {name}, and no call for this task at all{end}"

    def _prompt_difference(self, request: Request, call: ModelCalled) -> str:
        now, then = request.messages, call.prompt
        for i, (message, (role, id)) in enumerate(zip(now, then, strict=False)):
            if message.role != role:
                return f"message {i} is from {message.role!r}, recorded from {role!r}"
            text = self._source.text(id)
            if text != message.content:
                return f"message {i} ({role}) {_text_difference(message.content, text)}"
        return f"it has {len(now)} messages, recorded {len(then)}"


def _key(request: Request, model: str) -> tuple[object, ...]:
    k = request.key
    return (k.branch, k.item, k.agent, k.purpose, k.subject, k.n, model, prompt_id(request.messages))


def _key_of(call: ModelCalled) -> tuple[object, ...]:
    return (
        call.branch,
        call.task,
        call.node,
        call.purpose,
        call.subject,
        call.n,
        call.model,
        call.prompt_hash,
    )


def _text_difference(now: str, then: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(now, then, strict=False)) if a != b), min(len(now), len(then)))
    start = max(0, at - _SHOWN // 3)
    shown = slice(start, start + _SHOWN)
    return f"differs at character {at}: {now[shown]!r}, recorded {then[shown]!r}"


class _InMemory:
    """A `MemoryLog` as a record."""

    complete = True

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def calls(self, until: int | None) -> Iterator[tuple[int, ModelCalled]]:
        for i, event in enumerate(self._log.events):
            if isinstance(event, ModelCalled):
                yield i, event
            elif until is not None and isinstance(event, TaskArrived) and event.index > until:
                return

    def call_at(self, position: int) -> ModelCalled:
        event = self._log.events[position]
        assert isinstance(event, ModelCalled)
        return event

    def text(self, id: str) -> str:
        return self._log.texts[id]
