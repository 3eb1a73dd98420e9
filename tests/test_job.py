"""A run submitted to a cluster as a job, as a user would: a head node with token authentication, the working directory sent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[1]
RAY = str(Path(sys.executable).with_name("ray"))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Head:
    """A head node of its own: ports, token and files are no others'."""

    def __init__(self, folder: Path) -> None:
        token = folder / "token"
        token.write_text("0123456789abcdef0123456789abcdef0123456789abcdef")
        token.chmod(0o600)
        self.dashboard = free_port()
        plain = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k != "PYTHONPATH"}
        self.env = {
            **plain,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{self.dashboard}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        ports = {
            "port": free_port(), "dashboard-port": self.dashboard, "metrics-export-port": free_port(),
            "dashboard-agent-listen-port": free_port(), "ray-client-server-port": free_port(),
        }  # fmt: skip
        self.temp = tempfile.TemporaryDirectory(prefix="mh", dir="/tmp", ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [
                RAY, "start", "--head", "--block", "--dashboard-host=127.0.0.1", "--num-cpus=2", "--disable-usage-stats",
                f"--temp-dir={self.temp.name}", "--object-store-memory=200000000",
                *[f"--{name}={port}" for name, port in ports.items()],
            ],
            env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def wait(self, seconds: float = 120.0) -> None:
        """Until jobs are taken."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the head node ended"
            listed = subprocess.run([RAY, "job", "list"], env=self.env, capture_output=True, timeout=60, check=False)
            if listed.returncode == 0:
                return
            time.sleep(0.5)
        raise AssertionError("the head node takes no jobs")

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RAY, "job", "submit", "--working-dir", ".", *arguments],
            cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.temp.cleanup()


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    pytest.importorskip("ray", reason="needs the extra `ray`")
    if not Path(RAY).exists():
        pytest.skip("the ray command is not installed")
    made = Head(tmp_path_factory.mktemp("head"))
    try:
        made.wait()
        yield made
    finally:
        made.close()


RUN = ("python", "experiments/staggered_math.py", "--seeds", "1", "--tasks", "220", "--methods", "meshheal")


def only(folder: Path) -> Path:
    (run,) = [path for path in folder.iterdir() if path.is_dir()]
    return run


@pytest.mark.parametrize("env", [(), ("--runtime-env", "deploy/installed.yaml")], ids=["plain", "runtime-env"])
def test_a_submitted_run_is_on_ray_and_its_results_are_where_they_were_asked_for(head, tmp_path, env):
    done = head.submit(*env, "--", *RUN, "--display", "plain", "--out", str(tmp_path))
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-3000:]
    run = only(tmp_path)
    results = json.loads((run / "results.json").read_text())
    assert results["valid"]
    assert "tasks" in log  # progress
    assert "staggered_math: " in log
    assert "exit code 0" in log
    from meshheal.trace.reader import LogFile

    with LogFile(run / "events" / "meshheal-0.jsonl.zst") as events:
        assert events.header["runtime"] == "ray"
        assert events.footer["complete"]


def test_results_go_to_a_url_too_and_a_failure_tells_its_exit_code(head, tmp_path):
    done = head.submit("--", *RUN, "--display", "none", "--runtime", "local", "--out", f"file://{tmp_path}/away")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert json.loads((only(tmp_path / "away") / "results.json").read_text())["valid"]
    refused = head.submit("--", *RUN[:2], "--tasks", "5")
    assert refused.returncode != 0
    log = refused.stdout + refused.stderr
    assert "meshheal: a fault at arrival 105 never comes" in log
    assert "meshheal: exit code 2" in log


def test_the_committed_runtime_environment_asks_for_what_the_package_does():
    import re
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = re.findall(r"^  - (.+)$", (ROOT / "cluster.yaml").read_text(), re.M)
    assert set(lines) == {*declared["dependencies"], *declared["optional-dependencies"]["openai"]}
