"""results.json: twins, summaries over seeds, restricted means, and only numbers that JSON knows."""

from __future__ import annotations

import json

import pytest

from meshheal.folds.summary import Detection, Reintegration, SeedResult
from meshheal.measures import restricted
from meshheal.results import results, summarise


def seed(n, degraded=0.8, **fields):
    return SeedResult(n, accuracy_healthy=0.9, accuracy_degraded=degraded, tasks=100, **fields)


def one(runs, twins=(), natures=("simulated",)):
    return results("e", {"m": list(runs)}, {"m": list(twins)}, natures)


def test_the_twins_accuracy_stands_beside_each_seeds():
    found = one([seed(0), seed(1, 0.7)], [seed(1, 0.9), seed(0, 0.85)])
    assert [s["accuracy_twin"] for s in found["arms"]["m"]["per_seed"]] == [0.85, 0.9]
    gap = found["arms"]["m"]["summary"]["degraded_minus_twin"]
    assert gap["mean"] == pytest.approx(-0.125)
    assert gap["n"] == 2


def test_every_metric_has_mean_sd_interval_and_n():
    for value in one([seed(0), seed(1)])["arms"]["m"]["summary"].values():
        assert set(value) == {"mean", "sd", "ci95", "n"}
        assert len(value["ci95"]) == 2


def test_nothing_in_it_is_infinite_or_not_a_number():
    found = one([seed(0, detection=[Detection(0, 0, 5)], observations_healthy=100)])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_censored_delay_enters_the_mean_at_the_length_of_its_window():
    detections = [
        Detection(0, 0, 105, delay_tasks=10, window_tasks=210),
        Detection(0, 0, 105, window_tasks=210, reason="censored"),
    ]
    assert [restricted(d) for d in detections] == [10.0, 210.0]
    s = summarise([seed(0, detection=detections[:1]), seed(1, detection=detections[1:])])
    assert s["detection_tasks"]["mean"] == 110.0
    assert s["detection_tasks.agent_0"]["mean"] == 110.0
    assert s["detected"]["mean"] == 0.5


def test_an_episode_of_an_agent_that_was_out_already_says_nothing_about_detection():
    s = summarise([seed(0, detection=[Detection(0, 0, 5, reason="already_excluded", window_tasks=9)])])
    assert "detected" not in s


def test_who_was_never_excluded_does_not_enter_the_rate_of_returns():
    back = [Reintegration(0, 0, 315, reason="not_excluded"), Reintegration(3, 0, 420, delay_tasks=12)]
    s = summarise([seed(0, reintegration=back)])
    assert s["reintegrated"]["n"] == 1
    assert s["reintegration_tasks"]["mean"] == 12.0


def test_rates_over_tasks_and_exposure_are_pooled_over_seeds():
    s = summarise([seed(0, no_answer=3), seed(1, no_answer=1)])
    assert s["no_answer_rate"]["mean"] == pytest.approx(4 / 200)


def test_false_exclusions_of_the_twin_count_towards_arl0():
    runs = [seed(0, detection=[Detection(0, 0, 5, delay_tasks=1)], observations_healthy=4000, false_exclusions=1)]
    twins = [seed(0, observations_healthy=6000, false_exclusions=1)]
    assert one(runs, twins)["arms"]["m"]["summary"]["arl0_outputs"]["mean"] == pytest.approx(5000)


def test_a_run_with_an_exception_in_an_agent_is_not_valid_in_twins_either():
    assert one([seed(0)])["valid"] is True
    assert one([seed(0, failures=1)])["valid"] is False
    assert one([seed(0)], [seed(0, failures=1)])["valid"] is False
    assert one([])["valid"] is False


@pytest.mark.parametrize(
    ("natures", "mode", "reviews", "tokens"),
    [
        ({"simulated"}, "simulated", "simulated", "estimated"),
        ({"recorded"}, "recorded", "simulated", "estimated"),
        ({"recorded", "simulated"}, "recorded", "simulated", "estimated"),
        ({"live"}, "live", "live", "measured"),
    ],
)
def test_it_says_what_was_simulated(natures, mode, reviews, tokens):
    found = one([seed(0)], natures=natures)
    assert (found["mode"], found["reviews"], found["tokens"]) == (mode, reviews, tokens)


def test_it_says_where_a_server_did_not_count_its_tokens():
    live = ("live",)
    assert one([seed(0, calls_estimated=1), seed(1)], natures=live)["tokens"] == "partly estimated"
    assert one([seed(0)], [seed(0, calls_estimated=1)], natures=live)["tokens"] == "partly estimated"


def test_a_single_seed_has_no_interval():
    value = one([seed(0)])["arms"]["m"]["summary"]["accuracy_degraded"]
    assert (value["mean"], value["ci95"], value["n"]) == (0.8, [None, None], 1)
