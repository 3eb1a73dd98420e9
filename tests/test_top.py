"""`meshheal top`: how the agents of a run stand, while it goes on and after."""

from __future__ import annotations

import io
from pathlib import Path

import observed
import pytest
from rich.console import Console

from meshheal.cli.top import Follower, render, watch
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import Recorder
from meshheal.trace.rundir import Arm, RunDir


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return observed.run(observed.plain(), tmp_path_factory.mktemp("top"))


def printed(follower: Follower, rows: int = 6) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(render(follower, rows))
    return out.getvalue()


def test_a_finished_run_shows_what_its_results_say(run: RunDir) -> None:
    follower = Follower(run, Arm("meshheal", 0))
    watch(
        follower, Console(file=io.StringIO(), width=140), 1.0, lambda _: pytest.fail("nothing to wait for"), once=False
    )
    roster, results = follower.roster, run.results
    assert results is not None
    seed = results["arms"]["meshheal"]["per_seed"][0]
    assert roster.tokens == pytest.approx(seed["tokens_per_task"] * 160)
    excluded = [i.what for i in roster.incidents if "by all its neighbours" in i.what]
    assert len(excluded) == sum(d["delay_tasks"] is not None for d in seed["detection"]) == 2
    assert "simulated models" in printed(follower)
    assert "ended" in printed(follower)
    follower.log.close()


def test_a_log_in_progress_is_followed_until_its_run_ends(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "experiment.json").write_bytes((run.path / "experiment.json").read_bytes())
    with LogFile(run.log_path("meshheal", 0)) as log:
        header, events = log.header, list(log.events())
    growing = RunDir(tmp_path)
    recorder = Recorder(growing.log_path("meshheal", 0), header)
    third = len(events) // 3
    parts = [events[:third], events[third : 2 * third], events[2 * third :]]

    def write(part: list) -> None:
        for event in part:
            recorder.write(event)
        recorder.flush()

    write(parts[0])
    follower = Follower(growing, Arm("meshheal", 0))
    graded: list[int] = []

    def pause(_: float) -> None:
        graded.append(follower.roster.graded)
        if parts[len(graded) :]:
            write(parts[len(graded)])
        else:
            recorder.close()

    watch(follower, Console(file=io.StringIO(), width=140, force_terminal=True), 1.0, pause, once=False)
    assert graded == sorted(set(graded))
    assert 0 < graded[0] < 160
    assert follower.over
    assert follower.roster.graded == 160
    follower.log.close()


def test_the_worst_agents_come_first_and_truth_stands_beside_belief(run: RunDir) -> None:
    with LogFile(run.log_path("meshheal", 0)) as log:
        events = list(log.events())
    follower = Follower(run, Arm("meshheal", 0))
    moment = next(n for n, e in enumerate(events) if type(e).__name__ == "Swapped" and not e.degraded)
    for event in events[:moment]:
        follower._summary(event)
        follower.roster(event)
    rows = follower.roster.rows()
    assert (rows[0].agent, rows[0].standing, rows[0].degraded) in {(0, "excluded", True), (3, "excluded", True)}
    assert rows[0].excluded_by == rows[0].watchers
    assert "and 4 more" in printed(follower, rows=2)
    follower.log.close()
