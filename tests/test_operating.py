"""Detectors on a stored evidence stream: it is what the network saw, and alarms and delays are counted as they should be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import tiny
from tiny import write_outputs

from meshheal.events import SuspicionMoved
from meshheal.floor import Scored
from meshheal.operating import FILE, Observed, Run, compare_detectors, curve, observed
from meshheal.output.plots import operating as plotted
from meshheal.output.tables import operating as tabled
from meshheal.suite import Suite, SuiteStudy
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import read_json


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    data = write_outputs(tmp_path_factory.mktemp("data"))
    common = {"methods": ("meshheal",), "twin": False, "settings": {"detector": {"exclude_at": 1e9}}}
    suite = Suite(
        name="detectors",
        experiments={
            "quiet": tiny.simulated(data, 200, name="quiet", faults=(), **common),
            "faulty": tiny.simulated(data, 120, name="faulty", **common),
        },
        after=compare_detectors,
    )
    made = SuiteStudy.start(suite, tmp_path_factory.mktemp("runs"), datetime(2026, 1, 1, tzinfo=UTC))
    made.run(0, [lambda _a, _v: None] * 2)
    return made


def test_the_stream_is_what_the_observer_saw(study):
    faulty = study.studies["faulty"]
    arm = faulty.experiment.arms()[0]
    log_path = faulty.directory.log_path(arm.label, arm.seed)
    run = observed(faulty.prepared, arm, log_path)
    with LogFile(log_path) as log:
        moved = [e for e in log.events() if isinstance(e, SuspicionMoved) and e.node == 0]
    assert moved
    for event in moved:
        assert event.evidence in [o.evidence for o in run.streams[event.agent]]
    assert run.windows == [(0, 20, 60), (3, 40, 80)]


def test_every_detector_has_a_curve_and_says_that_its_models_are_simulated(study):
    content = read_json(study.path / FILE)
    assert {"oracle", "meshheal (as used)", "e-cusum", "ewma", "fixed-threshold"} <= set(content["curves"])
    assert content["curves"]["e-cusum"]
    assert "simulated models" in tabled(content).title
    pytest.importorskip("matplotlib")
    assert plotted(content)._supxlabel.get_text().startswith("SIMULATED MODELS")


def stream(evidence, first=0):
    one = Scored(("probe", "own"), "a", "k", 1.0)
    return [Observed(first + n, one, 1.0, e) for n, e in enumerate(evidence)]


def test_an_alarm_counts_again_only_after_the_evidence_was_gone_and_a_delay_that_never_came_is_censored():
    path = [1.0, 9.0, 8.0, 9.0, 1.2, 9.5, *[1.0] * 194]
    quiet = [Run(0, {0: stream(path)}, [])]
    found = Run(1, {0: stream([1.0, 1.0, 9.2, 9.2])}, [(0, 2, 4)])
    never = Run(2, {0: stream([1.0, 1.0, 1.1, 1.1])}, [(0, 2, 4)])

    def as_is(one):
        return [o.evidence for o in one]

    (point,) = curve(as_is, quiet, [found, never], targets=(40,))
    assert (point.arl0.mean, point.arl0.n) == (100.0, 2)
    assert (point.detected, point.episodes) == (1, 2)
    assert point.delay.mean == pytest.approx(1.5)


def test_an_arl0_that_the_exposure_cannot_support_is_not_claimed():
    quiet = [Run(0, {0: stream([1.0] * 100)}, [])]
    assert curve(lambda one: [o.evidence for o in one], quiet, [], targets=(1000,)) == []
