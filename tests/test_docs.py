"""The pages say what is so: commands, options, exit codes, settings, links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from meshheal import errors
from meshheal.cli import run as run_command
from meshheal.cli.app import build
from meshheal.cli.methods import page as methods_page
from meshheal.cli.settings import page
from meshheal.config import Settings
from meshheal.experiment import prepare
from meshheal.folds.summary import SeedResult
from meshheal.methods import METHODS
from sim.models import PROFILES
from sim.workloads import NAMES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MADE_BY_EXAMPLES = {
    "tests/test_streak.py", "tests/test_units.py", "sim/workloads/units.py", "sim/models/coin.py",
}  # fmt: skip
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def fences(language: str = "") -> list[str]:
    """The README's code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def options() -> set[str]:
    """Every option of `meshheal run`."""
    run = typer.main.get_command(build()).commands["run"]
    return {o for parameter in run.params for o in parameter.opts if o.startswith("--")} - {"--help"}


def test_the_page_of_settings_is_the_settings() -> None:
    assert (ROOT / "docs" / "SETTINGS.md").read_text() == page(), (
        "write it anew: python -m meshheal.cli.settings docs/SETTINGS.md"
    )


def test_the_page_of_methods_is_the_methods_and_what_tuning_tries() -> None:
    assert (ROOT / "docs" / "METHODS.md").read_text() == methods_page(), (
        "write it anew: python -m meshheal.cli.methods docs/METHODS.md"
    )


def test_every_setting_says_what_it_is_in_a_sentence() -> None:
    for name, section in Settings.model_fields.items():
        for key, field in section.annotation.model_fields.items():
            assert len((field.description or "").split()) >= 4, f"{name}.{key}"


def test_the_first_two_commands_of_the_readme_set_up_and_run_and_set_up_and_test() -> None:
    first, second = fences()[:2]
    for command in (first, second):
        assert command.startswith("python3.11 -m venv .venv && .venv/bin/pip install -e ")
    assert " && .venv/bin/python experiments/" in first
    assert second.endswith(" && .venv/bin/pytest\n")
    assert first.count("\n") == second.count("\n") == 1
    assert README.index(second) < README.index("\n## ")


def test_ci_runs_the_readmes_test_command() -> None:
    assert fences()[1] in (ROOT / ".ci" / "run").read_text()


def test_the_readme_lists_exactly_the_options_there_are() -> None:
    assert set(re.findall(r"^\| `(--[a-z-]+)", README, re.MULTILINE)) == options()


def test_the_pages_name_every_method_workload_and_profile() -> None:
    methods = (ROOT / "docs" / "METHODS.md").read_text()
    for name in METHODS:
        assert f"`{name}`" in methods
    for name in NAMES:
        assert f"`{name}`" in README
    for name in PROFILES:
        assert name.removeprefix("gpt-oss") in README


def test_the_readme_lists_every_exit_code() -> None:
    codes = {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}
    listed = {int(c) for c in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert listed == codes | {0, 3, 130}


def test_the_readmes_results_contract_names_only_fields_there_are() -> None:
    per_seed = README.partition('"per_seed": [{')[2].partition('"detection"')[0]
    named = set(re.findall(r'"([a-z_]+)"', per_seed))
    assert named <= set(SeedResult.__struct_fields__)
    assert {"accuracy_degraded", "tokens_by_purpose"} <= named


def test_every_command_of_the_readme_names_a_file_and_options_that_exist() -> None:
    commands = [line for block in fences() for line in block.splitlines() if line.startswith(".venv/bin/")]
    commands += [f".venv/bin/{c}" for c in re.findall(r"^\| `(python [^`]+)`", README, re.MULTILINE)]
    assert len(commands) > 8
    for command in commands:
        words = command.partition("  #")[0].split()
        for script in [w for w in words if w.endswith(".py")]:
            assert (ROOT / script).is_file(), command
        if "experiments/" in command:
            assert {w for w in words if w.startswith("--")} <= options(), command


@pytest.mark.parametrize("name", ["staggered_math", "recorded_mmlu_pro"])
def test_an_experiment_prints_its_help(name: str) -> None:
    command = [sys.executable, f"experiments/{name}.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--degraded" in done.stdout


def test_the_readmes_own_experiment_is_one(tmp_path: Path) -> None:
    (script := tmp_path / "mild.py").write_text(fences("python")[0])
    assert prepare(run_command.load(str(script))).experiment.name == "mild"


def test_the_readmes_toml_is_accepted(tmp_path: Path) -> None:
    (file := tmp_path / "settings.toml").write_text(fences("toml")[0])
    settings = Settings.model_validate(run_command.overrides({}, [], file))
    assert settings.detector.shadow == ("ewma", "fixed-threshold")


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_what_a_page_points_to_is_there(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
    folders = "meshheal|sim|topologies|experiments|benchmarks|docs|tests"
    named = re.findall(rf"(?<![\w./])(?:{folders})/[\w./]+\.\w+", text)
    assert {n for n in named if not (ROOT / n).exists()} <= MADE_BY_EXAMPLES


def test_every_module_of_the_protocol_stands_in_the_order_of_layers() -> None:
    layers = (ROOT / "pyproject.toml").read_text()
    inside = (ROOT / "meshheal").iterdir()
    modules = {p.stem for p in inside if p.suffix == ".py" or (p / "__init__.py").exists()} - {"__init__"}
    assert {m for m in modules if f'"meshheal.{m}"' not in layers} == set()
