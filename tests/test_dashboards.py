"""Dashboards and rules against a real Prometheus that took in runs afterwards, and scraped one in progress."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import observed
import pytest
import vllm_exporter

from dashboards.build import BUILT, build
from dashboards.panels import DASHBOARDS, NOT_SHOWN
from dashboards.server import RULES, Prometheus, backfill, bound, expressions, running
from meshheal.exposition import Exposition, serve
from meshheal.folds.catalogue import METRICS
from meshheal.folds.layout import Layout, layout
from meshheal.folds.openmetrics import Written, export, fold_for
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import RunDir

ROOT = Path(__file__).resolve().parents[1]
ALERTS = {
    "GrayFailureFound": "plain",
    "CorrelatedDegradation": "troubled",
    "AbilityDownToItsLastAgent": "troubled",
    "ReviewersUninformative": "agreeable",
    "BackendFailing": "slow",
}
"""Which run has each alert's trouble in it. ProtocolBroken must have none."""


@dataclass
class Observed:
    """The Prometheus, the runs it took in afterwards, and their time on its clock."""

    prometheus: Prometheus
    runs: dict[str, RunDir]
    written: dict[str, Written]

    def anywhere(self, expr: str) -> list[dict[str, Any]]:
        """Series at the end of the first run that has any, else now."""
        times = [t for w in self.written.values() for t in (w.end - 1, w.end - 30)]
        for t in [*times, time.time()]:
            if found := self.prometheus.at(expr, t):
                return found
        return []


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    observed.needs_prometheus()
    folder = tmp_path_factory.mktemp("observed")
    experiments = {
        "plain": observed.plain(),
        "troubled": observed.troubled(),
        "agreeable": observed.agreeable(folder / "recorded"),
        "slow": observed.slow(),
    }
    runs, written = {}, {}
    for name, experiment in experiments.items():
        runs[name] = observed.run(experiment, folder / "runs")
        with (folder / f"{name}.om").open("w") as file:
            written[name] = export(runs[name], runs[name].arms(), file)
        backfill(folder / f"{name}.om", folder / "data")
    with vllm_exporter.serving() as vllm, serve(exposition := Exposition(), "127.0.0.1", 0) as port:
        targets = {"vllm": [vllm], "meshheal": [f"127.0.0.1:{port}"]}
        with running(folder / "data", targets) as prometheus:
            in_progress(prometheus, runs["plain"], exposition)
            until(
                lambda: prometheus.at("count_over_time(up{job='vllm'}[1m]) > 2", time.time()), "three scrapes of vLLM"
            )
            yield Observed(prometheus, runs, written)


def in_progress(prometheus: Prometheus, run: RunDir, exposition: Exposition) -> None:
    """Have a run scraped while its events come, as a live one in real time."""
    with LogFile(run.log_path("meshheal", 0)) as log:
        summary, metrics = fold_for(live_layout(run, log), 0)
        exposition.watch(metrics.layout, metrics.families)
        events = list(log.events())
    for part in (events[: len(events) // 3], events[len(events) // 3 :]):
        for event in part:
            summary(event)
            metrics(event)
        graded = sum(metrics.families()["meshheal_tasks_graded"][i][1] for i in range(3))  # type: ignore[misc]
        scraped = f'sum(meshheal_tasks_graded_total{{run="live"}}) == {graded}'
        until(lambda scraped=scraped: prometheus.at(scraped, time.time()), scraped)  # type: ignore[misc]


def live_layout(run: RunDir, log: LogFile) -> Layout:
    header = {**log.header, "clock": "wall", "natures": dict.fromkeys(log.header["natures"], "live")}
    found = layout(run, header)
    values = {f: getattr(found, f) for f in found.__struct_fields__}
    return Layout(**{**values, "labels": ("live", *found.labels[1:])})


def until(condition: Callable[[], Any], what: str, seconds: float = 30.0) -> None:
    pause, ends = threading.Event(), time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"waited in vain for {what}"
        pause.wait(0.1)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.uid)
def test_every_query_of_every_panel_returns_data(seen: Observed, dashboard: Any) -> None:
    empty = [(title, expr) for title, expr in expressions(dashboard) if not seen.anywhere(bound(expr))]
    assert empty == []


@pytest.mark.server
@pytest.mark.slow
def test_every_rule_returns_data_and_every_alert_fires_where_there_is_its_trouble(seen: Observed) -> None:
    rules = seen.prometheus.rules()
    assert set(ALERTS) < set(rules)
    for name, expr in rules.items():
        if name == "ProtocolBroken":
            assert all(seen.prometheus.over(expr, w.epoch, w.end, 60) == [] for w in seen.written.values())
            assert seen.anywhere(expr.replace("> 0", ">= 0"))
            continue
        run = ALERTS.get(name, "plain")
        span = seen.written[run]
        found = [s["metric"]["run"] for s in seen.prometheus.over(expr, span.epoch, span.end, 60)]
        assert seen.runs[run].name in found, name


@pytest.mark.server
@pytest.mark.slow
def test_what_prometheus_says_of_a_simulated_run_is_what_its_results_say(seen: Observed) -> None:
    run, end = seen.runs["plain"], seen.written["plain"].end
    results = run.results
    assert results is not None

    def value(expr: str, method: str) -> float:
        labels = f'run="{run.name}",method="{method}"'
        found = seen.prometheus.at(expr.replace("{}", f"{{{labels}}}").replace(",}", f",{labels}}}"), end + 1)
        return float(found[0]["value"][1])

    for method in ("meshheal", "unprotected"):
        seed = results["arms"][method]["per_seed"][0]
        last = "last_over_time(meshheal_tasks_graded_total{}[1h])"
        tokens = "sum(last_over_time(meshheal_model_tokens_total{}[1h]))"
        assert value(f"{tokens} / sum({last})", method) == pytest.approx(seed["tokens_per_task"])
        detected = value('last_over_time(meshheal_detections_total{result="detected",}[1h])', method)
        delays = [d["delay_tasks"] for d in seed["detection"] if d["delay_tasks"] is not None]
        assert detected == len(delays)
        assert value("last_over_time(meshheal_detection_delay_tasks_sum{}[1h])", method) == sum(delays)
    assert detected == 0
    assert (
        value("last_over_time(meshheal_false_exclusions_total{}[1h])", "meshheal")
        == (results["arms"]["meshheal"]["per_seed"][0]["false_exclusions"])
    )


@pytest.mark.server
@pytest.mark.slow
def test_simulated_time_and_the_wall_clock_are_never_in_one_metric(seen: Observed) -> None:
    def named(matcher: str, t: float) -> set[str]:
        return {s["metric"]["__name__"] for s in seen.prometheus.at(f"{{{matcher}}}", t)}

    seconds = '__name__=~"meshheal_.*_seconds(_.*)?",__name__!~".*_timestamp_.*"'
    virtual = named(f'{seconds},run!="live"', seen.written["plain"].end - 30)
    wall = named(f'{seconds},run="live"', time.time())
    assert virtual
    assert wall
    assert all("_virtual_seconds" in name for name in virtual)
    assert not any("virtual" in name for name in wall)


@pytest.mark.server
@pytest.mark.slow
def test_truth_and_belief_stand_side_by_side_for_every_agent(seen: Observed) -> None:
    w, run = seen.written["plain"], seen.runs["plain"].name
    truth = seen.prometheus.over(f'meshheal_agent_degraded{{run="{run}",method="meshheal"}}', w.epoch, w.end, 30)
    belief = seen.prometheus.over(f'meshheal_agent_excluded_ratio{{run="{run}",method="meshheal"}}', w.epoch, w.end, 30)
    swapped = {s["metric"]["agent"] for s in truth if any(v != "0" for _, v in s["values"])}
    excluded = {s["metric"]["agent"] for s in belief if any(v == "1" for _, v in s["values"])}
    assert swapped == excluded == {"0", "3"}


# --- without a server ---


def test_the_committed_dashboards_are_what_the_code_builds() -> None:
    assert {p.stem for p in BUILT.glob("*.json")} == {d.uid for d in DASHBOARDS}
    for d in DASHBOARDS:
        built = (BUILT / f"{d.uid}.json").read_bytes()
        assert built == build(d).encode(), "build them anew: python -m dashboards.build"


def test_every_metric_is_on_a_panel_or_listed_as_not_shown() -> None:
    shown = set(re.findall(r"meshheal_\w+", " ".join(expr for d in DASHBOARDS for _, expr in expressions(d))))
    missing = {name for name, m in METRICS.items() if shown.isdisjoint(m.samples)}
    assert missing == set(NOT_SHOWN)
    samples = {s for m in METRICS.values() for s in m.samples}
    assert shown <= samples
    assert set(re.findall(r"(?<!:)\bmeshheal_\w+", RULES.read_text())) - {"meshheal_model_call_failures"} <= samples


def test_panels_have_titles_of_their_own_and_say_what_they_show() -> None:
    for d in DASHBOARDS:
        titles = [p.title for p in d.panels()]
        assert len(titles) == len(set(titles))
        content = json.loads(build(d))
        assert [p["title"] for p in content["panels"] if p["type"] != "row"] == titles
        assert len({p["id"] for p in content["panels"] if p["type"] != "row"}) == len(titles)


def test_variables_of_queries_are_variables_of_their_dashboard() -> None:
    for d in DASHBOARDS:
        used = set(re.findall(r"\$(\w+)", " ".join(expr for _, expr in expressions(d)))) - {"__range"}
        assert used <= set(d.variables), d.title
        assert {v["name"] for v in json.loads(build(d))["templating"]["list"]} == {"datasource", *d.variables}


@pytest.mark.parametrize("panel", [p for d in DASHBOARDS for p in d.panels()], ids=lambda p: p.title)
def test_no_panel_mixes_simulated_time_with_the_wall_clock(panel: Any) -> None:
    text = " ".join(query.expr for query in panel.queries)
    assert not ("_virtual_seconds" in text and re.search(r"(?<!_virtual)_seconds", text))


def test_both_spellings_of_vllm_are_asked_for_by_names_that_vllm_has() -> None:
    exprs = [expr for d in DASHBOARDS for _, expr in expressions(d)]
    direct = {n for e in exprs for n in re.findall(r"(?<!ray_)vllm:(\w+)", e)}
    under_ray = {n for e in exprs for n in re.findall(r"ray_vllm_(\w+)", e)}
    assert direct == under_ray
    page = vllm_exporter.exposed(1)
    assert all(f"vllm:{name}" in page and f"ray_vllm_{name}" in page for name in direct)


def test_promtool_accepts_rules_and_configuration() -> None:
    observed.needs_prometheus()
    for command in (["rules", RULES], ["config", "--syntax-only", RULES.parent / "prometheus.yml"]):
        done = subprocess.run(["promtool", "check", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_provisioning_and_compose_file_point_to_what_is_there() -> None:
    compose = (ROOT / "dashboards" / "compose.yml").read_text()
    for path in re.findall(r"- (\./[\w/]+):", compose):
        assert (ROOT / "dashboards" / path).is_dir(), path
    provider = (ROOT / "dashboards/grafana/provisioning/dashboards/meshheal.yml").read_text()
    assert "./grafana/dashboards:/var/lib/grafana/dashboards" in compose
    assert "path: /var/lib/grafana/dashboards" in provider
