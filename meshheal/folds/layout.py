"""What the metrics fold must know of an arm beforehand: graph, clock, models, labels. Read from the run's declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from meshheal.config import Metrics as Settings
from meshheal.trace.rundir import SUITE, RunDir
from meshheal.types import AgentId


class Layout(Struct, frozen=True):
    """What the fold must know of a run beforehand.

    `neighbours` and `abilities` are indexed by agent; `natures` says of each model whether it is simulated, recorded or
    live (those it does not name count as simulated). `labels` are the values of `catalogue.ARM_LABELS`.
    """

    labels: tuple[str, ...]
    info: tuple[str, ...]
    """Values of the labels of meshheal_run_info."""
    clock: Literal["virtual", "wall"]
    neighbours: Sequence[Sequence[AgentId]]
    abilities: Sequence[Sequence[str]]
    natures: Mapping[str, str]
    top_agents: int
    window: int


def run_label(run: RunDir) -> str:
    """A run's name; of an experiment inside a study of several, STUDY/LABEL."""
    return f"{run.path.parent.name}/{run.name}" if (run.path.parent / SUITE).is_file() else run.name


def layout(run: RunDir, header: Mapping[str, Any]) -> Layout:
    """The layout of one arm, from experiment.json and the header of its log."""
    experiment = run.experiment
    graph = experiment["topology"]
    settings = Settings.model_validate(experiment.get("settings", {}).get("metrics", {}))
    natures = dict(header.get("natures", {}))
    clock: Literal["virtual", "wall"] = "wall" if header.get("clock") == "wall" else "virtual"
    return Layout(
        labels=(run_label(run), str(header["method"]), str(bool(header.get("twin"))).lower(), str(header["seed"])),
        info=(
            str(header["experiment"]),
            clock,
            "+".join(sorted(set(natures.values()))) or "simulated",
            str(header["topology"]["name"]),
            str(header["workload"]["name"]),
        ),
        clock=clock,
        neighbours=graph["neighbours"],
        abilities=graph["abilities"],
        natures=natures,
        top_agents=settings.top_agents,
        window=settings.window,
    )
