"""Tables as values: figures with their intervals, and in words what is simulated in them. Never a bare mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from meshheal.measures import MEASURES, find
from meshheal.results import plain
from meshheal.stats import mean_interval

NONE = "–"
_ALWAYS = (
    "accuracy_healthy", "accuracy_degraded", "accuracy_twin", "degraded_minus_twin", "tokens_per_task",
    "calls_per_task", "probe_calls_per_task", "detected", "detection_tasks", "detection_outputs", "reintegrated",
    "reintegration_tasks", "false_exclusions", "premature_reintegrations", "ordinary_tasks_while_excluded",
    "no_answer_rate", "unscored_per_task",
)  # fmt: skip
_IF_ANY = ("group_alarms", "alarm_delay", "uninformative_alarms", "sidelined", "withheld")


class Table(Struct, frozen=True):
    """Rows of text cells under `head`; the first `labels` columns name the row. `notes` stand below it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    labels: int = 1


def cell(value: Mapping[str, Any] | None, digits: int) -> str:
    """A figure with its 95 % interval; what stands in for the interval says why there is none."""
    if value is None or value["mean"] is None:
        if value is not None and value["n"] == 0 and value["ci95"][0] is not None:
            return f"none seen, at least {value['ci95'][0]:,.{digits}f}"
        return NONE
    low, high = value["ci95"]
    mean = _number(value["mean"], digits)
    if low is None and high is None:
        return f"{mean} [one seed]"
    ends = ["?" if end is None else _number(end, digits) for end in (low, high)]
    return f"{mean} [{ends[0]}, {ends[1]}]"


def _number(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text  # no negative nought


def nature(content: Mapping[str, Any]) -> str:
    """`simulated models`, `recorded models`, `live models`, and whether methods were tuned: stands wherever figures are shown."""
    return ", ".join([f"{content['mode']} models", *tuned(content)])


def tuned(content: Mapping[str, Any]) -> list[str]:
    """That methods have settings which were chosen, and on what; nothing where they have not."""
    seeds = content.get("tuned_on")
    return [f"methods tuned on development seeds {seeds[0]} to {seeds[-1]}"] if seeds else []


def natures(experiments: Mapping[str, Mapping[str, Any]]) -> str:
    """The same of several experiments, with the labels of those that were tuned."""
    modes = " and ".join(sorted({f"{one['mode']} models" for one in experiments.values()}))
    labels: dict[str, list[str]] = {}
    for label, one in experiments.items():
        for said in tuned(one):
            labels.setdefault(said, []).append(label)
    return ", ".join([modes, *(f"{said} in {', '.join(held)}" for said, held in labels.items())])


def marked(content: Mapping[str, Any], method: str) -> str:
    """A method's name, with what sets it apart: `oracle` (it is told the truth), `centralised`."""
    mark = content.get("marks", {}).get(method)
    return f"{method} ({mark})" if mark else method


def note(content: Mapping[str, Any]) -> str:
    """In one sentence where the figures come from."""
    if content["mode"] == "simulated":
        return "Models are simulated (docs/MODELS.md says from what); tokens are estimated. No real model was called."
    if content["mode"] == "recorded":
        return (
            "Answers are real models' recorded ones; reviews are simulated by comparing answers; tokens are estimated."
        )
    return "Answers, reviews and tokens are of real models, live."


# --- one experiment --------------------------------------------------------------------------------------------------


def of_run(content: Mapping[str, Any]) -> Table:
    """Everything measured of one experiment, a method a column."""
    arms, n = content["arms"], len(content["seeds"])
    rows: list[tuple[str, ...]] = []
    for name in (*_ALWAYS, *_IF_ANY):
        measure = MEASURES[name]
        found = [arm["summary"].get(name) for arm in arms.values()]
        if name in _IF_ANY and not any(v and v["mean"] for v in found):
            continue
        cells = [cell(v, measure.digits) for v in found]
        if any(c != NONE for c in cells):
            rows.append((measure.label, *cells))
        if name in ("detection_tasks", "reintegration_tasks"):
            rows += _per_agent(arms, name, measure.digits)
    purposes = sorted({p for arm in arms.values() for s in arm["per_seed"] for p in s["tokens_by_purpose"]})
    rows += [(f"tokens a task: {p}", *(_tokens(arm, p) for arm in arms.values())) for p in purposes]
    title = f"{content['experiment']}: {nature(content)}, {n} seed{'s' * (n != 1)}, mean [95 % interval]"
    return Table(title, ("", *(marked(content, m) for m in arms)), tuple(rows), (note(content),))


def _per_agent(arms: Mapping[str, Any], name: str, digits: int) -> list[tuple[str, ...]]:
    keys = sorted(
        {k for arm in arms.values() for k in arm["summary"] if k.startswith(f"{name}.agent_")},
        key=lambda k: int(k.rpartition("_")[2]),
    )[:6]
    label = "  agent {}".format
    return [
        (label(k.rpartition("_")[2]), *(cell(arm["summary"].get(k), digits) for arm in arms.values())) for k in keys
    ]


def _tokens(arm: Mapping[str, Any], purpose: str) -> str:
    return cell(plain(mean_interval([s["tokens_by_purpose"].get(purpose, 0.0) for s in arm["per_seed"]])), 0)


def comparisons(content: Mapping[str, Any], title: str = "") -> Table | None:
    """The declared tests of one experiment (or what `compare` found); None where there are none."""
    found = content.get("comparisons") or []
    if not found:
        return None
    rows = [
        (
            find(c["measure"]).label,
            f"{c['method']} − {c['against']}",
            cell(c["difference"], find(c["measure"]).digits),
            _p(c["p"]),
            _p(c["p_holm"]) if c["family"] == "declared" else "exploratory",
            c["test"],
        )
        for c in found
    ]
    heading = title or f"{content['experiment']}: declared comparisons, {nature(content)}"
    notes = _power(found)
    return Table(heading, ("", "difference of", "mean [95 %]", "p", "p (Holm)", "test"), tuple(rows), notes, labels=2)


def _power(found: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    pairs = [c["difference"]["n"] for c in found if c["test"].startswith("sign-flip")]
    if pairs and min(pairs) < 6:
        least = 2.0 ** (1 - min(pairs))
        return (f"With {min(pairs)} pairs p cannot fall below {least:.3g}: claims need 30 seeds or more.",)
    return ()


def _p(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.2g}" if value >= 1e-4 else "<0.0001"


# --- several experiments ---------------------------------------------------------------------------------------------


def of_suite(content: Mapping[str, Any]) -> Table:
    """One row for each experiment and method, the suite's measures as columns; without those that nothing was measured of."""
    arms = [
        (label, marked(one, method), arm["summary"])
        for label, one in content["experiments"].items()
        for method, arm in one["arms"].items()
    ]
    measures, columns = [], []
    for measure in (find(name) for name in content["columns"]):
        column = [cell(summary.get(measure.name), measure.digits) for *_, summary in arms]
        if any(c != NONE for c in column):
            measures.append(measure)
            columns.append(column)
    rows = [(label, method, *cells) for (label, method, _), *cells in zip(arms, *columns, strict=True)]
    found = list(content["experiments"].values())
    seeds = sorted({len(one["seeds"]) for one in found})
    n = f"{seeds[0]} seed{'s' * (seeds[0] != 1)}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    notes = tuple(dict.fromkeys(note(one) for one in found))
    title = f"{content['suite']}: {natures(content['experiments'])}, {n}, mean [95 % interval]"
    return Table(title, ("", "method", *(m.label for m in measures)), tuple(rows), notes, labels=2)


def suite_comparisons(content: Mapping[str, Any]) -> Table | None:
    """The declared tests of every experiment, each a family of its own; None where there are none."""
    found = {label: comparisons(one) for label, one in content["experiments"].items()}
    made = {label: table for label, table in found.items() if table is not None}
    if not made:
        return None
    rows = tuple((label, *row) for label, table in made.items() for row in table.rows)
    notes = tuple(dict.fromkeys(text for table in made.values() for text in table.notes))
    first = next(iter(made.values()))
    title = f"{content['suite']}: declared comparisons, a family for each experiment, {natures(content['experiments'])}"
    return Table(title, ("", *first.head), rows, notes, labels=3)


def operating(content: Mapping[str, Any]) -> Table:
    """Delay of each detector at measured ARL0; `content` is a detectors.json."""
    rows = [
        (
            name,
            cell(p["arl0"], 0),
            cell(p["delay"], 1),
            f"{p['detected']} of {p['episodes']}",
            f"{p['threshold']:.4g}",
        )
        for name, points in content["curves"].items()
        for p in points
    ]
    n = len(content["seeds"])
    title = (
        f"{content['experiment']}: every detector on one stored evidence stream, {nature(content)}, "
        f"{n} seed{'s' * (n != 1)}, mean [95 % interval]"
    )
    notes = (
        (
            f"ARL0 from {content['observations_healthy']:,} observations of healthy agents (exact Poisson interval); delay in "
            "outputs of the degraded agent (restricted mean, over seeds). The oracle knows the streams' own distributions."
        ),
    )
    return Table(title, ("detector", "ARL0, outputs", "delay, outputs", "detected", "threshold"), tuple(rows), notes)


def tuning(content: Mapping[str, Any], scores: Mapping[str, Any]) -> Table:
    """Each method at its published and at its chosen settings; `scores` is a tuning.json."""
    rows: list[tuple[str, ...]] = []
    for method, tried in scores["methods"].items():
        for t in [t for t in tried if t["published"] or t["chosen"]]:
            what = "published, chosen" if t["published"] and t["chosen"] else "chosen" if t["chosen"] else "published"
            settings = ", ".join(f"{name.rpartition('.')[2]} {value:g}" for name, value in t["settings"].items())
            figures = cell(t["accuracy_degraded"], 3), cell(t["tokens_per_task"], 0)
            rows.append((method, f"{what} of {len(tried)}" if t["chosen"] else what, settings, *figures))
    seeds = scores["seeds"]
    title = (
        f"{content['suite']}: {natures(content['experiments'])}, {len(seeds)} development seeds ({seeds[0]} to {seeds[-1]}), "
        f"mean over {', '.join(scores['workloads'])} [95 % interval]"
    )
    notes = dict.fromkeys(note(one) for one in content["experiments"].values())
    chosen = "The chosen setting's figure is of the seeds it was chosen on, so it flatters that setting."
    head = ("method", "", "settings", "accuracy, degraded phase", "tokens a task")
    return Table(title, head, tuple(rows), (chosen, *notes), labels=3)


def tables(content: Mapping[str, Any]) -> list[Table]:
    """All tables of a results.json, of one experiment or of several."""
    suite = "suite" in content
    tests = suite_comparisons(content) if suite else comparisons(content)
    return [of_suite(content) if suite else of_run(content)] + ([tests] if tests is not None else [])
