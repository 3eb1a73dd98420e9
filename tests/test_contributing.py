"""CONTRIBUTING.md is followed to the letter: each example is put where the page says, in a copy, and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from meshheal.trace.reader import LogFile

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = ("meshheal", "sim", "topologies", "experiments", "benchmarks", "tests", "docs")
FILES = ("pyproject.toml", "README.md")

_FENCE = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WHERE = (
    ("create", re.compile(r"create\s+`([^`]+)`:\s*\Z", re.IGNORECASE)),
    ("end", re.compile(r"At the end of\s+`([^`]+)`,\s+add:\s*\Z")),
    ("below", re.compile(r"In\s+`([^`]+)`,\s+below the line\s+`([^`]+)`,\s+add:\s*\Z")),
)


class Step(NamedTuple):
    """One thing to do: put code somewhere, or run commands."""

    how: str
    file: str
    line: str
    code: str


def steps(heading: str) -> list[Step]:
    """The steps under a heading, in order. A code block whose place is not given fails the test."""
    level = heading.partition(" ")[0]
    section = PAGE.partition(f"\n{heading}\n")[2]
    assert section, f"CONTRIBUTING.md has no heading {heading!r}"
    section = re.split(rf"^{level[:-1]}#? ", section, maxsplit=1, flags=re.MULTILINE)[0]
    found, last = [], 0
    for fence in _FENCE.finditer(section):
        before, last = section[last : fence.start()], fence.end()
        found.append(_step(fence[1], before, fence[2]))
    return found


def _step(language: str, before: str, code: str) -> Step:
    if language == "sh":
        return Step("run", "", "", code)
    for how, pattern in _WHERE:
        match = pattern.search(before)
        if match:
            return Step(how, match[1], match[2] if how == "below" else "", code)
    raise AssertionError(f"CONTRIBUTING.md does not say where this belongs: {code[:80]!r}")


class Copy:
    """A copy of the code to follow the page in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in FILES:
            shutil.copy(ROOT / name, root / name)

    def follow(self, todo: list[Step]) -> str:
        """Do what the steps say; what their commands printed."""
        printed = ""
        for step in todo:
            if step.how == "run":
                for command in step.code.strip().splitlines():
                    printed += self.run(command)
            else:
                self._put(step)
        return printed

    def _put(self, step: Step) -> None:
        path = self.root / step.file
        if step.how == "create":
            assert not path.exists(), f"{step.file} is there already"
            path.write_text(step.code)
            return
        text = path.read_text()
        if step.how == "end":
            path.write_text(text + step.code)
            return
        line = step.line + "\n"
        assert text.count("\n" + line) == 1, f"{step.file} must have this line once: {step.line!r}"
        path.write_text(text.replace("\n" + line, "\n" + line + step.code))

    def run(self, command: str) -> str:
        """Run a command of the page with this interpreter instead of `.venv`."""
        mine = {"python": sys.executable, "pytest": f"{sys.executable} -m pytest -p no:cacheprovider"}
        command = re.sub(r"^\.venv/bin/(\w+)", lambda match: mine[match[1]], command)
        env = {**os.environ, "PYTHONPATH": str(self.root)}
        env.pop("PYTEST_ADDOPTS", None)
        done = subprocess.run(command, shell=True, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def events(self, kind: str, run: int = -1) -> list[Any]:
        """The events of one kind in the log of a run with faults, by default the last one."""
        found = (self.root / "runs").glob("*/events/meshheal-0.jsonl.zst")
        logs = sorted(found, key=lambda path: path.stat().st_mtime_ns)
        with LogFile(logs[run]) as log:
            return [e for e in log.events() if type(e).__name__ == kind]

    def lint(self) -> None:
        """What the page adds keeps the house's style."""
        touched = [str(p) for p in self.root.rglob("*.py") if not (ROOT / p.relative_to(self.root)).exists()]
        self.run(f"{sys.executable} -m ruff check {' '.join(touched)}" if touched else "true")


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.slow
def test_following_the_page_adds_a_detector_that_runs_in_shadow_and_convicts(copy: Copy) -> None:
    printed = copy.follow(steps("## Add a detector"))
    assert "passed" in printed
    assert {e.detector for e in copy.events("ShadowAlarm", run=-2)} == {"streak"}
    assert {0, 3} <= {e.agent for e in copy.events("StateChanged") if e.to == "excluded"}
    copy.lint()


@pytest.mark.slow
def test_following_the_page_adds_a_workload_that_runs(copy: Copy) -> None:
    printed = copy.follow(steps("## Add a workload"))
    assert "1 passed" in printed
    arrived = copy.events("TaskArrived")
    assert len(arrived) == 330
    assert {e.ability for e in arrived} == {"length", "mass", "time"}
    copy.lint()


@pytest.mark.slow
def test_following_the_page_adds_a_profile_that_runs(copy: Copy) -> None:
    copy.follow(steps("### A profile"))
    assert "llama-3.3-70b" in (copy.root / "docs" / "MODELS.md").read_text()
    assert "synthetic/llama-3.3-70b" in {e.model for e in copy.events("ModelCalled")}


@pytest.mark.slow
def test_following_the_page_adds_a_kind_of_model_that_is_found_out(copy: Copy) -> None:
    copy.follow(steps("### A kind of its own"))
    assert "coin/0.3" in {e.model for e in copy.events("ModelCalled")}
    assert {e.agent for e in copy.events("StateChanged") if e.to == "excluded"} == {0, 3}
    copy.lint()


def test_every_example_of_the_page_is_followed() -> None:
    headings = ("## Add a detector", "## Add a workload", "### A profile", "### A kind of its own")
    followed = [step.code for heading in headings for step in steps(heading)]
    assert followed == [fence[2] for fence in _FENCE.finditer(PAGE)]
