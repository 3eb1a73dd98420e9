"""The supervisor of model servers, on small fake servers in processes of their own."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from meshheal.errors import UsageError
from sim.live.servers import Check, Fleet, Launch, Server
from sim.live.vllm import Copy, launches

pytestmark = pytest.mark.server

FAKE = str(Path(__file__).with_name("fake_server.py"))


def fake(name: str, *options: str) -> Launch:
    return Launch(name, (sys.executable, FAKE, "--port", "{port}", *options))


def until(condition, seconds: float = 20.0) -> None:
    """Wait for another process: what it does is seen by asking again."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        pause.wait(0.02)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_two_servers_are_up_inside_the_block_and_gone_after_it(tmp_path):
    with Fleet([fake("one"), fake("two")], tmp_path, every=0.02) as fleet:
        assert fleet["one"].port != fleet["two"].port
        assert fleet["one"].check() == fleet["two"].check() == ""
        pids = [s.pid for s in fleet.servers.values()]
    assert all(map(gone, pids))


def test_health_is_checked_all_along_and_kept_as_lines(tmp_path):
    with Fleet([fake("one"), fake("two")], tmp_path, every=0.02) as fleet:
        until(lambda: len(fleet.checks) >= 6)
    health = fleet.health()
    assert health["one"].checks == health["one"].green >= 3
    lines = (tmp_path / "health.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Check) for line in lines] == fleet.checks


def test_a_server_that_turns_sick_is_not_called_green(tmp_path):
    with Fleet([fake("well"), fake("ill", "--sick-after", "2")], tmp_path, every=0.02) as fleet:
        until(lambda: any(c.wrong for c in fleet.checks))
    health = fleet.health()
    assert health["ill"].green < health["ill"].checks
    assert health["well"].green == health["well"].checks
    assert {c.wrong for c in fleet.checks if c.wrong} == {"status 503"}


def test_a_server_that_dies_while_starting_ends_in_one_line_with_its_last_words(tmp_path):
    with pytest.raises(UsageError) as caught, Fleet([fake("well"), fake("bad", "--dies")], tmp_path):
        pass
    said = str(caught.value)
    assert "server bad: ended with exit code 1 while starting" in said
    assert "these weights are no weights" in said
    assert "\n" not in said


def test_the_other_servers_end_when_one_cannot_start(tmp_path):
    fleet = Fleet([fake("well"), fake("bad", "--dies")], tmp_path)
    with pytest.raises(UsageError), fleet:
        pass
    assert gone(fleet["well"].pid)


def test_a_server_that_is_never_ready_is_given_up_at_the_deadline(tmp_path):
    with (
        pytest.raises(UsageError, match="not ready in time"),
        Fleet([fake("slow", "--never-ready")], tmp_path, ready_within=1.0),
    ):
        pass


def test_a_command_that_is_not_there_is_one_line(tmp_path):
    with (
        pytest.raises(UsageError, match="server x: cannot run /no/such/python"),
        Fleet([Launch("x", ("/no/such/python",))], tmp_path),
    ):
        pass


def test_a_killed_server_is_seen_and_comes_back_on_its_port(tmp_path):
    with Fleet([fake("one")], tmp_path, every=0.02) as fleet:
        server = fleet["one"]
        first, port = server.pid, server.port
        server.kill()
        assert gone(first)
        assert not server.alive()
        until(lambda: any(c.wrong == "refused" for c in fleet.checks))
        server.start()
        server.wait(time.monotonic() + 20)
        assert (server.port, server.check()) == (port, "")
        assert server.pid != first


def test_an_error_inside_the_block_ends_the_servers_and_is_passed_on(tmp_path):
    fleet = Fleet([fake("one")], tmp_path)
    with pytest.raises(ZeroDivisionError), fleet:
        1 / 0  # noqa: B018
    assert gone(fleet["one"].pid)


def test_two_servers_of_one_name_are_refused(tmp_path):
    with pytest.raises(UsageError, match="two are called the same"):
        Fleet([fake("one"), fake("one")], tmp_path)


def test_a_server_that_was_never_started_has_nothing_to_end(tmp_path):
    server = Server(fake("one"), tmp_path / "log")
    server.stop()
    assert not server.alive()


class TestVllm:
    @pytest.fixture(autouse=True)
    def environment(self, tmp_path, monkeypatch):
        """An interpreter and healthy weights, as far as paths go."""
        python, weights = tmp_path / "python", tmp_path / "weights"
        python.write_text("")
        (weights / "healthy").mkdir(parents=True)
        (weights / "healthy" / "config.json").write_text("{}")
        monkeypatch.setenv("MESHHEAL_VLLM_PYTHON", str(python))
        monkeypatch.setenv("MESHHEAL_LIVE_WEIGHTS", str(weights))

    def test_without_its_environment_one_line_says_what_to_run(self, monkeypatch, tmp_path):
        monkeypatch.setenv("MESHHEAL_VLLM_PYTHON", str(tmp_path / "none"))
        with pytest.raises(UsageError, match="make live-setup"):
            launches((Copy("healthy"),))

    def test_without_weights_one_line_says_what_to_run(self):
        with pytest.raises(UsageError, match=r"no weights at .*q4; run `make live-weights`"):
            launches((Copy("healthy"), Copy("swapped", "q4")))

    def test_two_copies_have_one_served_name_and_cores_of_their_own(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
        one, two = launches((Copy("healthy"), Copy("twin")))
        assert "smollm2-135m" in one.command
        assert one.command == two.command
        assert one.environment["VLLM_CPU_OMP_THREADS_BIND"] == "3"
        assert two.environment["VLLM_CPU_OMP_THREADS_BIND"] == "5"
        assert two.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
