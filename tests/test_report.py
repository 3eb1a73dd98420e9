"""The report: what is folded from events for it, and the page as a file."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from gzip import decompress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import FALLS, HOSTILE, RECOVERS, TASKS, HandMade, small_run
from tiny import command

from meshheal import events as ev
from meshheal.errors import UsageError
from meshheal.folds.report import arm as arm_module
from meshheal.folds.report.about import about
from meshheal.folds.report.build import build
from meshheal.folds.report.columns import Scores, thin
from meshheal.folds.report.layout import layout
from meshheal.folds.report.page import Blob, page
from meshheal.folds.report.reading import Reading
from meshheal.folds.report.sentences import duration, ordinal
from meshheal.folds.report.stories import story
from meshheal.trace.rundir import RunDir
from topologies import complete, regular, ring, saved


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return small_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path)


def read(run: RunDir, method: str = "meshheal", seed: int = 0) -> Any:
    with Reading(about(run), run.log_path(method, seed), method, seed) as reading:
        reading.read()
        return reading.snapshot()


def blobs(html: str) -> dict[str, Any]:
    """The data in a page, by name."""
    found = re.findall(r'<script type="text/plain" id="([^"]+)">([^<]*)</script>', html)
    return {name: json.loads(decompress(b64decode(content))) for name, content in found}


# --- what is folded --------------------------------------------------------------------------------------------------


def test_the_tables_of_an_arm_agree_with_its_results(run: RunDir) -> None:
    head, arm = read(run)
    per_seed = run.results["arms"]["meshheal"]["per_seed"][0]
    assert head.figures.accuracy_degraded == per_seed["accuracy_degraded"]
    assert arm.arrivals == len(arm.tasks.id) == TASKS
    assert sum(head.curve.right) == arm.tasks.correct.count(1)
    assert sum(head.curve.done) == TASKS
    [found] = [i for i in arm.incidents if i.sort == "degraded"]
    assert found.delay == per_seed["detection"][0]["delay_tasks"]
    assert found.delay_back == per_seed["reintegration"][0]["delay_tasks"]
    assert [(w.agent, w.start, w.end) for w in arm.windows] == [(2, FALLS, RECOVERS)]


def test_an_incident_tells_who_saw_what_first(made: HandMade) -> None:
    made.task().task().swap(1, degraded=True).task(id="first")
    made.add(ev.SuspicionMoved, node=3, agent=1, evidence=4.0, task="first")
    made.believes(3, 1, "healthy", "suspect", task="first").task()
    for observer in (4, 3, 0, 2, 5):
        made.believes(observer, 1, "suspect", "excluded")
    made.add(ev.Probed, node=4, agent=1, reference="t/0", score=0.0, motive="recovery")
    made.add(ev.Probed, node=4, agent=1, reference="t/0", score=1.0, motive="recovery").task()
    made.swap(1, degraded=False).task()
    for observer in (0, 2, 3, 4, 5):
        made.believes(observer, 1, "excluded", "probation").believes(observer, 1, "probation", "healthy")
    [incident] = read(made.close()).arm.incidents
    assert (incident.onset.x, incident.agent, incident.model) == (2, 1, "synthetic/weak")
    assert (incident.first_evidence.by, incident.first_evidence.task) == (3, "first")
    assert (incident.suspected.by, incident.excluded.by, incident.excluded.x) == (3, 4, 3)
    assert incident.excluders == [4, 3, 0, 2, 5]
    assert (incident.delay, incident.all_excluded.x) == (2, 3)
    assert (incident.probes, incident.probes_passed) == (2, 1)
    assert (incident.recovered.x, incident.delay_back, incident.back.x) == (5, 1, 5)


def test_an_agent_excluded_without_being_worse_is_an_incident_of_its_own_until_nobody_excludes_it(
    made: HandMade,
) -> None:
    made.task().believes(0, 4, "suspect", "excluded").task().believes(5, 4, "suspect", "excluded")
    made.believes(0, 4, "excluded", "probation").task().believes(5, 4, "excluded", "probation")
    [incident] = read(made.close()).arm.incidents
    assert (incident.sort, incident.agent, incident.excluders) == ("false_exclusion", 4, [0, 5])
    assert (incident.onset.x, incident.back.x) == (0, 2)


def test_an_alarm_for_a_group_is_one_incident_however_often_it_is_raised(made: HandMade) -> None:
    for node in (0, 1, 2):
        made.task().add(ev.CorrelatedDegradation, node=node, group=(3, 4), expected=0.9, observed=0.5, evidence=9.0)
    [incident] = read(made.close()).arm.incidents
    assert (incident.sort, incident.group, incident.count, incident.onset.by) == ("correlated", [3, 4], 3, 0)


def test_an_observer_that_restarts_believes_nothing_until_it_says_so_again(made: HandMade) -> None:
    made.task().believes(0, 4, "suspect", "excluded").add(ev.Crashed, agent=0).add(ev.Restarted, agent=0)
    arm = read(made.close()).arm
    assert (arm.states.to, arm.words[arm.states.reason[-1]]) == ([3, 0], "restarted")
    assert [(i.sort, i.back is None) for i in arm.incidents] == [("false_exclusion", True), ("crash", False)]


def test_reading_bit_by_bit_gives_what_reading_at_once_gives(tmp_path: Path) -> None:
    hand = HandMade(tmp_path)
    for _ in range(12):
        hand.task().log.flush()
    with Reading(about(hand.run), hand.run.log_path("meshheal", 0), "meshheal", 0) as reading:
        while reading.read(1):
            reading.snapshot()
        assert reading.snapshot().head.folded == 1.0
        assert not reading.snapshot().head.complete
        hand.task().close()
        reading.log.refresh()
        reading.read()
        assert reading.snapshot() == read(hand.run)


def test_more_rows_than_a_page_should_hold_are_thinned_evenly_and_it_says_so(
    made: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm_module, "MOST_TASKS", 10)
    monkeypatch.setattr(arm_module, "MOST_SCORES", 7)
    for n in range(60):
        made.task(correct=n != 33)
    made.believes(0, 4, "suspect", "excluded", task="t/41")
    arm = read(made.close()).arm
    assert 10 <= len(arm.tasks.id) <= 20
    assert {"t/33", "t/41"} <= set(arm.tasks.id)
    assert arm.tasks.id[arm.states.task[0]] == "t/41"
    assert len(arm.scores.x) == 7
    assert arm.arrivals == 60
    assert [text.partition(" of ")[2] for text in arm.thinned] == ["60 tasks", "60 scores"]


@given(st.integers(0, 50), st.integers(1, 60))
def test_a_thinned_table_has_at_most_so_many_rows_and_begins_with_the_first(rows: int, most: int) -> None:
    column = list(range(rows))
    kept = thin(Scores(column, column, column, column, column), most)
    assert len(kept.x) <= most
    assert kept.x[:1] == column[:1]


# --- words -----------------------------------------------------------------------------------------------------------


def test_three_sentences_say_how_answers_were_who_fell_and_what_it_cost(run: RunDir) -> None:
    overview = blobs(build(run, stories=0).html)["overview"]
    head = next(h for h in overview["heads"] if h["key"] == "meshheal-0")
    answers, agents, cost = head["sentences"]
    assert answers.startswith("Six agents took 150 tasks in ")
    assert "simulated models" in answers
    assert "without faults" in answers
    assert agents.startswith("Agent 2 was put on a worse model; ")
    assert cost.startswith("A task cost ")


def test_a_method_that_excludes_nobody_is_said_to(run: RunDir) -> None:
    overview = blobs(build(run, ("unprotected",), stories=0).html)["overview"]
    assert [h["key"] for h in overview["heads"]] == ["unprotected-0", "unprotected+twin-0"]
    assert "was not excluded by all its neighbours" in overview["heads"][0]["sentences"][1]


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 s"), (600, "10 min"), (7200, "2 h"), (13560, "3 h 46 min"), (400_000, "4 days 15 h")]
)
def test_a_duration_has_the_two_units_that_matter(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_ordinals_of_the_teens_end_in_th() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th",
    ]  # fmt: skip


# --- the drawing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: complete(6), lambda: ring(40, k=2), lambda: saved(36), lambda: regular(200, degree=5, seed=1)],
    ids=["complete", "ring", "cells", "regular"],
)
def test_every_agent_has_a_place_of_its_own_and_it_is_the_same_each_time(make: Callable[[], Any]) -> None:
    neighbours = make().neighbours
    found = layout(neighbours)
    assert found == layout(neighbours)
    places = set(zip(found.x, found.y, strict=True))
    assert len(places) >= 0.99 * len(neighbours)
    assert all(0 <= v <= 1000 for v in (*found.x, *found.y))


def test_parts_that_are_not_joined_are_drawn_too() -> None:
    apart = [[b for b in range(start, start + 8) if b != a] for start in (0, 8) for a in range(start, start + 8)]
    assert len(set(zip(*vars_of(layout(apart)), strict=True))) == 16


def vars_of(found: Any) -> tuple[list[int], list[int]]:
    return found.x, found.y


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_names_no_other_place_and_lets_only_its_own_script_run(run: RunDir) -> None:
    html = build(run, stories=0).html
    text = re.sub(r'<script type="text/plain".*?</script>', "", html, flags=re.DOTALL)
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {"http://www.w3.org/2000/svg"}
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\son\w+=|style=", text.partition("<body>")[2].partition('<script type="module">')[0])


def test_equal_runs_make_equal_pages(run: RunDir) -> None:
    assert build(run).html == build(run).html


def test_whatever_a_model_said_stands_in_the_page_as_data(made: HandMade) -> None:
    made.task(reply=HOSTILE, id="</script><b>")
    made.add(ev.AgentFailed, node=3, error=HOSTILE, task="</script><b>")
    html = build(made.close()).html
    assert "owned" not in html
    data = blobs(html)
    [block] = [data[name] for name in data if name.startswith("stories ")]
    assert HOSTILE in block["texts"]
    assert [i["text"] for i in data["arm meshheal-0"]["incidents"]] == [HOSTILE]
    html.encode()


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_any_text_comes_through_a_page_unchanged(text: str) -> None:
    html = page(text, [Blob("x", [text])])
    assert blobs(html)["x"] == [text]
    assert html.count("<script") == html.count("</script>") == 2
    html.encode()


def test_a_small_budget_holds_the_stories_that_matter_most_and_says_what_is_missing(made: HandMade) -> None:
    for n in range(3000):
        made.task(reply=Random(n).randbytes(250).hex(), correct=n != 2500)
    run = made.believes(0, 4, "suspect", "excluded", task="t/1234").close()
    report = build(run, stories=400_000)
    stories = blobs(report.html)["overview"]["stories"]
    assert 0 < report.stories < report.tasks == 3000
    assert {"t/1234", "t/2500"} <= set(stories["blocks"]["meshheal-0"])
    assert stories["all"] == 3000
    assert build(run, stories=0).stories == 0


def test_a_story_goes_down_to_prompt_and_reply(run: RunDir) -> None:
    with Reading(about(run), run.log_path("meshheal", 0), "meshheal", 0) as reading:
        task = reading.log.tasks()[3]
        block = story(reading.log, task)
    labels = {label for line in block.stories[task] for label, _ in line.quotes}
    assert {"prompt", "user", "reply"} <= labels
    assert any("settled as" in line.what for line in block.stories[task])


def test_a_log_that_the_run_does_not_have_is_an_error_that_says_which_it_has(run: RunDir) -> None:
    with pytest.raises(UsageError, match=r"has no such log; its methods are meshheal, .*unprotected"):
        build(run, ("vote",))


@pytest.mark.slow
def test_the_command_writes_one_file_and_says_where(run: RunDir, tmp_path: Path) -> None:
    done = command("report", run.path, "--method", "meshheal", "--seed", 0, "--out", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path / 'r.html'}: 2 logs, ")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    failed = command("report", run.path, "--out", tmp_path / "none" / "r.html")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "choose another file with --out" in failed.stderr
