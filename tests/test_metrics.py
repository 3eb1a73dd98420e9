"""The metrics fold: what it counts, that labels stay few, and that live and afterwards it says the same."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from urllib.request import urlopen

import observed
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tiny import command, write_script

from meshheal import events as ev
from meshheal.errors import UsageError
from meshheal.exposition import Exposition, serve
from meshheal.folds.catalogue import ARM_LABELS, METRICS, page
from meshheal.folds.layout import Layout
from meshheal.folds.metrics import LABEL_LIMIT, OTHER, Counts, Families, Metrics, boundary
from meshheal.folds.openmetrics import LOOK_BACK, _Series, export, over_time
from meshheal.folds.summary import Summary, watchers
from meshheal.study import Study
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import RunDir
from meshheal.types import ReviewRecord, Usage

ROOT = Path(__file__).resolve().parents[1]


class Fold:
    """A fold of agents that all know one another, fed by hand."""

    def __init__(self, agents: int = 4, top: int = 50, clock: str = "virtual", natures: dict | None = None) -> None:
        around = [[b for b in range(agents) if b != a] for a in range(agents)]
        held = [("x", "y")] * agents
        layout = Layout(
            ("r", "m", "false", "0"), ("e", clock, "simulated", "t", "w"), clock, around, held, natures or {}, top, 3
        )
        self.summary = Summary(watchers(around, held), held, 0)
        self.metrics = Metrics(layout, self.summary)
        self._seq = itertools.count()

    def see(self, kind: type, node: int = 0, t: float = 0.0, **fields: object) -> None:
        event = kind(node=node, seq=next(self._seq), t=t, **fields)
        self.summary(event)
        self.metrics(event)

    def value(self, name: str, *labels: str) -> float | Counts:
        return dict(self.metrics.families()[name])[labels]

    def exclude(self, observer: int, agent: int) -> None:
        change = {"agent": agent, "before": "suspect", "to": "excluded", "evidence": 1200.0}
        self.see(ev.StateChanged, observer, **change)


def call(**fields: object) -> dict:
    return {"model": "a", "purpose": "produce", "subject": 0, "n": 0, "prompt": (), "prompt_hash": "", **fields}


def test_tokens_are_counted_by_model_purpose_and_direction() -> None:
    fold = Fold()
    fold.see(ev.ModelCalled, **call(usage=Usage(100, 20, 40)))
    fold.see(ev.ModelCalled, **call(usage=Usage(1, 2), probing=True))
    assert fold.value("meshheal_model_tokens", "a", "produce", "prompt") == 100
    assert fold.value("meshheal_model_tokens", "a", "probe", "completion") == 2
    assert fold.value("meshheal_model_cached_tokens", "a") == 40


def test_an_errors_text_is_never_a_label() -> None:
    assert boundary("timeout") == "timeout"
    assert boundary("HTTP 500: /home/x/secret prompt text") == OTHER
    fold = Fold()
    fold.see(ev.ModelCalled, **call(failure="some text of 2,000 characters"))
    assert fold.value("meshheal_model_call_failures", "a", OTHER) == 1


def test_labels_that_experiments_choose_are_bounded() -> None:
    fold = Fold()
    for n in range(3 * LABEL_LIMIT):
        fold.see(ev.ModelCalled, **call(model=f"model-{n}"))
        fold.see(ev.TaskArrived, node=-1, task=f"t{n}", index=n, entry=0, ability=f"ability-{n}")
    for name in ("meshheal_model_calls", "meshheal_tasks_arrived", "meshheal_model_call_duration_virtual_seconds"):
        first = {labels[0] for labels, _ in fold.metrics.families()[name]}
        assert len(first) <= LABEL_LIMIT + 1
    assert sum(v for _, v in fold.metrics.families()["meshheal_model_calls"]) == 3 * LABEL_LIMIT
    assert fold.value("meshheal_tasks_arrived", OTHER) > 0


def test_no_sample_names_a_task_or_a_record() -> None:
    fold = Fold()
    record = ReviewRecord("record-17", "task-17", 1, "x", "kind-17", "first_look", 0.5, (2,), 0, 0.0)
    fold.see(ev.TaskArrived, node=-1, task="task-17", index=0, entry=0, ability="x", task_kind="kind-17", prompt="17")
    fold.see(ev.EvidenceShared, task="task-17", record=record, to=(2, 3))
    fold.see(ev.AgentFailed, node=-1, error="error 17")
    text = repr(fold.metrics.families())
    assert "17" not in text
    assert fold.value("meshheal_evidence_messages") == 2
    assert fold.value("meshheal_agent_failures") == 1


def test_only_the_worst_agents_have_series_and_all_are_in_the_histogram() -> None:
    fold = Fold(agents=12, top=3)
    for observer in range(1, 12):
        fold.exclude(observer, 0)
    fold.exclude(1, 7)
    fold.see(ev.SuspicionMoved, 2, agent=9, evidence=40.0)
    families = fold.metrics.families()
    assert dict(families["meshheal_agent_excluded_ratio"]) == {("0",): 1.0, ("7",): pytest.approx(1 / 11), ("9",): 0.0}
    histogram = fold.value("meshheal_network_excluded_ratio")
    assert isinstance(histogram, Counts)
    assert sum(histogram.buckets) == 12
    assert dict(families["meshheal_agents_excluded"]) == {("any",): 2.0, ("all",): 1.0}


def test_an_agent_that_was_bad_keeps_its_series_while_there_is_room() -> None:
    fold = Fold(agents=12, top=2)
    fold.exclude(1, 5)
    fold.metrics.families()
    fold.see(ev.StateChanged, 1, agent=5, before="excluded", to="healthy", evidence=1.0)
    assert ("5",) in dict(fold.metrics.families()["meshheal_agent_excluded_ratio"])
    for agent in (7, 8):
        fold.exclude(1, agent)
    assert set(dict(fold.metrics.families()["meshheal_agent_excluded_ratio"])) == {("7",), ("8",)}


def test_a_degraded_agent_that_nobody_suspects_has_a_series_too() -> None:
    fold = Fold(agents=12, top=2)
    fold.see(ev.Swapped, node=-1, agent=11, to="bad", index=0, degraded=True)
    assert dict(fold.metrics.families()["meshheal_agent_degraded"]) == {("11",): 1.0}


def test_an_ability_counts_the_agents_that_most_neighbours_would_ask() -> None:
    fold = Fold(agents=4)
    fold.exclude(0, 3)
    assert fold.value("meshheal_ability_eligible_agents", "x") == 4
    fold.exclude(1, 3)
    assert fold.value("meshheal_ability_eligible_agents", "x") == 3
    fold.see(ev.Crashed, node=-1, agent=2)
    assert fold.value("meshheal_ability_eligible_agents", "x") == 2


def test_the_accuracy_window_forgets_and_counts_no_answer_as_wrong() -> None:
    fold = Fold()
    for n, correct in enumerate((False, True, None, True)):
        fold.see(ev.TaskArrived, node=-1, task=f"t{n}", index=n, entry=0, ability="x")
        fold.see(ev.TaskGraded, node=-1, task=f"t{n}", correct=correct)
    assert fold.value("meshheal_accuracy_window_ratio") == pytest.approx(2 / 3)
    assert fold.value("meshheal_tasks_graded", "none") == 1


def test_a_simulated_models_latency_and_a_live_ones_are_two_metrics() -> None:
    fold = Fold(clock="wall", natures={"a": "simulated", "b": "live"})
    for model in ("a", "b"):
        fold.see(ev.ModelCalled, **call(model=model, latency=2.0))
    families = fold.metrics.families()
    assert [labels for labels, _ in families["meshheal_model_call_duration_virtual_seconds"]] == [("a",)]
    assert [labels for labels, _ in families["meshheal_model_call_duration_seconds"]] == [("b",)]
    assert "meshheal_clock_seconds" in families
    assert "meshheal_clock_virtual_seconds" not in families


def test_counters_of_known_labels_start_at_0_so_that_their_first_increase_shows() -> None:
    families = Fold(natures={"a": "live"}).metrics.families()
    for metric in METRICS.values():
        if metric.kind == "counter":
            assert families[metric.name], metric.name
            assert all(value == 0 for _, value in families[metric.name]), metric.name


def test_every_sample_has_the_labels_its_metric_declares() -> None:
    for name, points in Fold(natures={"a": "live"}).metrics.families().items():
        assert all(len(labels) == len(METRICS[name].labels) for labels, _ in points), name


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda m: m.name)
def test_names_follow_the_conventions(metric) -> None:
    assert re.fullmatch(r"meshheal_[a-z][a-z0-9_]*", metric.name)
    assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket", "_info"))
    if metric.unit:
        assert metric.name.endswith(f"_{metric.unit}")
    assert not set(metric.labels) & {"task", "prompt", "error", "record", "le", *ARM_LABELS}
    assert metric.help.endswith((".", ")."))


def test_the_page_of_metrics_is_the_catalogue() -> None:
    assert (ROOT / "docs" / "METRICS.md").read_text() == page(), (
        "write it anew: python -m meshheal.folds.catalogue docs/METRICS.md"
    )


# --- whole runs ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return observed.run(observed.plain(60), tmp_path_factory.mktemp("metrics"))


def last(run: RunDir, method: str) -> Families:
    from meshheal.folds.layout import layout

    with LogFile(run.log_path(method, 0)) as log:
        *_, (_, families) = over_time(log, layout(run, log.header), 0, 60.0)
    return families


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [0, 2])
def test_live_and_afterwards_the_metrics_are_the_same(tmp_path: Path, parallel: int) -> None:
    exposition = Exposition()
    study = Study.start(observed.plain(60), tmp_path, observed.STARTED)
    study.run(parallel, lambda _arm, _value: None, exposition)
    with serve(exposition, "127.0.0.1", 0) as port, urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        scraped = {
            (
                s.name,
                s.labels["method"],
                tuple(sorted((k, v) for k, v in s.labels.items() if k not in ARM_LABELS)),
            ): s.value
            for family in text_string_to_metric_families(page.read().decode())
            for s in family.samples
        }
    for method in ("meshheal", "unprotected"):
        for name, points in last(study.directory, method).items():
            metric = METRICS[name]
            for values, value in points:
                if isinstance(value, Counts) or metric.kind == "info":
                    continue
                labels = tuple(sorted(zip(metric.labels, values, strict=True)))
                assert scraped[metric.samples[0], method, labels] == pytest.approx(value), name


def test_gauges_and_counters_of_a_run_agree_with_its_results(run: RunDir) -> None:
    results = run.results
    assert results is not None
    for method in ("meshheal", "unprotected"):
        seed, families = results["arms"][method]["per_seed"][0], last(run, method)
        outcomes = {k[0]: v for k, v in families["meshheal_tasks"] if v}
        assert outcomes == seed["outcomes"]
        assert sum(v for _, v in families["meshheal_model_calls"]) == pytest.approx(60 * seed["calls_per_task"])
        assert dict(families["meshheal_false_exclusions"])[()] == seed["false_exclusions"]
        assert dict(families["meshheal_tasks_in_flight"])[()] == 0


def test_the_export_has_no_gap_longer_than_prometheus_looks_back(run: RunDir, tmp_path: Path) -> None:
    with (tmp_path / "m.om").open("w") as file:
        written = export(run, run.arms(), file)
    times: dict[str, list[float]] = {}
    for line in (tmp_path / "m.om").read_text().splitlines():
        if not line.startswith("#"):
            series, _, stamp = line.rsplit(" ", 2)
            times.setdefault(series, []).append(float(stamp))
    assert len(times) == written.series
    for series, at in times.items():
        assert at == sorted(set(at)), series
        assert max((b - a for a, b in itertools.pairwise(at)), default=0.0) < LOOK_BACK, series
    start = observed.STARTED.timestamp()
    assert written.end <= start - 3 * 3600, "all of it must lie before anything scraped live"


def test_a_step_stays_a_step() -> None:
    series = _Series()
    for tick in range(6):
        series.take(60.0 * tick, float(tick >= 3), 60.0)
    series.end()
    assert series.points == [(0.0, 0.0), (120.0, 0.0), (180.0, 1.0), (300.0, 1.0)]


def test_the_command_writes_a_file_and_says_how_to_take_it_in(run: RunDir, tmp_path: Path) -> None:
    done = command("metrics", run.path, "--out", tmp_path / "m.om", "--epoch", "2026-01-31T12:00")
    assert done.returncode == 0, done.stderr
    assert "promtool tsdb create-blocks-from openmetrics" in done.stdout
    assert "2026-01-31 12:00" in done.stdout
    assert (tmp_path / "m.om").read_text().endswith("# EOF\n")


@pytest.mark.parametrize(
    "options", [("--every", "600"), ("--epoch", "yesterday"), ("--method", "none"), ("--out", "/nowhere/at/all")]
)
def test_what_a_user_gets_wrong_ends_in_one_line(run: RunDir, options: tuple[str, str]) -> None:
    done = command("metrics", run.path, *options)
    assert done.returncode in (2, 4)
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_ends_in_one_line(tmp_path: Path) -> None:
    script = write_script(tmp_path, tasks=8)
    with serve(Exposition(), "127.0.0.1", 0) as port:
        done = command("run", script, "--metrics-port", port, "--out", tmp_path / "runs")
        assert done.returncode == 2
        assert f"--metrics-port {port}" in done.stderr
        with pytest.raises(UsageError, match="another port"), serve(Exposition(), "127.0.0.1", port):
            pass
