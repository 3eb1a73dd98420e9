"""The benchmark of detection: how it reads delays at equal measured ARL0, and what its oracle is told."""

from __future__ import annotations

import importlib.util
import math
import sys

import pytest
from tiny import ROOT

from meshheal.floor import Scored

PROBE = ("probe", "own")
GOOD, BAD = Scored(PROBE, "a", "k", 1.0), Scored(PROBE, "a", "k", 0.0)


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("detection_benchmark", ROOT / "benchmarks" / "detection.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def quiet(bench, evidence):
    return bench.Traces(0, False, {0: [bench.Step(n, GOOD, e) for n, e in enumerate(evidence)]})


def faulty(bench, evidence, agent=0):
    first = bench.DEGRADED[agent].start
    steps = {a: [] for a in bench.DEGRADED}
    steps[agent] = [bench.Step(first + n, BAD, e) for n, e in enumerate(evidence)]
    return bench.Traces(1, True, steps)


def test_delays_are_read_where_one_false_alarm_in_5000_outputs_is_left(bench):
    calm = [1.0] * 9996
    traces = [quiet(bench, [20.0, 1.0, 20.0, *calm, 300.0])]
    degraded = faulty(bench, [4.0, 19.0, 25.0, 299.0, 400.0])
    reached, delay = bench.at_arl0([*traces, degraded])
    assert (reached.n, reached.mean) == (1, 10_000)  # of three alarms two are the price of a lower threshold
    assert delay.mean == pytest.approx(1.5)  # the third output of agent 0, none of agent 3


def test_one_alarm_is_one_however_long_it_lasts(bench):
    steps = quiet(bench, [1.0, 9.0, 8.0, 9.0, 2.0, 9.0, 1.0, 9.0]).steps[0]
    assert bench._false_alarms(steps, 8.5) == 2


def test_the_oracle_is_told_healthy_scores_from_fault_free_runs_and_degraded_ones_from_the_windows(bench):
    mixed = faulty(bench, [1.0] * 50)
    mixed.steps[0] += [bench.Step(0, BAD, 1.0)] * 500  # before the fault: of no use to either side
    knows = bench.known([quiet(bench, [1.0] * 100), mixed])
    assert knows(BAD) > math.log(50)
    assert knows(GOOD) < -math.log(50)


def test_it_reads_our_records_anew_for_the_oracle_agent_by_agent(bench):
    knows = bench.known([quiet(bench, [1.0] * 100), faulty(bench, [1.0] * 50)])
    again = bench.reread(faulty(bench, [1.0, 1.0, 1.0]), knows)
    assert [s.index for s in again.steps[0]] == [105, 106, 107]
    assert again.steps[0][1].evidence == pytest.approx(again.steps[0][0].evidence ** 2)
    assert again.steps[3] == []
