"""`import meshheal` is quick because it loads nothing heavy: asserted on what is loaded, not on the clock."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tiny import environment

HEAVY = (
    "sympy",
    "scipy",
    "networkx",
    "numpy",
    "math_verify",
    "latex2sympy2_extended",
    "reasoning_gym",
    "fsspec",
    "ray",
    "vllm",
    "huggingface_hub",
    "openai",
    "aiohttp",
    "pandas",
    "torch",
    "pyarrow",
    "multiprocessing.connection",
)
CORE = (
    "types",
    "errors",
    "rng",
    "config",
    "events",
    "model",
    "network",
    "journal",
    "prompts",
    "reply",
    "calls",
    "evidence",
    "detector",
    "alternatives",
    "reference",
    "beliefs",
    "recovery",
    "reviewers",
    "routing",
    "review",
    "prober",
    "agent",
)


def loaded(statement):
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment(),
    )
    return set(done.stdout.split())


def heavy(modules):
    return sorted({m.partition(".")[0] for m in modules} & set(HEAVY))


def test_import_meshheal_loads_hardly_anything():
    bare, modules = loaded("pass"), loaded("import meshheal")
    ours = {m for m in modules - bare if not m.startswith("meshheal")}
    assert not heavy(ours)
    assert not {m for m in ours if m.partition(".")[0] in ("pydantic", "msgspec", "rich", "typer", "zstandard")}
    assert len(modules - bare) < 30


@pytest.mark.slow
@pytest.mark.parametrize("module", ["agent", "methods", "answers"])
def test_the_core_loads_no_heavy_library(module):
    assert not heavy(loaded(f"import meshheal.{module}") - loaded("pass"))


def test_every_core_module_is_loaded_by_the_agent_or_stands_for_itself():
    modules = loaded("import meshheal.agent, meshheal.methods")
    missing = [m for m in CORE if f"meshheal.{m}" not in modules]
    assert missing == []
    assert not [m for m in modules if m == "sim" or m.startswith(("sim.", "topologies"))]


@pytest.mark.slow
def test_the_command_says_its_version_without_loading_solvers():
    modules = loaded(
        "import sys\nsys.argv = ['meshheal', '--version']\nfrom meshheal.cli.app import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass"
    )
    assert not {"sympy", "math_verify", "reasoning_gym", "scipy"} & modules
