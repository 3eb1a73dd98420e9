"""Draws docs/pictures/dashboard.png: panels of the dashboards, drawn from the panels' own queries.

    python -m docs.pictures.dashboard RUN [--out FILE]

No Grafana takes part: the run's metrics are taken into a Prometheus of its own, which answers the very queries that the
panels in dashboards/panels.py have, and matplotlib draws the answers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from dashboards.panels import AGENT, EXPERIMENT, NETWORK, Panel
from dashboards.server import Prometheus, backfill, bound, running
from meshheal.folds.openmetrics import Written, export
from meshheal.trace.rundir import open_run

SHOWN = (
    (NETWORK, "Degraded in truth, excluded in belief", "meshheal"),
    (NETWORK, "Accuracy of the last tasks", "meshheal|unprotected"),
    (AGENT, "Truth beside belief", "meshheal"),
    (NETWORK, "Worst suspicion", "meshheal"),
    (NETWORK, "Committee and takeover rate", "meshheal"),
    (EXPERIMENT, "Calls a task", "meshheal"),
)
"""Dashboard, panel, and what its variable `method` is set to."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#999999", "#000000")
"""Okabe and Ito's, told apart by the colour-blind too."""
STEP = 30.0
MOST = 8


def draw(prometheus: Prometheus, written: Written, out: Path) -> None:
    """One picture of all panels shown."""
    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    figure, grid = plt.subplots(3, 2, figsize=(11, 9), dpi=100, layout="constrained")
    for axes, (dashboard, title, methods) in zip(grid.flat, SHOWN, strict=True):
        panel = next(p for p in dashboard.panels() if p.title == title)
        _panel(axes, panel, prometheus, written, methods)
    figure.suptitle("Panels of MeshHeal's dashboards, drawn from their own queries · all models are simulated", fontsize=10)
    figure.savefig(out)
    plt.close(figure)


def _panel(axes: Any, panel: Panel, prometheus: Prometheus, written: Written, methods: str) -> None:
    number = 0
    for query in panel.queries:
        expr = bound(query.expr, method=methods, twin="false", agent="0|3")
        for series in prometheus.over(expr, written.epoch, written.end, STEP):
            if number == MOST:
                break
            hours = [(t - written.epoch) / 3600 for t, _ in series["values"]]
            values = [float(v) for _, v in series["values"]]
            style = {"drawstyle": "steps-post"} if panel.kind == "steps" else {}
            dash = ("-", "--")[number >= len(PALETTE) // 2]
            label = _legend(query.legend, series["metric"])
            axes.plot(hours, values, dash, lw=1.2, color=PALETTE[number], label=label, **style)
            number += 1
    axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=9)
    axes.set_xlabel("virtual hours")
    if panel.log:
        axes.set_yscale("log")
    if panel.unit == "percentunit":
        axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)
    axes.grid(alpha=0.25)


def _legend(legend: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("dashboard.png"))
    given = parser.parse_args()
    run = open_run(given.run, Path("runs"))
    with tempfile.TemporaryDirectory() as folder:
        arms = [arm for arm in run.arms() if arm.method in ("meshheal", "unprotected")]
        with (Path(folder) / "m.om").open("w") as file:
            written = export(run, arms, file, every=STEP)
        backfill(Path(folder) / "m.om", Path(folder) / "data")
        with running(Path(folder) / "data") as prometheus:
            draw(prometheus, written, given.out)


if __name__ == "__main__":
    main()
