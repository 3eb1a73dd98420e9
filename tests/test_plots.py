"""Plots: each says what its models are, draws every method with its interval, and refuses what it cannot show."""

from __future__ import annotations

import pytest
from test_output import content, suite

from meshheal.errors import UsageError
from meshheal.events import StateChanged, Swapped, TaskArrived
from meshheal.folds.states import StatesOverTime

pytest.importorskip("matplotlib")
from meshheal.output import plots


def said(figure):
    return figure._supxlabel.get_text()


def believed():
    fold = StatesOverTime([[1, 2], [0, 2], [0, 1]])
    seq = 0

    def take(kind, **fields):
        nonlocal seq
        fold(kind(**{"node": -1, "seq": seq, "t": float(seq), **fields}))
        seq += 1

    for index in range(20):
        take(TaskArrived, index=index, entry=0, ability="a")
        if index == 5:
            take(Swapped, agent=0, to="m", index=5, degraded=True)
        if index in (8, 9):
            take(StateChanged, node=index - 7, agent=0, before="healthy", to="excluded", evidence=300.0)
        if index == 12:
            take(Swapped, agent=0, to="m", index=12, degraded=False)
    return fold.result


@pytest.mark.parametrize("kind", ["simulated", "recorded", "live"])
def test_every_plot_says_what_its_models_are(kind):
    one, several = content([kind]), suite(natures=[kind])
    figures = [plots.frontier(one), plots.delays(several), plots.measures(several), plots.states(believed(), "m", one)]
    assert all(said(f).startswith(f"{kind.upper()} MODELS") for f in figures)


def test_the_frontier_shows_each_method_with_intervals_both_ways():
    axis = plots.frontier(content()).axes[0]
    names = axis.get_legend_handles_labels()[1]
    assert names == ["meshheal", "rival", "other"]
    assert all(c.has_xerr and c.has_yerr for c in axis.containers)


def test_the_frontier_joins_what_nothing_beats_in_both():
    assert plots._undominated([(1, 0.5), (2, 0.4), (3, 0.9), (3, 0.8), (9, 0.9)]) == [(1, 0.5), (3, 0.9)]


def test_states_are_shares_of_those_who_watch_the_agent():
    states = believed()
    assert states.steps[0]["excluded"] == [(0, 0.0), (8, 0.5), (9, 1.0)]
    assert [(w.agent, w.at, w.back) for w in states.windows] == [(0, 5, 12)]


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_picture_is_written_in_the_form_of_its_name(tmp_path, form):
    plots.write(plots.delays(content()), tmp_path / "deep" / f"p.{form}")
    start = (tmp_path / "deep" / f"p.{form}").read_bytes()[:8]
    assert start.startswith(b"\x89PNG" if form == "png" else b"<?xml")


def test_what_cannot_be_shown_is_said():
    with pytest.raises(UsageError, match="one experiment"):
        plots.measures(content())
    with pytest.raises(UsageError, match="detectors"):
        plots.operating(content())
