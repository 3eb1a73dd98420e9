"""The boundary to Ray: connecting, placing actors, and its errors in our words. Ray is imported when it is first needed."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from meshheal.errors import NetworkError, UsageError
from sim.actor import HostActor


def connect() -> None:
    """Connect to the cluster that `RAY_ADDRESS` names, or start one on this machine. Raises `UsageError`, `NetworkError`."""
    ray = _ray()
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address:
        try:
            ray.init(include_dashboard=False, **quiet)
        except Exception as error:  # a node that does not start within Ray's 30 s leaves processes behind
            with suppress(Exception):
                ray.shutdown()
            raise NetworkError(f"Ray did not start on this machine: {' '.join(str(error).split())[:300]}") from error
        return
    try:
        _reach(address)
        ray.init(address=address, **quiet)
    except Exception as error:
        raise UsageError(_why_not(address, error)) from error


def _reach(address: str) -> None:
    """Raise `OSError` where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHING).close()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError("--runtime ray: Ray is not installed; pip install 'meshheal[ray]'") from error
    return ray


def _why_not(address: str, error: Exception) -> str:
    """One line on why there is no connection."""
    text = " ".join(str(error).split())
    mismatch = re.search(r"Version mismatch: The cluster was started with: Ray: (\S+) Python: (\S+)", text)
    if mismatch:
        import platform

        mine = f"Ray {_ray().__version__} and Python {platform.python_version()}"
        return (
            f"--runtime ray: the cluster runs Ray {mismatch[1]} and Python {mismatch[2]}, here are {mine}; "
            f"pip install 'ray[default]=={mismatch[1]}' under the same Python"
        )
    return f"--runtime ray: no connection to the cluster at {address} (RAY_ADDRESS): {text[:300]}"


def shared(value: Any) -> Any:
    """A value put where all actors can get it; passed to a call, it arrives as the value."""
    return _ray().put(value)


def cpus() -> int:
    """CPUs of the cluster."""
    return int(_ray().cluster_resources().get("CPU", 1))


@lru_cache(maxsize=1)
def lost() -> tuple[type[BaseException], ...]:
    """What a call to an actor raises where the actor died or cannot be reached now."""
    from ray.exceptions import ActorDiedError, ActorUnavailableError

    return (ActorDiedError, ActorUnavailableError)


@lru_cache(maxsize=1)
def failed() -> Any:
    """What a call raises where the method did; its `cause` is that error."""
    from ray.exceptions import RayTaskError

    return RayTaskError


def is_final(error: BaseException) -> bool:
    """Whether an actor that was lost will not be started anew."""
    from ray.exceptions import ActorDiedError

    return isinstance(error, ActorDiedError)


def kill(actor: Any) -> None:
    """End an actor's process; it is started anew."""
    _ray().kill(actor, no_restart=False)


@contextmanager
def actors(began: float, count: int, made_of: type[HostActor] = HostActor) -> Iterator[list[Any]]:
    """Host actors, one to a bundle of a placement group that is spread over the machines; gone at the end."""
    ray = _ray()
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    share = min(_SHARE, round(0.9 * cpus() / count, 4))
    group = placement_group([{"CPU": share}] * count, strategy="SPREAD")
    made: list[Any] = []
    try:
        if not group.wait(_PLACING):
            raise UsageError(
                f"--runtime ray: the cluster has no room for {count} hosts of {share:g} CPUs within {_PLACING} s; "
                "give fewer with --hosts, or end what else runs there"
            )
        kind = ray.remote(made_of)
        for host in range(count):
            where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=host)
            made.append(
                kind.options(
                    num_cpus=share,
                    max_restarts=_RESTARTS,
                    max_task_retries=0,
                    max_concurrency=_CALLS,
                    scheduling_strategy=where,
                ).remote(host, began)
            )
        yield made
    finally:
        for actor in made:
            with suppress(Exception):
                ray.kill(actor)
        with suppress(Exception):
            remove_placement_group(group)


async def ready(calls: Sequence[Any]) -> None:
    """Wait for the first calls to all actors. Raises `UsageError` where they cannot run our code."""
    try:
        async with asyncio.timeout(_STARTING):
            await asyncio.gather(*calls)
    except (*lost(), failed()) as error:
        text = str(error)
        missing = re.search(r"No module named '?([\w.]+)", text)
        if missing:
            raise UsageError(
                f"--runtime ray: the cluster's machines cannot import {missing[1]}; submit the run with "
                "`ray job submit --working-dir . -- python ...`, or install it there"
            ) from error
        raise NetworkError(f"a host did not start: {' '.join(text.split())[:400]}") from error
    except TimeoutError as error:
        raise NetworkError(f"the hosts did not start within {_STARTING} s") from error


async def ended(calls: Sequence[Any]) -> None:
    """Wait a moment for calls, whatever comes of them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await asyncio.gather(*calls, return_exceptions=True)


_SHARE = 0.5
"""CPUs that a host asks for; less where there are many hosts to a machine."""
_REACHING = 10.0
_PLACING = 60
_STARTING = 120
_CLOSING = 10
_RESTARTS = 100
"""Times that a host's process is started anew."""
_CALLS = 10_000
"""Calls of the driver and of other hosts that a host has open at a time; each is short."""
