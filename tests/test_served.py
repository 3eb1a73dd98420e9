"""Where a model is served, as users say it: options, files, experiments; and what is refused."""

from __future__ import annotations

import pickle

import pytest
from msgspec.structs import replace
from openai_server import Server
from tiny import command, simulated, write_outputs, write_script

from meshheal.cli.run import Changes, adapt, overrides, serving
from meshheal.errors import ModelError, UsageError
from meshheal.experiment import prepare
from meshheal.models import Served
from meshheal.models.served import named, served
from sim.models import resolve

URL = "http://127.0.0.1:8000/v1"
TOML = """
[models.healthy]
endpoints = ["http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1/"]
served_as = "llama"
key_env = "LLAMA_KEY"
max_concurrent = 16

[models."openai/degraded"]
endpoints = "http://10.0.0.3:8000/v1"
served_as = "llama"

[detector]
drop = 0.1
"""


@pytest.fixture
def e(tmp_path):
    return simulated(write_outputs(tmp_path / "data"), tasks=60)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(TOML)
    return path


def test_an_option_names_a_model_and_its_endpoints():
    found = named([f"llama={URL},http://10.0.0.1/v1/", "openai/other=https://api.example.com/v1"])
    assert found["llama"].endpoints == (URL, "http://10.0.0.1/v1")
    assert found["other"].endpoints == ("https://api.example.com/v1",)


def test_a_file_names_models_beside_the_settings(e, file):
    assert set(serving(e, None, file).endpoints) == {"healthy", "degraded"}
    healthy = serving(e, None, file).served()["healthy"]
    assert healthy.endpoints == ("http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1")
    assert (healthy.served_as, healthy.key_env, healthy.max_concurrent) == ("llama", "LLAMA_KEY", 16)
    assert overrides({}, [], file) == {"detector": {"drop": 0.1}}


def test_the_command_line_moves_a_model_and_leaves_the_rest_of_it(e, file):
    found = serving(e, [f"healthy={URL}"], file).served()
    assert found["healthy"] == Served(endpoints=(URL,), served_as="llama", key_env="LLAMA_KEY", max_concurrent=16)
    assert found["degraded"].endpoints == ("http://10.0.0.3:8000/v1",)


def test_an_experiment_names_models_by_url_or_in_full(tmp_path):
    data = write_outputs(tmp_path / "data")
    full = Served(endpoints=(URL,), served_as="llama")
    found = simulated(data, endpoints={"a": URL, "openai/b": [URL, "http://h/v1"], "c": full}).served()
    assert found["a"] == Served(endpoints=(URL,))
    assert found["b"].endpoints == (URL, "http://h/v1")
    assert found["c"] == full


def test_what_is_served_where_is_declared_and_can_be_sent_to_workers(tmp_path):
    e = simulated(write_outputs(tmp_path / "data"), endpoints={"a": Served(endpoints=(URL,), body={"seed": 1})})
    assert list(e.declaration()["endpoints"]["a"]["endpoints"]) == [URL]
    assert pickle.loads(pickle.dumps(e)) == e


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "no endpoint"),
        ("ftp://h/v1", "no endpoint; write http"),
        ("localhost:8000", "no endpoint; write http"),
        ("http://h:99999/v1", "no endpoint; write http"),
        (f"{URL},{URL}/", "given twice"),
        ({"endpoints": [URL], "max_concurrent": 0}, "max_concurrent"),
        ({"endpoints": [URL], "attempts": -1}, "attempts"),
        ({"endpoints": [URL], "timeout": float("inf")}, "timeout"),
        ({"endpoints": [URL], "deadline": float("nan")}, "deadline"),
        ({"endpoints": [URL], "max_tokens": 0}, "max_tokens"),
        ({"endpoints": [URL], "answers": "telepathy"}, "answers"),
        ({"endpoints": [URL], "api_key": "x"}, "api_key"),
        ({"endpoints": [URL], "body": {"api_key": "x"}}, "environment only"),
        ({"served_as": "m"}, "endpoints"),
        ({"endpoints": 3}, "endpoints"),
    ],
)
def test_what_can_be_no_server_is_refused_in_one_line_that_says_why(given, said):
    with pytest.raises(UsageError, match=said) as caught:
        served("m", given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pair", ["", "m", "m=", "=http://h/v1"])
def test_an_option_that_names_nothing_is_refused(pair):
    with pytest.raises(UsageError, match="NAME=URL"):
        named([pair])


def test_a_table_that_is_none_is_refused(e, tmp_path):
    (path := tmp_path / "s.toml").write_text('models = "x"\n')
    with pytest.raises(UsageError, match="one table a model"):
        serving(e, None, path)


def test_a_live_model_without_an_endpoint_says_how_to_give_one(e):
    workload = prepare(e).workload
    with pytest.raises(UsageError, match=r"add --endpoint llama=http"):
        resolve("openai/llama", workload, {}, 0)


def test_reviews_by_likelihood_want_real_models(e):
    with pytest.raises(UsageError, match=r"synthetic/gpt-oss-120b is simulated.*openai/NAME"):
        prepare(adapt(e, Changes(settings=("review.by=likelihood",))))


@pytest.mark.server
def test_live_models_are_looked_at_once_before_a_run(e):
    with Server(models=("m",)) as server:
        live = adapt(e, Changes(healthy="openai/a", degraded="openai/b"))
        where = {n: {"endpoints": [server.url], "served_as": "m"} for n in ("a", "b")}
        prepared = prepare(replace(live, endpoints=where))
        assert "live" in prepared.natures()
        assert server.asked == []
    with pytest.raises(ModelError, match="openai/a"):
        prepare(prepared.experiment)


@pytest.mark.server
@pytest.mark.slow
def test_a_server_that_is_down_ends_the_command_with_4_and_one_without_the_model_with_2(tmp_path):
    script = write_script(tmp_path)
    arguments = (
        "run",
        script,
        "--seeds",
        1,
        "--parallel",
        0,
        "--healthy",
        "openai/m",
        "--out",
        tmp_path / "runs",
        "--endpoint",
    )
    with Server(models=("other",)) as server:
        lacking = command(*arguments, f"m={server.url}")
    down = command(*arguments, f"m={server.url}")
    assert (lacking.returncode, down.returncode) == (2, 4)
    for done in (lacking, down):
        assert done.stderr.count("\n") == 1, done.stderr
    assert "serves no 'm', but: other" in lacking.stderr
    assert "cannot be reached" in down.stderr
