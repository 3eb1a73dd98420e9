"""The jobs of a study as tasks on a Ray cluster: each a whole run under virtual time, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from meshheal.errors import InternalError, MeshHealError
from meshheal.sweep import Message
from sim import ray_session as session


def messages(
    work: Callable[[Any, Callable[[Any], None]], Any], jobs: Sequence[Any], patience: float = 0.5
) -> Generator[Message | None, None, None]:
    """Results as they come, as `meshheal.sweep.Sweep.messages` has them, without progress in between.

    Jobs write their logs where this process would: on several machines, into a folder that they share. Closing the
    generator stops all jobs. Raises `UsageError` without Ray or its cluster, the error of a job that failed, and
    `InternalError` where a process died.
    """
    session.connect()
    import ray
    from ray.exceptions import RayError, RayTaskError

    run = ray.remote(num_cpus=1, max_retries=0)(_quiet)
    waiting = {run.remote(work, job): n for n, job in enumerate(jobs)}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=patience)
            if not ready:
                yield None
            for one in ready:
                n = waiting.pop(one)
                try:
                    yield Message(n, "done", ray.get(one))
                except RayTaskError as error:
                    if isinstance(error.cause, MeshHealError):
                        raise error.cause from None
                    raise InternalError(str(error).strip()) from error
                except RayError as error:
                    raise InternalError(
                        f"a process of the cluster died: {' '.join(str(error).split())[:200]}; what it wrote is kept, go on with --resume"
                    ) from error
    finally:
        for one in waiting:
            with suppress(Exception):
                ray.cancel(one, force=True)


def _quiet(work: Callable[[Any, Callable[[Any], None]], Any], job: Any) -> Any:
    return work(job, lambda _: None)
