"""`meshheal log`: counts from the index, and one task's story with who believed what."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from meshheal import events as ev
from meshheal.cli.log import log
from meshheal.errors import UsageError
from meshheal.trace.recorder import Recorder
from meshheal.trace.rundir import RunDir, create
from meshheal.types import ReviewRecord, Usage


def invoke(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(log)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def record_story(recorder: Recorder, task: str) -> None:
    """Agent 1 answers wrongly; a committee rejects it and takes over; neighbour 4 comes to exclude it."""
    record_answer(recorder, task)
    record_judgment(recorder, task)
    record_exclusion(recorder, task)


# fmt: off
def record_answer(recorder: Recorder, task: str) -> None:
    prompt = recorder.text(f"Prove [bold]{task}[/bold] \x1b[31m in red.")
    reply = recorder.text("It holds. \ud800 " + "Trivially so. " * 30)
    recorder.write(ev.TaskArrived(node=-1, seq=1, t=1.0, task=task, index=7, entry=0, ability="algebra", prompt=prompt))
    recorder.write(ev.ProducerAsked(node=0, seq=1, t=1.0, task=task, producer=1, ability="algebra"))
    recorder.write(ev.ModelCalled(
        node=1, seq=1, t=2.0, task=task, model="synthetic/a", purpose="produce", subject=1, n=0,
        prompt=(("user", prompt),), prompt_hash="00", replies=(reply,), usage=Usage(100, 20), latency=1.0,
    ))
    recorder.write(ev.Answered(node=0, seq=2, t=2.0, task=task, producer=1, value="7", text=reply))


def record_judgment(recorder: Recorder, task: str) -> None:
    recorder.write(ev.FirstLook(
        node=0, seq=3, t=3.0, task=task, producer=1, reviewer=2, scores=(0.1,), decision="committee", why="low",
    ))
    recorder.write(ev.CommitteeMet(
        node=0, seq=4, t=4.0, task=task, producer=1, members=(2, 3), scores=(0.2, None), deliberated=(0.1, 0.3),
        verdict=0.2,
    ))
    recorder.write(ev.TookOver(
        node=0, seq=5, t=5.0, task=task, producer=1, members=(2, 3), values=("8", None), chosen=2, replaced=True,
    ))
    recorder.write(ev.TaskSettled(
        node=0, seq=6, t=5.0, task=task, outcome="takeover", producer=1, author=2, value="8", calls=6,
    ))


def record_exclusion(recorder: Recorder, task: str) -> None:
    evidence = ReviewRecord(f"{task}-r", task, 1, "algebra", "", "first_look", 0.1, (2,), 0, 5.0, committee=0.2)
    recorder.write(ev.EvidenceShared(node=0, seq=7, t=5.0, task=task, record=evidence, to=(2, 4)))
    recorder.write(ev.TaskGraded(node=-1, seq=2, t=5.0, task=task, correct=True))
    recorder.write(ev.StateChanged(
        node=4, seq=1, t=6.0, task=task, agent=1, before="suspect", to="excluded", evidence=71.2, record=evidence.id,
    ))
# fmt: on


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = create(tmp_path, "e", datetime(2026, 1, 1, tzinfo=UTC), {"name": "e"})
    for method, seed in [("unprotected", 0), ("meshheal", 1), ("meshheal", 0)]:
        with Recorder(made.log_path(method, seed), {"method": method, "topology": {"hash": "abc"}}) as recorder:
            for i in range(20):
                record_story(recorder, f"t{i}")
    cut = Recorder(made.log_path("meshheal", 2), {"method": "meshheal"})
    record_story(cut, "t0")
    cut.abort()
    return made


def test_a_run_is_shown_with_a_line_for_each_log(run: RunDir) -> None:
    shown = invoke(str(run.path)).stdout
    rows = [line.split(maxsplit=6) for line in shown.splitlines() if " 220 " in line or " 11 " in line]
    assert [(row[0], row[1], row[-1].strip()) for row in rows] == [
        ("meshheal", "0", "complete"),
        ("meshheal", "1", "complete"),
        ("meshheal", "2", "not complete (still running, or cut)"),
        ("unprotected", "0", "complete"),
    ]


def test_one_log_is_shown_with_header_and_counts(run: RunDir) -> None:
    shown = invoke("latest", "--out", str(run.path.parent), "--method", "meshheal", "--seed", "1").stdout
    assert "complete" in shown
    assert 'topology: {"hash": "abc"}' in shown
    assert any(line.split() == ["TaskSettled", "20"] for line in shown.splitlines())
    assert "t0, t1, t19" in shown


def test_a_task_is_told_from_arrival_to_belief(run: RunDir) -> None:
    shown = invoke(str(run.path), "--task", "t3").stdout
    told = [
        "method meshheal, seed 0",
        "task 7 of the stream arrives at agent 0 (algebra)",
        "asks agent 1 (healthy) to produce",
        "produce on synthetic/a (100 + 20 tokens, 1 s)",
        "reads the output of agent 1: '7'",
        "first look by agent 2: 0.10 → committee (low)",
        "committee: agent 2 0.20, agent 3 none; after deliberating 0.10, 0.30 → verdict 0.20",
        "takeover: agent 2 '8', agent 3 None; the answer of agent 1 is replaced by agent 2",
        "settled as takeover: '8' by agent 2 (6 calls",
        "record t3-r: agent 1 scored 0.10 by first_look, committee 0.20 → agents 2, 4",
        "graded right",
        "What was believed because of it:",
        "agent 1: suspect → excluded (evidence 71.2, record t3-r)",
    ]
    at = 0
    for part in told:
        assert part in shown[at:], part
        at = shown.index(part, at)
    assert "t4" not in shown


def test_text_from_a_model_cannot_write_to_the_terminal(run: RunDir) -> None:
    shown = invoke(str(run.path), "--task", "t3").stdout
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown
    assert "[bold]t3[/bold]" in shown
    assert "\\ud800" in shown


def test_texts_are_short_unless_asked_for_whole(run: RunDir) -> None:
    short = invoke(str(run.path), "--task", "t3").stdout
    whole = invoke(str(run.path), "--task", "t3", "--full").stdout
    assert short.count("Trivially so.") < 15
    assert whole.count("Trivially so.") == 30


def test_json_goes_to_standard_output_and_can_be_read(run: RunDir) -> None:
    logs = json.loads(invoke(str(run.path), "--json").stdout)["logs"]
    assert [(x["method"], x["seed"], x["complete"]) for x in logs] == [
        ("meshheal", 0, True), ("meshheal", 1, True), ("meshheal", 2, False), ("unprotected", 0, True),
    ]  # fmt: skip
    assert logs[0]["counts"]["TookOver"] == 20
    story = json.loads(invoke(str(run.path), "--task", "t3", "--json").stdout)
    assert [e["kind"] for e in story["events"]][-1] == "StateChanged"
    assert any(text.startswith("It holds. \ud800") for text in story["texts"].values())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "t99"], "has no task 't99'; its tasks are e.g. t0, t1, t19"),
        (["--method", "mesheal"], "methods are meshheal, unprotected; seeds 0, 1, 2"),
        (["--seed", "9"], "has no such log"),
    ],
)
def test_what_is_not_there_is_told_of_with_what_is(run: RunDir, arguments: list[str], says: str) -> None:
    error = invoke(str(run.path), *arguments).exception
    assert isinstance(error, UsageError)
    assert says in str(error)


def test_a_story_reads_only_the_frames_it_needs(tmp_path: Path) -> None:
    made = create(tmp_path, "e", datetime(2026, 1, 1, tzinfo=UTC), {})
    with Recorder(made.log_path("meshheal", 0), {}, frame_bytes=20_000) as recorder:
        for i in range(3000):
            record_story(recorder, f"t{i}")
    from meshheal.trace.reader import LogFile

    with LogFile(made.log_path("meshheal", 0)) as reader:
        assert len(reader.task("t1500")) == 11
        assert reader.bytes_read < made.log_path("meshheal", 0).stat().st_size / 4
