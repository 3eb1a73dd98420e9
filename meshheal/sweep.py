"""Many runs over all cores, in processes of their own, with one stream of progress. Results do not depend on how many."""

from __future__ import annotations

import multiprocessing
import queue
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from msgspec import Struct

from meshheal.errors import InternalError, MeshHealError

Job = TypeVar("Job")
Result = TypeVar("Result")
Report = Callable[[Any], None]


class Interrupted(Exception):
    """The sweep was told to stop while this job ran."""


class Message(Struct):
    """What a worker tells: progress of a job, its result, or its failure."""

    job: int
    kind: str
    value: Any


class Sweep(Generic[Job, Result]):
    """Runs `work(job, report)` for each job. `work` must be importable by name; a job and its result must pickle."""

    def __init__(
        self,
        work: Callable[[Job, Report], Result],
        jobs: Sequence[Job],
        parallel: int,
        at_once: Callable[[Message], object] = lambda _: None,
    ) -> None:
        """`at_once` sees the progress of jobs that run in this process while they run; `messages` has it after them."""
        self._work = work
        self._at_once = at_once
        self._jobs = jobs
        self._parallel = min(max(0, parallel), len(jobs))

    def messages(self, patience: float = 0.5) -> Generator[Message | None, None, None]:
        """Progress and results as they come (all in this process where `parallel` is 0); None now and then while nothing does.

        Closing the iterator stops all jobs.
        Raises the error of a job that failed, and `InternalError` where a worker died.
        """
        if self._parallel == 0:
            yield from self._here()
            return
        context = multiprocessing.get_context("spawn")
        todo: Any = context.Queue()
        told: Any = context.Queue()
        stop = context.Event()
        for n, job in enumerate(self._jobs):
            todo.put((n, job))
        workers = [
            context.Process(target=_worker, args=(self._work, todo, told, stop), daemon=True)
            for _ in range(self._parallel)
        ]
        for _ in workers:
            todo.put(None)
        with _deaf_to_interrupts():
            for w in workers:
                w.start()
        open_jobs = len(self._jobs)
        try:
            while open_jobs:
                try:
                    message = told.get(timeout=patience)
                except queue.Empty:
                    _check(workers, open_jobs)
                    yield None
                    continue
                if message.kind == "failed":
                    raise message.value
                open_jobs -= message.kind == "done"
                yield message
        finally:
            stop.set()
            for w in workers:
                w.join(timeout=10)
                if w.is_alive():
                    w.kill()
            told.cancel_join_thread()
            todo.cancel_join_thread()

    def _here(self) -> Iterator[Message]:
        for n, job in enumerate(self._jobs):
            told: list[Message] = []

            def report(value: Any, n: int = n, told: list[Message] = told) -> None:
                told[:] = [Message(n, "progress", value)]
                self._at_once(told[0])

            result = self._work(job, report)
            yield from told
            yield Message(n, "done", result)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside never see Ctrl-C, not even while they import: a terminal sends it to all of them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check(workers: Sequence[Any], open_jobs: int) -> None:
    dead = [w for w in workers if not w.is_alive() and w.exitcode not in (0, None)]
    if dead or (open_jobs and not any(w.is_alive() for w in workers)):
        code = dead[0].exitcode if dead else 0
        raise InternalError(f"a worker process died (exit {code}); what it wrote is kept, go on with --resume")


def _worker(work: Callable[[Any, Report], Any], todo: Any, told: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    while not stop.is_set():
        item = todo.get()
        if item is None:
            return
        n, job = item

        def report(value: Any, n: int = n) -> None:
            if stop.is_set():
                raise Interrupted
            told.put(Message(n, "progress", value))

        try:
            told.put(Message(n, "done", work(job, report)))
        except Interrupted:
            return
        except MeshHealError as error:
            told.put(Message(n, "failed", error))
            return
        except Exception:
            told.put(Message(n, "failed", InternalError(traceback.format_exc(limit=-4).strip())))
            return
