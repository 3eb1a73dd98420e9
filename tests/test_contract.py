"""results.json is a contract: every key that it promises, with its type, in the file and on standard output."""

from __future__ import annotations

import json

import pytest
from tiny import command, write_script

from meshheal.methods import find
from meshheal.trace.rundir import open_run

NUMBER = (int, float)
MAYBE = (int, float, type(None))
REASON = {None, "censored", "already_excluded", "not_excluded"}

TOP = {
    "schema_version": int,
    "experiment": str,
    "valid": bool,
    "mode": str,
    "reviews": str,
    "tokens": str,
    "seeds": list,
    "arms": dict,
}
PER_SEED = {
    "seed": int,
    "accuracy_healthy": MAYBE,
    "accuracy_degraded": MAYBE,
    "accuracy_twin": MAYBE,
    "tokens_per_task": NUMBER,
    "tokens_by_purpose": dict,
    "calls_per_task": NUMBER,
    "probe_calls_per_task": NUMBER,
    "detection": list,
    "reintegration": list,
    "false_exclusions": int,
    "observations_healthy": int,
    "premature_reintegrations": int,
    "ordinary_tasks_while_excluded": int,
    "no_answer": int,
    "unscored": int,
    "outcomes": dict,
    "event_hash": str,
    "prefix_cache_hit_rate": (dict, type(None)),
}
DETECTION = {
    "agent": int,
    "episode": int,
    "onset_task": int,
    "delay_tasks": (int, type(None)),
    "delay_first_observer": (int, type(None)),
    "delay_outputs": (int, type(None)),
    "delay_seconds": MAYBE,
    "reason": (str, type(None)),
}
REINTEGRATION = {
    "agent": int,
    "episode": int,
    "recovered_task": int,
    "delay_tasks": (int, type(None)),
    "delay_seconds": MAYBE,
    "reason": (str, type(None)),
}
SUMMARY = {"mean": MAYBE, "sd": MAYBE, "ci95": list, "n": int}


def has(found, promised):
    for key, kind in promised.items():
        assert key in found, key
        kinds = kind if isinstance(kind, tuple) else (kind,)
        assert isinstance(found[key], kinds), (key, found[key])
        assert not (isinstance(found[key], bool) and bool not in kinds), (key, found[key])


@pytest.fixture(scope="module", params=["simulated", "recorded"])
def done(request, tmp_path_factory):
    """A run with --json in a process of its own: (what it printed, its directory, its mode)."""
    folder = tmp_path_factory.mktemp("contract")
    script = write_script(folder, request.param, tasks=90)
    ran = command(
        "run",
        script,
        "--json",
        "--out",
        folder / "runs",
        "--seeds",
        2,
        "--display",
        "plain",
        "--parallel",
        0,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    return ran, open_run("latest", folder / "runs"), request.param


def test_standard_output_is_exactly_the_results_and_all_else_is_on_standard_error(done):
    ran, directory, _ = done
    assert json.loads(ran.stdout) == directory.results
    assert "accuracy" in ran.stderr
    assert "run directory" in ran.stderr


def test_the_results_have_every_key_of_the_contract(done):
    found, kind = done[1].results, done[2]
    has(found, TOP)
    assert found["mode"] == kind
    assert found["reviews"] == "simulated"
    assert found["tokens"] == "estimated"
    assert found["valid"] is True
    assert found["seeds"] == [0, 1]
    assert set(found["arms"]) == {"meshheal", "unprotected"}


def test_every_seed_has_every_key_of_the_contract(done):
    for arm in done[1].results["arms"].values():
        assert set(arm) == {"per_seed", "summary"}
        assert [s["seed"] for s in arm["per_seed"]] == [0, 1]
        for seed in arm["per_seed"]:
            has(seed, PER_SEED)
            assert sum(seed["outcomes"].values()) == 90
            assert seed["event_hash"]
            assert seed["prefix_cache_hit_rate"] is None  # no server, no cache
            assert sum(seed["tokens_by_purpose"].values()) == pytest.approx(seed["tokens_per_task"])
            for accuracy in ("accuracy_healthy", "accuracy_degraded", "accuracy_twin"):
                assert 0.0 <= seed[accuracy] <= 1.0


def test_every_episode_has_every_key_and_a_delay_that_did_not_happen_is_null_with_its_reason(done):
    for arm in done[1].results["arms"].values():
        for seed in arm["per_seed"]:
            assert [(d["agent"], d["episode"], d["onset_task"]) for d in seed["detection"]] == [(0, 0, 15), (3, 0, 30)]
            assert [(b["agent"], b["recovered_task"]) for b in seed["reintegration"]] == [(0, 45), (3, 60)]
            for promised, episodes in ((DETECTION, seed["detection"]), (REINTEGRATION, seed["reintegration"])):
                for episode in episodes:
                    has(episode, promised)
                    assert episode["reason"] in REASON
                    assert (episode["delay_tasks"] is None) == (episode["reason"] is not None)


def test_without_protection_nothing_is_detected_and_that_is_censored(done):
    for seed in done[1].results["arms"]["unprotected"]["per_seed"]:
        assert {d["reason"] for d in seed["detection"]} == {"censored"}
        assert {b["reason"] for b in seed["reintegration"]} == {"not_excluded"}


def test_every_metric_of_the_summary_has_its_interval(done):
    for method, arm in done[1].results["arms"].items():
        assert {"accuracy_degraded", "tokens_per_task", "calls_per_task"} <= set(arm["summary"])
        assert ("false_exclusions" in arm["summary"]) == find(method).excludes
        for metric, value in arm["summary"].items():
            assert set(value) == set(SUMMARY), metric
            has(value, SUMMARY)
            assert len(value["ci95"]) == 2
            assert all(isinstance(b, MAYBE) for b in value["ci95"])


def test_the_json_is_json_without_nan_or_infinity(done):
    def refuse(name):
        raise AssertionError(name)

    assert json.loads(done[0].stdout, parse_constant=refuse)["arms"]
