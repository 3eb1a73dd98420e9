"""A whole experiment on models behind servers: two served under one name, of which one answers badly."""

from __future__ import annotations

import json
import re

import pytest
from aiohttp import web
from openai_server import Server, completion, raw
from scripted import verdict
from tiny import LETTERS, command, environment, write_script

from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import open_run

pytestmark = [pytest.mark.server, pytest.mark.slow]

KEY = "sk-never-to-be-seen-4712"


def solver(right):
    """Serves made-up MMLU-Pro: answers right or wrong, reviews by the right letter, and has a prefix cache of its own."""
    seen: set[str] = set()

    async def behave(ask) -> web.StreamResponse:
        messages = ask.body["messages"]
        gold = LETTERS[int(re.search(r"question (\d+)\?", messages[0]["content"]).group(1)) % 10]
        if messages[-1]["content"] != messages[0]["content"] and "JSON object" in messages[-1]["content"]:
            text = verdict(0.95 if f"({gold})" in messages[1]["content"] else 0.05)
        else:
            letter = gold if right else LETTERS[(LETTERS.index(gold) + 1) % 10]
            text = f"The answer is ({letter})."
        cached = 80 if messages[0]["content"] in seen else 0
        seen.add(messages[0]["content"])
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": cached}}
        return raw(json.dumps(completion(ask, *[text] * ask.body.get("n", 1), usage=usage)))

    return behave


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """(results, run directory, folder) of a live run by the command."""
    folder = tmp_path_factory.mktemp("live")
    script = write_script(folder, tasks=120)
    with Server(solver(True)) as healthy, Server(solver(False)) as degraded:
        (folder / "models.toml").write_text(
            f"""
[models.healthy]
endpoints = ["{healthy.url}"]
served_as = "m"
key_env = "LIVE_KEY"

[models.degraded]
endpoints = ["{degraded.url}"]
served_as = "m"
key_env = "LIVE_KEY"
"""
        )
        text = script.read_text().replace(", 120)", ', 120, outside="openai/healthy", seeds=1, twin=False)')
        script.write_text(text)
        done = command(
            "run",
            script,
            "--json",
            "--config",
            folder / "models.toml",
            "--healthy",
            "openai/healthy",
            "--degraded",
            "openai/degraded",
            "--methods",
            "meshheal",
            "--out",
            folder / "runs",
            "--parallel",
            0,
            env=environment(LIVE_KEY=KEY, OPENAI_LOG="debug"),
        )
        assert done.returncode == 0, done.stderr
        sent = {a.headers["Authorization"] for a in (*healthy.asked, *degraded.asked)}
        assert sent == {f"Bearer {KEY}"}
        assert degraded.asked
    return json.loads(done.stdout), open_run("latest", folder / "runs"), folder, done


def test_it_is_marked_live_and_its_tokens_are_the_servers_own(live):
    results = live[0]
    assert (results["mode"], results["reviews"], results["tokens"], results["valid"]) == (
        "live",
        "live",
        "measured",
        True,
    )
    (seed,) = results["arms"]["meshheal"]["per_seed"]
    assert seed["tokens_per_task"] == pytest.approx(110 * seed["calls_per_task"])


def test_the_bad_server_is_found_though_it_has_the_good_ones_name(live):
    (seed,) = live[0]["arms"]["meshheal"]["per_seed"]
    assert [d["delay_tasks"] is not None for d in seed["detection"]] == [True, True]
    assert seed["accuracy_degraded"] > 0.9


def test_the_hit_rate_of_reviews_in_the_prefix_cache_is_in_the_results(live):
    (seed,) = live[0]["arms"]["meshheal"]["per_seed"]
    rates = seed["prefix_cache_hit_rate"]
    assert rates["review"] > rates["produce"]
    assert 0.5 < rates["review"] <= 0.8


def test_the_key_stands_in_nothing_that_was_written_or_printed(live):
    _, run, folder, done = live
    assert KEY not in done.stdout + done.stderr
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    for arm in run.arms():
        with LogFile(run.log_path(*arm)) as log:
            for event in log.events():
                assert KEY not in repr(event)
            texts = {id for _, call in log.calls() for id in (*call.replies, *(t for _, t in call.prompt))}
            assert not [id for id in texts if KEY in log.text(id)]


def test_what_it_recorded_runs_in_the_virtual_world(live):
    _, run, folder, _ = live
    exported = command("export", run.path, "--as", "recorded", folder / "data" / "live.jsonl")
    assert exported.returncode == 0, exported.stderr
    script = folder / "again.py"
    text = (folder / "tiny_experiment.py").read_text()
    script.write_text(text.replace("openai/", "recorded/"))
    done = command(
        "run",
        script,
        "--json",
        "--healthy",
        "recorded/healthy",
        "--degraded",
        "recorded/degraded",
        "--methods",
        "meshheal",
        "--out",
        folder / "runs",
        "--parallel",
        0,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["mode"] == "recorded"
    (seed,) = results["arms"]["meshheal"]["per_seed"]
    assert seed["tasks"] == 120
    assert [d["delay_tasks"] is not None for d in seed["detection"]] == [True, True]
