"""The same network on Ray actors: the local runtime's decisions, and processes that are killed at random moments."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from scripted import Played, by_agent, make_world
from test_realtime import of, staggered
from tiny import command, environment, write_script

from meshheal.errors import UsageError
from meshheal.events import AgentFailed, Crashed, EvidenceShared, Restarted, StateChanged, TaskArrived, TaskSettled
from meshheal.experiment import Arm, world
from meshheal.rng import Stream as Draws
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import MemoryLog
from meshheal.trace.rundir import open_run
from sim import actor, ray_session
from sim.cluster import ClusterRun
from sim.faults import swap
from sim.local import LocalRun
from sim.realtime import RealtimeRun
from sim.runtimes import Placement
from sim.wire import Batch, HostLost, decode
from sim.world import Closed

pytestmark = [pytest.mark.ray, pytest.mark.slow]
PROBING = {"recovery": {"budget": 0.5, "burst": 4}}


class Killing(ClusterRun):
    """Kills the process of a host when some tasks have ended, with signal 9."""

    def __init__(self, *arguments, kills, **options):
        self.kills = dict(kills)
        self.killed = []
        super().__init__(*arguments, progress=self._ended, **options)

    def _ended(self, index):
        if index in self.kills:
            host = self.hosts[self.kills.pop(index)]
            self.killing = asyncio.ensure_future(self._kill(host))

    async def _kill(self, host):
        pid = await host.actor.process.remote()
        self.killed.append(host.id)
        os.kill(pid, signal.SIGKILL)


def assert_ends_once(events, n):
    arrived = Counter(e.task for e in of(events, TaskArrived))
    assert arrived == Counter(e.task for e in of(events, TaskSettled))
    assert set(arrived.values()) == {1}
    assert len(arrived) == n
    ids = [e.id for e in events]
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("cluster")
def test_with_one_task_in_flight_every_agent_does_the_same_on_all_three_runtimes():
    prepared = staggered(110)
    logs = []
    for make in (
        LocalRun,
        lambda w, log: RealtimeRun(w, log, hosts=2),
        lambda w, log: ClusterRun(w, log, placement=Placement(hosts=2)),
    ):
        logs.append(MemoryLog())
        run = make(world(prepared, Arm("meshheal", 0)), logs[-1])
        run.run()
        assert run.traffic.evidence > 300
    local, real, ray = [by_agent(log.events) for log in logs]
    assert {e.agent for e in of(logs[2].events, StateChanged) if e.to == "excluded"} >= {0}
    assert local == real
    assert local == ray
    seen = set()
    for event in logs[2].events:  # merged from three processes: causes stand before effects
        assert set(event.causes) <= seen
        seen.add(event.id)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.usefixtures("cluster")
def test_hosts_killed_at_random_moments_come_back_and_every_task_ends_once(seed):
    draw = Draws(seed, "kills")
    kills = {20 + draw.index(20): draw.index(2), 70 + draw.index(20): draw.index(2)}
    log = MemoryLog()
    made = make_world(130, seed=seed, stream=Closed(3), faults=[swap(2, "foul-z", 5, 130)], settings=PROBING)
    run = Killing(made, log, placement=Placement(hosts=2), kills=kills)
    run.run()
    assert len(run.killed) == 2
    assert_ends_once(log.events, 130)
    assert not of(log.events, AgentFailed)
    assert Counter(e.agent for e in of(log.events, Crashed)) == Counter(e.agent for e in of(log.events, Restarted))
    assert len(of(log.events, Restarted)) == sum(run.where.count(h) for h in run.killed)
    outcomes = Counter(e.outcome for e in of(log.events, TaskSettled))
    assert outcomes["failed"] <= 2 * 3  # what had entered at the host that died


@pytest.mark.usefixtures("cluster")
def test_a_restarted_host_has_the_evidence_of_its_last_checkpoint():
    """Agent 4 is found out long before the kill: the restarted agents still exclude it, and say so."""
    log = MemoryLog()
    made = make_world(120, faults=[swap(4, "foul-z", 5, 120)], settings=PROBING)
    run = Killing(made, log, placement=Placement(hosts=2), kills={90: 0})
    run.run()
    assert_ends_once(log.events, 120)
    back = [e for e in log.events if e.node in range(6) and run.where[e.node] == 0 and e.incarnation == 1]
    restored = {
        e.node for e in of(back, StateChanged) if e.reason == "restored" and e.agent == 4 and e.to == "excluded"
    }
    assert restored == {a for a in range(6) if run.where[a] == 0} - {4}
    assert of(back, EvidenceShared)


@pytest.mark.usefixtures("cluster")
def test_agents_may_have_a_host_each():
    log = MemoryLog()
    ClusterRun(make_world(8, size=3), log, placement=Placement(agents_per_host=1)).run()
    assert_ends_once(log.events, 8)


@pytest.mark.conformance("ray")
def test_what_agents_do_on_ray_is_what_they_do_locally(runtime):
    assert runtime == "ray"
    made = make_world(60, faults=[swap(2, "foul-z", 10, 50)], settings=PROBING)
    assert by_agent(Played(made).log.events) == by_agent(local_events(made))


def local_events(made):
    log = MemoryLog()
    LocalRun(made, log).run()
    return log.events


@pytest.mark.usefixtures("cluster")
def test_an_error_of_the_harness_on_a_host_ends_the_run_with_its_line():
    made = make_world(5)
    made.model("one-x").complete = unasked
    with pytest.raises(UsageError, match="no answer to that"):
        ClusterRun(made, MemoryLog()).run()


async def unasked(request):
    raise UsageError(f"no answer to that: {request.key.item}")


class Away:
    """An actor that cannot be reached for the first `calls` calls, as one that is being started anew."""

    def __init__(self, calls):
        self.calls = calls
        self.taken = []
        self.deliver = self

    async def remote(self, data):
        from ray.exceptions import ActorUnavailableError

        if self.calls:
            self.calls -= 1
            raise ActorUnavailableError("restarting", None)
        self.taken.append(decode(data))


@pytest.mark.parametrize(("calls", "reached"), [(0, True), (6, True), (10**9, False)])
def test_calls_to_a_host_that_restarts_end_within_a_bound(calls, reached, monkeypatch):
    pytest.importorskip("ray")
    assert sum(actor._RETRIES) < 15, "seconds that a call may wait for a host to come back"
    monkeypatch.setattr(actor, "_RETRIES", tuple([wait / 100 for wait in actor._RETRIES]))
    away, batch = Away(calls), Batch(0, 0, 1.0, [])
    host = actor.HostActor(0, time.time())
    host._peers = [host, away]
    try:
        asyncio.run(asyncio.wait_for(host._post(1, batch), 5.0))
    except HostLost:
        assert not reached
    else:
        assert reached
    assert away.taken == ([batch] if reached else [])


def test_another_version_on_the_cluster_is_one_clear_line(monkeypatch):
    ray = pytest.importorskip("ray")
    text = "Version mismatch: The cluster was started with: Ray: 2.9.0 Python: 3.10.1 This process on node ... was started with"

    monkeypatch.setenv("RAY_ADDRESS", "auto")

    def refuse(**_):
        raise RuntimeError(text)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(UsageError, match=r"the cluster runs Ray 2\.9\.0 and Python 3\.10\.1, here are Ray .*==2\.9\.0"):
        ray_session.connect()


def test_no_ray_is_one_clear_line_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'meshheal\[ray\]'"):
        ray_session.connect()


def test_a_cluster_that_is_not_there_is_one_clear_line(tmp_path):
    script = write_script(tmp_path, tasks=30)
    done = command(
        "run", script, "--seeds", 1, "--methods", "meshheal", "--display", "none", cwd=tmp_path,
        env=environment(RAY_ADDRESS="127.0.0.1:1"),
    )  # fmt: skip
    assert done.returncode == 2
    assert re.search(r"^meshheal: --runtime ray: no connection to the cluster at 127\.0\.0\.1:1", done.stderr, re.M)
    assert "Traceback" not in done.stderr


# --- the driver ---


def wait_for(found, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("it did not come")


@pytest.mark.parametrize("runtime", ["realtime", "ray"])
def test_a_driver_that_was_killed_is_resumed_and_keeps_what_was_complete(tmp_path, runtime):
    script = write_script(tmp_path, tasks=60)
    arguments = ["run", script, "--seeds", "1", "--display", "none", "--out", tmp_path / "runs", "--runtime", runtime]
    code = "from meshheal.cli.app import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: [p for p in (tmp_path / "runs").glob("*/events/meshheal-0.jsonl.zst") if whole(p)])
    finally:
        process.kill()
        process.wait()
    kept = whole(next((tmp_path / "runs").glob("*/events/meshheal-0.jsonl.zst")))
    done = command(*arguments, "--resume", "latest", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    directory = open_run("latest", tmp_path / "runs")
    assert directory.results["valid"]
    assert whole(directory.log_path("meshheal", 0)) == kept
    for arm in directory.complete_arms():
        with LogFile(directory.log_path(*arm)) as log:
            assert_ends_once(list(log.events()), 60)
    assert len(directory.complete_arms()) == 4


def whole(path):
    """The hash of a complete log, else nothing."""
    try:
        with LogFile(path) as log:
            return (log.footer or {}).get("hash") if log.complete else None
    except Exception:
        return None
