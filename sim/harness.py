"""What is around the agents of a run, whatever they run on: the task stream, the schedule of faults, the grading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from math import log
from typing import Any

from meshheal.errors import ReplayDivergence, TraceError, UsageError
from meshheal.events import WORLD, AgentFailed, EventId, Log, Swapped, TaskArrived, TaskGraded, TaskSettled
from meshheal.journal import Journal
from meshheal.network import Settled
from meshheal.rng import Stream as Draws
from meshheal.types import AgentId, Task
from sim.faults import BackendSwap, Fault, TimedSwap
from sim.world import Closed, Poisson, World

Work = Coroutine[Any, Any, None]

HARNESS_ERRORS = (TraceError, ReplayDivergence, UsageError)
"""What the harness suffers: no log, no record, a model that cannot be asked this. It ends a run; all else is an event."""

CHECKPOINT_EVERY = 5
"""Arrivals between checkpoints, where agents are to crash."""


class Harness(ABC):
    """Takes a stream of tasks through a world. Only here are answers graded.

    A runtime says how time passes and work is started (`_sleep`, `_launch`, `_landed`, `_together`), how a task enters
    (`_admit`), and what its agents are told before an arrival (`_advance`).
    """

    def __init__(
        self,
        world: World,
        log: Log,
        now: Callable[[], float],
        progress: Callable[[int], None],
        enough: Callable[[int], bool],
    ) -> None:
        """`progress` is told the index of each task that ended; `enough` ends the stream before an arrival."""
        self.world = world
        self.beat = 0
        self.index = -1
        self.rebound: dict[AgentId, BackendSwap] = {}
        """Swaps in force, by agent."""
        self._now = now
        self._progress = progress
        self._enough = enough
        self._journal = Journal(WORLD, log, now)
        self._one_by_one = isinstance(world.stream, Closed) and world.stream.in_flight == 1
        self._due = _schedule([f for f in world.faults if not isinstance(f, TimedSwap)])

    # --- the runtime's part --------------------------------------------------------------------------------------

    @abstractmethod
    async def _begin(self) -> None:
        """Have every agent learn which abilities there are."""

    @abstractmethod
    async def _advance(self, index: int) -> None:
        """Before arrival `index`: its faults take effect, and what is due on the local clock is done."""

    @abstractmethod
    async def _admit(self, entry: AgentId, task: Task, cause: EventId) -> Settled | None:
        """Let a task enter at an agent; None where the agent was lost before it wrote the task's outcome."""

    @abstractmethod
    async def _drain(self) -> None:
        """Wait until no agent has work in the background that is not patient."""

    @abstractmethod
    def _timed(self, fault: TimedSwap) -> None:
        """Schedule a swap by the clock: for calls that begin after it, whatever is under way."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None: ...

    @abstractmethod
    def _launch(self, work: Work) -> None:
        """Start work that `_landed` waits for."""

    @abstractmethod
    async def _landed(self) -> None: ...

    @abstractmethod
    async def _together(self, works: Sequence[Work]) -> None:
        """Run all to their ends."""

    # --- the stream ----------------------------------------------------------------------------------------------

    async def stream(self) -> None:
        """Take every task to its end."""
        await self._begin()
        await self._drain()
        for fault in self.world.faults:
            if isinstance(fault, TimedSwap):
                self._timed(fault)
        if isinstance(self.world.stream, Closed):
            await self._closed(self.world.stream.in_flight)
        else:
            await self._poisson(self.world.stream)
        await self._drain()

    def _arrivals(self) -> Iterator[tuple[int, Task]]:
        for index, task in enumerate(self.world.tasks):
            if self._enough(index):
                return
            yield index, task

    async def _closed(self, in_flight: int) -> None:
        arrivals = self._arrivals()
        if self._one_by_one:
            for index, task in arrivals:
                await self._advance(index)
                await self._task(index, task)
                await self._drain()
            return

        async def lane() -> None:
            for index, task in arrivals:
                await self._advance(index)
                await self._task(index, task)

        await self._together([lane() for _ in range(in_flight)])

    async def _poisson(self, stream: Poisson) -> None:
        draws = Draws(self.world.seed, "arrivals")
        for index, task in self._arrivals():
            await self._sleep(-log(1.0 - draws.uniform()) / stream.rate)
            await self._advance(index)
            self._launch(self._task(index, task))
        await self._landed()

    async def _task(self, index: int, task: Task) -> None:
        entry = self.world.entry(index)
        journal = self._journal
        cause = journal.write(
            TaskArrived(
                node=WORLD,
                seq=journal.next(),
                t=self._now(),
                task=task.id,
                index=index,
                entry=entry,
                ability=task.ability,
                task_kind=task.kind,
                prompt=journal.text(task.messages[-1].content),
            )
        )
        settled = await self._admit(entry, task, cause)
        if settled is None:
            # The entry agent is gone: its outcome is written in its place.
            journal.add(TaskSettled, task.id, (cause,), outcome="failed")
            settled = Settled("failed")
        correct = None if settled.value is None else self.world.sheet.correct(task, settled.value)
        journal.write(TaskGraded(node=WORLD, seq=journal.next(), t=self._now(), task=task.id, correct=correct))
        self._progress(index)

    # --- faults --------------------------------------------------------------------------------------------------

    def _swapped(self, fault: BackendSwap, begins: bool, index: int) -> None:
        """Note that a swap begins or ends before arrival `index`."""
        agent = fault.agent
        if begins:
            self.rebound[agent] = fault
        else:
            self.rebound.pop(agent, None)
        degraded = begins and fault.degraded
        if self.world.truth is not None:
            self.world.truth.swapped(agent, degraded)
        self._journal.add(
            Swapped,
            agent=agent,
            to=fault.to if begins else self.world.healthy[agent],
            index=index,
            degraded=degraded,
            roles=fault.roles,
        )


def _schedule(faults: Sequence[Fault]) -> dict[int, list[Fault]]:
    """Faults by the arrivals at which they end or begin; what ends comes first, as another may begin there."""
    due: dict[int, list[Fault]] = {}
    for fault in faults:
        due.setdefault(fault.back, []).append(fault)
    for fault in faults:
        due.setdefault(fault.at, []).append(fault)
    return due


def note_failure(note: Callable[..., object], agent: AgentId, message: Any, error: Exception) -> None:
    """Write that an exception escaped an agent's own code: the run is not valid. `message` is what it was asked, or None."""
    task = message if isinstance(message, Task) else getattr(message, "task", None)
    note(AgentFailed, "" if task is None else task.id, error=f"agent {agent}: {type(error).__name__}: {error}")
