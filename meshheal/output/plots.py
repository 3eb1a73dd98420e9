"""Plots with intervals. Each says in the picture whether its models are simulated, recorded or live."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshheal.errors import UsageError
from meshheal.folds.states import SHOWN, States
from meshheal.measures import episodes, find, waits
from meshheal.output.tables import marked, tuned
from meshheal.results import read_arms
from meshheal.stats import survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers too. Markers change with every round of it.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_STATE_COLOURS = {"suspect": "#E69F00", "excluded": "#D55E00", "probation": "#56B4E9"}
_WIDE = 4


def style(n: int) -> tuple[str, str]:
    """Colour and marker of the n-th series: the same series looks the same in every panel."""
    return _COLOURS[n % len(_COLOURS)], _MARKERS[(n // len(_COLOURS) + n) % len(_MARKERS)]


def canvas(panels: int, width: float = 5.2, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """A figure with room for so many panels. Raises `UsageError` without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("plots need matplotlib: pip install 'meshheal[plots]'") from error
    columns = min(panels, 3 if panels != _WIDE else 2)
    rows = ceil(panels / columns)
    made = Figure(figsize=(width * columns, height * rows + 0.7), layout="constrained")
    axes = made.subplots(rows, columns, squeeze=False)
    flat = [a for row in axes for a in row]
    for spare in flat[panels:]:
        spare.remove()
    for axis in flat[:panels]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return made, flat[:panels]


def say(figure: Figure, contents: Sequence[Mapping[str, Any]], more: str = "") -> None:
    """Write below the picture what kind of models its figures are of, from how many seeds, and what the bars are."""
    modes = " and ".join(sorted({c["mode"] for c in contents}))
    seeds = sorted({len(c["seeds"]) for c in contents})
    n = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    tokens = " and ".join(sorted({c["tokens"] for c in contents}))
    line = f"{modes.upper()} MODELS · {n} seed{'s' * (seeds[-1] != 1)} · tokens {tokens}"
    line = " · ".join([line, *dict.fromkeys(said for c in contents for said in tuned(c))])
    # Supxlabel takes part in the layout, which a plain text at the bottom would not.
    figure.supxlabel(f"{line}\n{more}" if more else line, fontsize=8, color="#444444")


INTERVALS = "95 % intervals over seeds; what is uncertain about the profiles themselves is not in them"


def _title(figure: Figure, text: str) -> None:
    """At the left: the right side belongs to the legend."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=11)


def _experiments(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return content["experiments"] if "suite" in content else {content["experiment"]: content}


def _name(content: Mapping[str, Any]) -> str:
    return str(content["suite"] if "suite" in content else content["experiment"])


def _methods(found: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Every method with its place in the order of styles."""
    return {m: n for n, m in enumerate(dict.fromkeys(m for one in found.values() for m in one["arms"]))}


def _bars(value: Mapping[str, Any]) -> tuple[float, float]:
    low, high = (value["mean"] if end is None else end for end in value["ci95"])
    return max(0.0, value["mean"] - low), max(0.0, high - value["mean"])


# --- accuracy against tokens -----------------------------------------------------------------------------------------


def frontier(content: Mapping[str, Any]) -> Figure:
    """Accuracy in the degraded phase against tokens a task; the line joins the means that no other beats in both.

    Methods that are told the truth, or are centralised, are drawn hollow and left out of the line.
    """
    found = {
        label: one for label, one in _experiments(content).items() if any(_both(arm) for arm in one["arms"].values())
    }
    if not found:
        raise UsageError(f"{_name(content)}: no method has both an accuracy and tokens")
    figure, axes = canvas(len(found), 5.6, 4.4)
    places = _methods(found)
    for axis, (label, one) in zip(axes, found.items(), strict=True):
        points: list[tuple[float, float]] = []
        for method, arm in one["arms"].items():
            both = _both(arm)
            if both is None:
                continue
            tokens, accuracy = both
            colour, marker = style(places[method])
            x, y = [tokens["mean"]], [accuracy["mean"]]
            bound = method in one.get("marks", {})
            if not bound:
                points.append((x[0], y[0]))
            axis.errorbar(
                x, y, xerr=[[b] for b in _bars(tokens)], yerr=[[b] for b in _bars(accuracy)], fmt=marker, color=colour,
                markersize=6, markerfacecolor="white" if bound else colour, elinewidth=1, capsize=2,
                label=marked(one, method),
            )  # fmt: skip
        if points:
            axis.plot(*zip(*_undominated(points), strict=True), color="#bbbbbb", linewidth=1, zorder=0)
        axis.set_xscale("log")
        _plain_ticks(axis)
        axis.set(title=label, xlabel="tokens a task (log scale)", ylabel=_accuracy_label(one))
        _natural_limits(axis, "accuracy")
    _legend(figure, axes)
    _title(figure, f"{_name(content)}: accuracy against tokens")
    say(figure, list(found.values()), INTERVALS)
    return figure


def _both(arm: Mapping[str, Any]) -> tuple[Any, Any] | None:
    summary = arm["summary"]
    accuracy = summary.get("accuracy_degraded")
    if accuracy is None or accuracy["mean"] is None:
        accuracy = summary.get("accuracy_healthy")
    tokens = summary.get("tokens_per_task")
    known = accuracy and tokens and accuracy["mean"] is not None and tokens["mean"]
    return (tokens, accuracy) if known else None


def _accuracy_label(one: Mapping[str, Any]) -> str:
    degraded = any(a["summary"]["accuracy_degraded"]["mean"] is not None for a in one["arms"].values())
    return "accuracy, degraded phase" if degraded else "accuracy, no faults"


def _undominated(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points with the most accuracy among all that cost no more, by cost."""
    best: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda p: (p[0], -p[1])):
        if not best or accuracy > best[-1][1]:
            best.append((cost, accuracy))
    return best


def _plain_ticks(axis: Axes) -> None:
    """Thousands as people write them, on a log axis that may not span a decade."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axis.get_xlim()
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 5 * low else (1.0, 2.0, 5.0) if high < 300 * low else (1.0,)
    ticks = [m * 10.0**k for k in range(-3, 9) for m in steps]
    axis.xaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axis.xaxis.set_minor_locator(NullLocator())


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    shown: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    figure.legend(
        list(shown.values()), list(shown), loc="outside right center", fontsize=8, frameon=False,
        ncols=1 + len(shown) // 26,
    )  # fmt: skip


# --- measures over the labels of a study -----------------------------------------------------------------------------


def measures(content: Mapping[str, Any], names: Sequence[str] = ()) -> Figure:
    """Each measure of a study over its experiments in their declared order (doses, sizes, rates), a line a method."""
    if "suite" not in content:
        raise UsageError(f"{_name(content)} is one experiment: there is nothing to lay its measures over")
    found, labels = content["experiments"], list(content["experiments"])
    places = _methods(found)

    def held(name: str) -> bool:
        values = [arm["summary"].get(name) for one in found.values() for arm in one["arms"].values()]
        return any(v is not None and v["mean"] is not None for v in values)

    asked = [n for n in (names or content["columns"]) if held(n)]
    if not asked:
        raise UsageError(f"{_name(content)}: none of {', '.join(names or content['columns'])} has a value")
    figure, axes = canvas(len(asked))
    for axis, name in zip(axes, asked, strict=True):
        measure = find(name)
        for method, n in places.items():
            colour, marker = style(n)
            rows = [
                (x + 0.08 * (n - (len(places) - 1) / 2), v)
                for x, one in enumerate(found.values())
                for v in [one["arms"].get(method, {"summary": {}})["summary"].get(name)]
                if v is not None and v["mean"] is not None
            ]
            if rows:
                axis.errorbar(
                    [x for x, _ in rows], [v["mean"] for _, v in rows],
                    yerr=list(zip(*(_bars(v) for _, v in rows), strict=True)),
                    fmt=marker, color=colour, markersize=5, elinewidth=1, capsize=2, label=method,
                )  # fmt: skip
        axis.set_title(measure.label, fontsize=10)
        axis.set_xticks(range(len(labels)), labels, rotation=35, ha="right", fontsize=8)
        axis.set_xlim(-0.5, len(labels) - 0.5)
        _natural_limits(axis, name)
    _legend(figure, axes)
    _title(figure, _name(content))
    say(figure, list(found.values()), INTERVALS)
    return figure


_SHARES = ("detected", "detected_among", "reintegrated", "no_answer_rate")


def _natural_limits(axis: Axes, name: str) -> None:
    low, high = axis.get_ylim()
    if name in _SHARES:
        axis.set_ylim(-0.03, 1.03)
    elif name.startswith("accuracy"):
        axis.set_ylim(max(low, -0.02), min(high, 1.02))
    elif not name.endswith("minus_twin"):
        axis.set_ylim(min(0.0, max(low, -0.05 * high)), high)


# --- delays ----------------------------------------------------------------------------------------------------------


def delays(content: Mapping[str, Any]) -> Figure:
    """Share of episodes still undetected, by tasks since the swap (Kaplan and Meier's estimate).

    Methods that detected nothing are left out: theirs would all be one line at the top.
    """
    found = {
        label: one
        for label, one in _experiments(content).items()
        if any(episodes(r) for seeds in read_arms(one).values() for r in seeds)
    }
    if not found:
        raise UsageError(f"{_name(content)}: nothing was degraded, so that there are no delays")
    figure, axes = canvas(len(found))
    places = _methods(found)
    for axis, (label, one) in zip(axes, found.items(), strict=True):
        for method, seeds in read_arms(one).items():
            found_after = [d for r in seeds for d in waits(episodes(r))]
            if not any(d.seen for d in found_after):
                continue
            curve = survival(found_after)
            colour, _ = style(places[method])
            times = [0.0, *curve.times]
            axis.step(times, [1.0, *curve.share], where="post", color=colour, label=method)
            axis.fill_between(
                times, [1.0, *curve.low], [1.0, *curve.high], step="post", color=colour, alpha=0.15, linewidth=0
            )
        axis.set(title=label, xlabel="tasks since the swap", ylabel="share not yet detected", ylim=(-0.02, 1.03))
    _legend(figure, axes)
    _title(figure, f"{_name(content)}: delay of detection")
    say(
        figure,
        list(found.values()),
        "bands: pointwise 95 % (log-log), episodes taken as independent; methods that detected nothing left out",
    )
    return figure


# --- states over time ------------------------------------------------------------------------------------------------


def states(found: States, title: str, content: Mapping[str, Any]) -> Figure:
    """What neighbours believed of each agent over one run: shares of its observers; grey: the agent was degraded."""
    moved = [a for a, s in found.steps.items() if any(len(steps) > 1 for steps in s.values())]
    ill = {w.agent for w in found.windows}
    agents = sorted({*moved, *ill})
    agents = sorted([*[a for a in agents if a in ill], *[a for a in agents if a not in ill]][:_AGENTS_SHOWN])
    if not agents:
        raise UsageError(f"{title}: nobody was degraded and no belief changed: there is nothing to show")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("plots need matplotlib: pip install 'meshheal[plots]'") from error
    figure = Figure(figsize=(9, 1.3 + 0.75 * len(agents)), layout="constrained")
    axes = [row[0] for row in figure.subplots(len(agents), 1, squeeze=False, sharex=True)]
    for axis, agent in zip(axes, agents, strict=True):
        for window in found.windows:
            if window.agent == agent:
                axis.axvspan(window.at, window.back or found.arrivals, color="#dddddd", zorder=0, linewidth=0)
        for state in SHOWN:
            steps = [*found.steps[agent][state], (found.arrivals, found.steps[agent][state][-1][1])]
            axis.fill_between(
                [x for x, _ in steps], [y for _, y in steps],
                step="post", color=_STATE_COLOURS[state], alpha=0.75, linewidth=0.8, label=state,
            )  # fmt: skip
        axis.set(ylim=(0, 1.05), yticks=[0, 1], xlim=(0, found.arrivals))
        axis.set_ylabel(f"agent {agent}", rotation=0, ha="right", va="center", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("arrival")
    axes[0].plot([], [], color="#dddddd", linewidth=8, label="degraded")
    _legend(figure, axes[:1])
    _title(figure, f"{title}: how many of its neighbours suspect or exclude each agent (share)")
    say(figure, [{**content, "seeds": [0]}])
    return figure


_AGENTS_SHOWN = 12

# --- delay against ARL0 ----------------------------------------------------------------------------------------------


def operating(content: Mapping[str, Any]) -> Figure:
    """Mean delay of each detector against its measured ARL0 on one stored evidence stream, both with intervals."""
    if "curves" not in content:
        raise UsageError("delay against ARL0 needs the output of experiments/detectors.py (detectors.json)")
    figure, axes = canvas(1, 9, 5.4)
    axis = axes[0]
    for n, (name, curve) in enumerate(content["curves"].items()):
        colour, marker = style(n)
        points = [p for p in curve if p["arl0"]["mean"] is not None and p["delay"]["mean"] is not None]
        if not points:
            continue
        line = "--" if name.startswith("oracle") else "-"
        x, y = [p["arl0"]["mean"] for p in points], [p["delay"]["mean"] for p in points]
        low = [
            p["delay"]["ci95"][0] if p["delay"]["ci95"][0] is not None else m for p, m in zip(points, y, strict=True)
        ]
        high = [
            p["delay"]["ci95"][1] if p["delay"]["ci95"][1] is not None else m for p, m in zip(points, y, strict=True)
        ]
        axis.plot(x, y, line, color=colour, marker=marker, markersize=4, linewidth=1.2, label=name)
        axis.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)
    axis.set_xscale("log")
    _plain_ticks(axis)
    axis.set(
        xlabel="measured ARL0: outputs of healthy agents to a false alarm (log scale)",
        ylabel="delay, outputs of the degraded agent",
    )
    axis.set_ylim(bottom=0)
    _legend(figure, axes)
    _title(figure, f"{content['experiment']}: delay against ARL0 on one stored stream of evidence")
    say(figure, [content], "bands: 95 % intervals of the delay over seeds; ARL0's Poisson intervals are in the table")
    return figure


# --- files -----------------------------------------------------------------------------------------------------------


def write(figure: Figure, path: Path) -> None:
    """Write a picture; its format is that of the file's name. Raises `UsageError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


KINDS: dict[str, Callable[[Mapping[str, Any]], Figure]] = {
    "frontier": frontier,
    "delays": delays,
    "measures": measures,
    "arl0": operating,
}
"""Plots made from a results.json alone (`arl0`: a detectors.json); `states` is made from an event log."""
