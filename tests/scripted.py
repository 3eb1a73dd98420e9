"""A model that says what a test tells it to, and small worlds of agents that run on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from meshheal.config import Settings
from meshheal.errors import ModelError
from meshheal.events import ModelCalled, TaskSettled
from meshheal.methods import find
from meshheal.model import Completion, Purpose, Request
from meshheal.trace.recorder import MemoryLog
from meshheal.types import AnswerForm, Message, ReviewRecord, Task, Usage
from sim.local import LocalRun
from sim.runtimes import Placement, make
from sim.truth import Truth
from sim.workloads import AnswerSheet
from sim.world import World
from topologies import assign, complete, from_edges

ABILITIES = ("algebra", "counting", "geometry")
FAMILIES = ("one", "two", "three", "two", "three", "one")
"""Model families of the six agents: three among the four holders of each ability."""
LETTERS = AnswerForm("choice", ("A", "B", "C", "D"))
RIGHT, WRONG = "The answer is (A).", "The answer is (B)."
QUIET = {
    "recovery": {"budget": 0.0, "burst": 0, "calibrate_reviewers": 0.0},
}
"""Settings under which nothing is called but what a task itself needs."""

Line = str | Exception | Callable[[Request], Any]


def verdict(score: float, reason: str = "because") -> str:
    return json.dumps({"score": score, "reason": reason})


class Script:
    """Who says what. By default everybody answers rightly, and reviews tell right from wrong.

    `wrong` are agents whose own answers are wrong; `scores[reviewer]` fixes what a reviewer gives; `lines` overrides
    replies by (purpose, agent), (purpose, agent, item) or (purpose, agent, item, subject): a text, an exception, or a
    function of the request.
    """

    def __init__(self) -> None:
        self.wrong: set[int] = set()
        self.scores: dict[int, float] = {}
        self.lines: dict[tuple[Any, ...], Line] = {}
        self.latency = 1.0
        self.asked: list[Request] = []

    def say(self, line: Line, purpose: Purpose, agent: int, item: str = "", subject: int | None = None) -> None:
        key: tuple[Any, ...] = (purpose, agent)
        if item:
            key = (*key, item)
        if subject is not None:
            key = (*key, subject)
        self.lines[key] = line

    def reply(self, request: Request) -> str:
        key = request.key
        full = (key.purpose, key.agent, key.item, key.subject)
        for n in (4, 3, 2):
            if full[:n] in self.lines:
                line = self.lines[full[:n]]
                if isinstance(line, Exception):
                    raise line
                return line if isinstance(line, str) else str(line(request))
        if key.purpose in ("review", "deliberate"):
            return verdict(self.scores.get(key.agent, 0.95 if RIGHT in _reviewed(request) else 0.05))
        return WRONG if key.agent in self.wrong else RIGHT


def _reviewed(request: Request) -> str:
    return next(m.content for m in reversed(request.messages) if m.role == "assistant")


class Scripted:
    """One model of a script. Its family is its name up to the dash."""

    nature: Literal["simulated"] = "simulated"

    def __init__(self, name: str, script: Script) -> None:
        self.name = name
        self.family = name.partition("-")[0]
        self._script = script

    async def complete(self, request: Request) -> Completion:
        self._script.asked.append(request)
        texts = tuple([self._script.reply(request) for _ in range(request.sampling.n)])
        return Completion(texts, Usage(100, 10 * len(texts)), self._script.latency)


class Foul(Scripted):
    """A model whose every answer is wrong and whose every review is the opposite of the truth."""

    async def complete(self, request: Request) -> Completion:
        self._script.asked.append(request)
        if request.key.purpose in ("review", "deliberate"):
            text = verdict(0.05 if RIGHT in _reviewed(request) else 0.95)
        else:
            text = WRONG
        return Completion((text,) * request.sampling.n, Usage(100, 10), self._script.latency)


def tasks(n: int, abilities: Sequence[str] = ABILITIES) -> list[Task]:
    return [
        Task(f"t{i}", (Message("user", f"Question {i}: A, B, C or D?"),), LETTERS, abilities[i % len(abilities)])
        for i in range(n)
    ]


def make_world(
    n: int = 1,
    *,
    script: Script | None = None,
    families: Sequence[str] = FAMILIES,
    settings: dict[str, dict[str, Any]] | None = None,
    method: str = "meshheal",
    edges: Any = None,
    size: int = 6,
    abilities: Sequence[Sequence[str]] | None = None,
    ask: Sequence[str] = ABILITIES,
    **fields: Any,
) -> World:
    """A world of scripted models: six agents who all know one another, each ability held by four; `n` tasks.

    Agent a runs on the a-th of `families`, taken in turn. A model named foul-... is bad, whatever the script says.
    """
    said = script or Script()
    graph = assign(complete(size), ABILITIES) if edges is None else assign(from_edges(size, edges), ABILITIES)
    stream = tasks(n, ask)
    models: dict[str, Scripted] = {}

    def model(name: str) -> Scripted:
        if name not in models:
            models[name] = (Foul if name.startswith("foul") else Scripted)(name, said)
        return models[name]

    merged = {section: dict(values) for section, values in QUIET.items()}
    for section, values in (settings or {}).items():
        merged.setdefault(section, {}).update(values)
    found = find(method)
    return World(
        neighbours=graph.neighbours,
        abilities=abilities or [graph.held(a) for a in range(size)],
        tasks=stream,
        sheet=AnswerSheet({t.id: "A" for t in stream}),
        healthy=[f"{families[a % len(families)]}-x" for a in range(size)],
        outside="weak-y",
        model=model,
        settings=found.settings(Settings.model_validate(merged)),
        method=found.settle,
        beliefs=found.judges(),
        truth=Truth(AnswerSheet({t.id: "A" for t in stream})) if found.oracle else None,
        **{"seed": 1, **fields},
    )


RUNTIME = ["local"]
"""What `Played` plays on, last: the fixture `runtime` sets it for tests of conformance."""


def started(world: World, log: MemoryLog) -> Any:
    """A run of a world on the runtime of the test, not yet run."""
    return make(RUNTIME[-1], world, log, lambda _: None, Placement(hosts=2))  # type: ignore[arg-type]


class Played:
    """A world that ran to its end on the runtime of the test, and its log."""

    def __init__(self, world: World) -> None:
        self.log = MemoryLog()
        self.run = started(world, self.log)
        self.run.run()

    def serve(self, agent: int, sender: int, message: Any) -> Any:
        """Have an agent serve one more request, after the run."""
        work = self.run.agents[agent].serve(sender, message)
        return self.run.loop.run(work) if isinstance(self.run, LocalRun) else asyncio.run(work)

    def of(self, kind: type, task: str | None = None) -> list[Any]:
        """Events of a kind (and task), in order."""
        return [e for e in self.log.events if isinstance(e, kind) and (task is None or e.task == task)]

    def calls(self, purpose: str | None = None, task: str | None = None) -> list[ModelCalled]:
        return [c for c in self.of(ModelCalled, task) if purpose is None or c.purpose == purpose]

    def outcome(self, task: str = "t0") -> TaskSettled:
        (settled,) = self.of(TaskSettled, task)
        return settled  # type: ignore[no-any-return]


def by_agent(events: Iterable[Any]) -> dict[int, list[tuple[str, str]]]:
    """What happened at each agent, in its order: all of its events, without their numbers and times.

    Equal for two runs of a world with one task in flight, whatever they ran on.
    """
    passing = {"seq", "t", "causes", "inputs", "latency", "wall"}
    told: dict[int, list[tuple[str, str]]] = {}
    for event in events:
        fields = {f: getattr(event, f) for f in event.__struct_fields__ if f not in passing}
        if isinstance(fields.get("record"), ReviewRecord):
            fields["record"] = replace(fields["record"], time=0.0)
        told.setdefault(event.node, []).append((type(event).__name__, repr(fields)))
    return told


def failing(reason: str = "down") -> ModelError:
    return ModelError(reason)


__all__ = [
    "ABILITIES",
    "FAMILIES",
    "LETTERS",
    "QUIET",
    "RIGHT",
    "RUNTIME",
    "WRONG",
    "Foul",
    "Played",
    "Script",
    "Scripted",
    "by_agent",
    "failing",
    "make_world",
    "started",
    "tasks",
    "verdict",
]  # fmt: skip
