"""The experiments that come along: each is a claim, a declaration and a call, and can be prepared."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshheal.cli.run import load
from meshheal.errors import UsageError
from meshheal.experiment import Experiment, prepare
from meshheal.measures import find
from meshheal.suite import Suite
from sim.faults import staggered

FOLDER = Path(__file__).resolve().parents[1] / "experiments"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py"))
STUDIES = (
    "main_table", "ablations", "scaling", "degradation_ladder", "correlated", "bad_reviewers", "flapping",
    "detectors", "model_backed", "churn", "placebo", "symphony_settings", "tuning",
)  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_begins_with_its_claim_and_fits_on_a_screen(script):
    text = script.read_text()
    assert text.startswith('"""Claim: ')
    assert 20 <= len(text.splitlines()) <= 75


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_names_measures_and_labels_that_there_are(name):
    suite = load(str(FOLDER / f"{name}.py"))
    assert isinstance(suite, Suite)
    assert suite.name == name
    assert all(map(find, suite.columns))
    names = [e.name for e in suite.experiments.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", [s for s in STUDIES if s != "scaling"])
def test_the_last_experiment_of_a_study_can_be_prepared_or_says_what_it_lacks(name):
    suite = load(str(FOLDER / f"{name}.py"))
    assert isinstance(suite, Suite)
    label, experiment = list(suite.experiments.items())[-1]
    if label == "harder":
        with pytest.raises(UsageError, match="does not say how hard"):
            prepare(experiment)
    else:
        assert isinstance(experiment, Experiment)
        assert prepare(experiment).natures() == {"simulated"}


def test_in_the_sparse_network_of_576_a_hundredth_of_the_edges_leaves_every_degraded_agent_among_healthy():
    suite = load(str(FOLDER / "scaling.py"))
    assert isinstance(suite, Suite)
    network = prepare(suite.experiments["576-stratified"]).network
    assert network.share_of_complete <= 0.0088
    assert len(network.degraded) == len(network.among_healthy) == 192
    other = prepare(suite.experiments["576-complete"]).network
    assert other.degraded == network.degraded


def test_experiments_with_the_staggered_swaps_have_those_of_staggered_math():
    declared = load(str(FOLDER / "staggered_math.py"))
    assert isinstance(declared, Experiment)
    assert declared.faults == staggered("synthetic/llama-3.2-1b")
