"""A run's model calls become recordings that stand in for its models in the virtual world."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from openai_server import Server, fail, likely, say
from scripted import RIGHT, verdict
from tiny import command, simulated, write_outputs

from meshheal import likelihood, prompts
from meshheal.calls import Binding, Caller
from meshheal.cli.export import export, model_name
from meshheal.errors import UsageError
from meshheal.events import ModelCalled
from meshheal.experiment import Arm, prepare, run_arm
from meshheal.journal import Journal
from meshheal.model import CallKey, Request, Sampling
from meshheal.models import OpenAI
from meshheal.models.served import served
from meshheal.trace.reader import LogFile
from meshheal.trace.recorder import Recorder
from meshheal.trace.rundir import create
from meshheal.types import AnswerForm, Cloze, Message, Task, Usage
from sim.models.recorded import find_recorded, open_recorded

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CAPITAL = Task(
    "capital/1",
    (Message("user", "Capital of France: Paris or Lima?"),),
    AnswerForm("text", ("Paris", "Lima")),
    cloze=Cloze("The capital of France is", (" Paris", " Lima")),
)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def simulated_run(tmp_path_factory):
    """(data folder, run, its log) of one arm of a simulated world."""
    folder = tmp_path_factory.mktemp("export")
    data = write_outputs(folder / "data")
    prepared = prepare(simulated(data, tasks=120, twin=False))
    run = create(folder / "runs", "tiny", NOW, {"name": "tiny"})
    path = run.log_path("meshheal", 0)
    run_arm(prepared, Arm("meshheal", 0), path)
    export([str(run.path)], data / "ours.jsonl", out=folder / "runs")
    return data, run, path


def test_every_answer_of_a_run_is_a_sample_of_its_item(simulated_run):
    data, _, path = simulated_run
    lines = read(data / "ours.jsonl")
    with LogFile(path) as log:
        calls = [c for _, c in log.calls() if c.purpose in ("produce", "probe", "takeover")]
        texts = [log.text(c.replies[0]) for c in calls]
    answers = [line for line in lines if line["purpose"] in ("produce", "probe", "takeover")]
    assert [line["text"] for line in answers] == texts
    assert [line["usage"]["prompt"] for line in answers] == [c.usage.prompt for c in calls]
    assert sum(line["usage"]["completion"] for line in answers) == sum(c.usage.completion for c in calls)
    assert not [line for line in lines if "#" in line["item"]]


def test_what_was_simulated_says_so_in_its_name_and_its_nature(simulated_run):
    lines = read(simulated_run[0] / "ours.jsonl")
    assert {line["model"] for line in lines} >= {"synthetic-gpt-oss-120b", "synthetic-llama-3.2-1b"}
    assert {line["nature"] for line in lines} == {"simulated"}
    assert model_name("openai/healthy") == "healthy"
    assert model_name("openai/meta-llama/Llama-3") == "meta-llama-Llama-3"


def test_the_recording_runs_in_the_virtual_world_and_is_still_called_simulated(simulated_run):
    data, _, _ = simulated_run
    e = simulated(
        data,
        tasks=40,
        healthy="recorded/synthetic-gpt-oss-120b",
        outside="recorded/synthetic-gpt-oss-120b",
        faults=(),
        twin=False,
    )
    prepared = prepare(e)
    assert prepared.natures() == {"simulated"}
    result = run_arm(prepared, Arm("meshheal", 0), None)
    assert (result.tasks, result.failures) == (40, 0)
    assert result.accuracy_healthy > 0.5


def test_an_item_that_a_model_never_answered_is_not_in_its_world(simulated_run):
    data, _, _ = simulated_run
    names = ("recorded/synthetic-gpt-oss-120b", "recorded/synthetic-llama-3.2-1b")
    prepared = prepare(simulated(data, tasks=20, healthy=names, outside=names[0], faults=(), twin=False))
    lines = [line for line in read(data / "ours.jsonl") if line["purpose"] in ("produce", "probe")]
    each = [{line["item"] for line in lines if line["model"] == n.removeprefix("recorded/")} for n in names]
    kept = {task.id for tasks in prepared.workload.pool.values() for task in tasks}
    assert kept == each[0] & each[1]
    assert "which all the recorded models answered" in prepared.workload.source


def live_run(folder, work, *behaviours):
    """Calls of one live model, logged as a run's: `work(caller)` makes them."""
    run = create(folder / "runs", "live", NOW, {"name": "live"})
    with Server(*behaviours) as server, Recorder(run.log_path("meshheal", 0), {}) as log:

        async def go():
            m = OpenAI("tiny", served("tiny", {"endpoints": [server.url], "attempts": 1}))
            await work(Caller(0, Binding({"any": m}, m), None, Journal(0, log, lambda: 0.0), 600.0, 100))
            await m.aclose()

        asyncio.run(go())
        log.close()
    to = folder / "live.jsonl"
    export([str(run.path)], to, out=folder / "runs")
    return to


def ask(model, messages, purpose="review", score=""):
    request = Request(messages, Sampling(), CallKey(CAPITAL.id, 3, purpose, 1), score)
    return asyncio.run(model.complete(request))


def opened(to):
    name, paths = find_recorded("tiny", to)
    return open_recorded(name, paths, {CAPITAL.id: CAPITAL}, 0)


@pytest.mark.server
def test_a_live_run_becomes_a_model_with_its_answers_and_its_reviews_of_the_same_answers(tmp_path):
    async def work(caller):
        for n in range(3):
            await caller.call("produce", "any", CAPITAL.id, 0, CAPITAL.messages, n=n)
        await caller.call("review", "any", CAPITAL.id, 1, prompts.review(CAPITAL, "It is Lima."))
        await caller.call("deliberate", "any", CAPITAL.id, 1, prompts.deliberate(CAPITAL, "It is Lima.", []))
        await caller.call("produce", "any", CAPITAL.id, 0, CAPITAL.messages, n=3)

    odd = verdict(0.31, "odd")
    answers = ["The answer is Paris.", "Paris", "I think Paris."]
    to = live_run(tmp_path, work, *[say(a) for a in answers], say(odd), say(odd), fail(500))
    lines = read(to)
    assert [line["text"] for line in lines] == [*answers, odd]
    assert {line["nature"] for line in lines} == {"live"}
    assert {line["usage"]["completion"] for line in lines} == {7}
    model = opened(to)
    assert model.nature == "recorded"
    assert ask(model, CAPITAL.messages, "produce").texts[0] in answers
    assert ask(model, prompts.review(CAPITAL, "It is Lima.")).texts == (odd,)
    assert ask(model, prompts.review(CAPITAL, "The answer is Paris.")).texts != (odd,)


@pytest.mark.server
def test_likelihoods_are_recorded_and_only_what_was_asked_can_be_asked_again(tmp_path):
    asked = likelihood.endings(CAPITAL.cloze)

    async def work(caller):
        await caller.call("review", "any", CAPITAL.id, 1, asked, score="endings")
        await caller.call("produce", "any", CAPITAL.id, 0, CAPITAL.messages)

    to = live_run(tmp_path, work, likely({"Paris": -1.0}), say("Paris"))
    model = opened(to)
    done = ask(model, asked, score="endings")
    assert likelihood.read_endings(done.texts[0], CAPITAL.cloze) == (-1.0, -5.0)
    with pytest.raises(UsageError, match=r"review\.by=sampling"):
        ask(model, likelihood.endings(Cloze("The capital of Peru is", (" Paris", " Lima"))), score="endings")


def test_several_samples_of_one_request_share_its_tokens_out(tmp_path):
    run = create(tmp_path / "runs", "r", NOW, {})
    with Recorder(run.log_path("m", 0), {}) as log:
        texts = tuple([log.text(t) for t in (RIGHT, "b", "c")])
        prompt = (("user", log.text("Q?")),)
        log.write(
            ModelCalled(
                node=0,
                seq=1,
                t=0.0,
                task="x/1#2",
                model="openai/m",
                purpose="produce",
                subject=0,
                n=0,
                prompt=prompt,
                prompt_hash="h",
                replies=texts,
                usage=Usage(10, 11),
            )
        )
        log.close()
    export([str(run.path)], tmp_path / "x.jsonl", out=tmp_path)
    lines = read(tmp_path / "x.jsonl")
    assert [line["usage"]["completion"] for line in lines] == [4, 4, 3]
    assert {line["item"] for line in lines} == {"x/1"}


@pytest.mark.slow
def test_the_command_exports_and_says_what_it_exported(simulated_run, tmp_path):
    _, run, _ = simulated_run
    done = command("export", run.path, "--as", "recorded", tmp_path / "again.jsonl")
    assert done.returncode == 0, done.stderr
    assert "recorded/synthetic-gpt-oss-120b" in done.stdout
    assert read(tmp_path / "again.jsonl")


@pytest.mark.parametrize(
    ("to", "options", "said"),
    [
        ("x.json", {}, "ends in .jsonl"),
        ("x.jsonl", {"kind": "played"}, "recorded only"),
        ("x.jsonl", {"method": "nix"}, "no log to export of method 'nix'"),
        ("no/such/folder/x.jsonl", {}, "No such file"),
        ("/dev/null/x.jsonl", {}, "Not a directory"),
    ],
)
def test_what_cannot_be_exported_is_one_clear_line_and_leaves_nothing(simulated_run, tmp_path, to, options, said):
    _, run, _ = simulated_run
    with pytest.raises(UsageError, match=said):
        export([str(run.path)], tmp_path / to, out=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
