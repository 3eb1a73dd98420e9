"""The server of runs: what it answers, to whom, and how it keeps up with a run that goes on."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from pages import HOSTILE, TASKS, HandMade, serving, small_run
from tiny import MAIN, environment

from meshheal.errors import UsageError
from meshheal.trace.rundir import RunDir
from meshheal.view.library import Library
from meshheal.view.server import Server


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        content = reply.read()
        kind = reply.headers["Content-Type"]
        return Reply(reply.status, dict(reply.headers), json.loads(content) if content and "json" in kind else content)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    small_run(out)
    return out


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Server]:
    with serving(runs) as found:
        yield found


@pytest.fixture(scope="module")
def name(runs: Path) -> str:
    return (runs / "latest").read_text().strip()


def until(answer: Any, wanted: Any) -> Any:
    """What `answer` gives once `wanted` holds of it; the reading thread needs a moment."""
    end = time.monotonic() + 30
    while not wanted(found := answer()):
        assert time.monotonic() < end, found
    return found


# --- what it answers -------------------------------------------------------------------------------------------------


def test_the_list_says_how_far_each_run_is(server: Server, name: str) -> None:
    [run] = ask(server, "/api/runs").body["runs"]
    assert (run["name"], run["experiment"], run["mode"]) == (name, "small", "simulated")
    assert (run["tasks"], run["expected"], run["complete"], run["error"]) == (4 * TASKS, 4 * TASKS, True, "")
    assert set(run["accuracy"]) == {"meshheal", "unprotected"}


def test_a_run_is_answered_as_its_report_has_it(server: Server, name: str) -> None:
    overview = ask(server, f"/api/runs/{name}").body
    assert [h["key"] for h in overview["heads"]] == [
        "meshheal-0",
        "meshheal+twin-0",
        "unprotected-0",
        "unprotected+twin-0",
    ]
    assert all(h["folded"] == 1 and len(h["sentences"]) == 3 for h in overview["heads"])
    answer = ask(server, f"/api/runs/{name}/arms/meshheal-0").body
    assert answer["arm"]["arrivals"] == TASKS
    assert ask(server, f"/api/runs/{name}/arms/meshheal-0?since={answer['version']}").body == {"unchanged": True}


def test_a_story_and_the_ids_of_tasks_are_read_on_demand(server: Server, name: str) -> None:
    found = ask(server, f"/api/runs/{name}/arms/meshheal%2Btwin-0/tasks?query=CHAIN").body
    assert 0 < found["count"] < TASKS
    assert all("chain" in id for id in found["ids"])
    task = found["ids"][0]
    stories = ask(server, f"/api/runs/{name}/arms/meshheal%2Btwin-0/story?task={quote(task)}").body["stories"]
    assert stories[task][0][3].endswith("chain_sum)")
    assert ask(server, f"/api/runs/{name}/arms/meshheal-0/story?task=none").body["stories"] == {}


def test_a_run_that_cannot_be_read_is_listed_with_its_error_and_the_others_still_work(tmp_path: Path) -> None:
    HandMade(tmp_path, "good").task().close()
    bad = HandMade(tmp_path, "bad").task().close()
    (bad.path / "experiment.json").write_text("{")
    with serving(tmp_path) as server:
        listed = {r["name"].partition("-")[0]: r["error"] for r in ask(server, "/api/runs").body["runs"]}
        assert listed["good"] == ""
        assert "experiment.json cannot be read" in listed["bad"]
        assert ask(server, f"/api/runs/{bad.name}").status == 500


def test_texts_no_encoder_takes_are_answered_too(tmp_path: Path) -> None:
    run = HandMade(tmp_path).task(reply=HOSTILE, id="a\ud800b").close()
    with serving(tmp_path) as server:
        path = f"/api/runs/{run.name}/arms/meshheal-0"
        assert ask(server, path).body["arm"]["tasks"]["id"] == ["a\ud800b"]
        story = ask(server, f"{path}/story?task=a%ED%A0%80b").body
        assert HOSTILE in story["texts"]


# --- to whom ---------------------------------------------------------------------------------------------------------


def test_it_listens_on_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_of_somebody_else_that_points_here_is_refused(server: Server, host: str) -> None:
    reply = ask(server, "/api/runs", Host=host.format(port=server.port))
    assert reply.status == 403
    assert "runs" not in reply.body


def test_pages_of_other_sites_get_nothing(server: Server) -> None:
    assert ask(server, "/api/runs", Sec_Fetch_Site="cross-site").status == 403
    assert ask(server, "/api/runs", Sec_Fetch_Site="same-origin").status == 200
    assert "Access-Control-Allow-Origin" not in ask(server, "/api/runs", Origin="http://evil.example").headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "NONSENSE"])
def test_it_only_shows(server: Server, method: str) -> None:
    reply = ask(server, "/api/runs", method)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/..", "/api/runs/..%2f..%2fetc", "/api/runs/%2e%2e/secret", "/../secret", "/api/runs/{name}/../../secret",
        "/api/runs/{name}/arms/..%2F..%2Flock", "/api/runs/{name}/arms/none-0", "/api/runs/{name}/experiment.json",
        "/api/runs/%00", "/api/runs/" + "a" * 3000, "/latest", "/api",
    ],
)  # fmt: skip
def test_nothing_but_runs_and_their_logs_is_to_be_had(server: Server, name: str, path: str) -> None:
    assert ask(server, path.format(name=name)).status == 404


@pytest.mark.parametrize("since", ["-1", "x", "1e3", "9" * 40])
def test_a_number_that_is_none_is_refused(server: Server, name: str, since: str) -> None:
    assert ask(server, f"/api/runs/{name}/arms/meshheal-0?since={since}").status == 400


def test_every_answer_says_what_a_browser_may_do_with_it(server: Server) -> None:
    for path in ("/", "/api/runs", "/none"):
        headers = ask(server, path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]


def test_a_head_request_has_no_body(server: Server) -> None:
    assert ask(server, "/", "HEAD").body == b""


def test_a_client_that_goes_away_in_the_middle_disturbs_nobody(
    server: Server, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(f"GET /api/runs/{name} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
    assert ask(server, "/api/runs").status == 200
    assert "Traceback" not in capfd.readouterr().err


# --- a run that goes on ----------------------------------------------------------------------------------------------


def test_a_run_in_progress_is_followed_to_its_end(tmp_path: Path) -> None:
    made = HandMade(tmp_path)
    made.task().task().log.flush()
    path = f"/api/runs/{made.run.name}"
    with serving(tmp_path) as server:
        assert ask(server, "/api/runs").body["runs"][0]["writing"]
        head = ask(server, path).body["heads"][0]
        assert (head["arrivals"], head["complete"], head["sentences"][0][:7]) == (2, False, "So far,")
        arm = ask(server, f"{path}/arms/meshheal-0").body
        made.task().believes(0, 3, "suspect", "excluded").log.flush()
        grown = until(lambda: ask(server, f"{path}/arms/meshheal-0?since={arm['version']}").body, lambda b: "arm" in b)
        assert grown["arm"]["tasks"]["id"] == ["t/0", "t/1", "t/2"]
        assert [i["sort"] for i in grown["arm"]["incidents"]] == ["false_exclusion"]
        assert ask(server, f"{path}/arms/meshheal-0/story?task=t/2").body["stories"]["t/2"]
        made.close()
        until(lambda: ask(server, path).body["heads"][0], lambda h: h["complete"])
        assert ask(server, "/api/runs").body["runs"][0]["tasks"] == 3


def test_an_arm_that_begins_later_is_found(tmp_path: Path) -> None:
    made = HandMade(tmp_path)
    run = made.task().close()
    with serving(tmp_path) as server:
        assert len(ask(server, f"/api/runs/{run.name}").body["heads"]) == 1
        shutil.copy(run.log_path("meshheal", 0), run.log_path("meshheal", 1))
        until(lambda: ask(server, f"/api/runs/{run.name}").body["heads"], lambda heads: len(heads) == 2)


def test_only_some_runs_are_kept_open(tmp_path: Path) -> None:
    made = [HandMade(tmp_path, f"run{n}").task().close() for n in range(6)]
    with serving(tmp_path) as server:
        for run in (*made, *made):
            assert ask(server, f"/api/runs/{run.name}").body["heads"][0]["arrivals"] == 1
        assert len(server.desk._runs) <= 3


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_place_without_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        Library(tmp_path / "none")
    assert Library(tmp_path).names() == []


def test_one_run_can_be_shown_alone(runs: Path, name: str) -> None:
    library = Library(runs / name)
    assert library.names() == [name]
    assert isinstance(library.run(name), RunDir)
    assert library.run("..") is None


def test_a_port_that_is_taken_is_an_error_that_says_so(runs: Path, server: Server) -> None:
    with pytest.raises(UsageError, match=rf"port {server.port} cannot be used .* --port"):
        Server(Library(runs), server.port)


@pytest.mark.slow
def test_ctrl_c_ends_the_command_cleanly(runs: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "view", str(runs), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert "open http://127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
