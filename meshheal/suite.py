"""Suite: several experiments as one study. A grid of benchmarks, sizes or doses, with one directory and one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from meshheal.errors import UsageError
from meshheal.experiment import Experiment, prepare
from meshheal.exposition import Exposition
from meshheal.study import Parallel, Study, Watch, run_all
from meshheal.trace.rundir import RunDir, create_suite, find_run, read_json, suite_runs, write_json
from meshheal.tuning import Tuned
from sim.models.figures import End
from sim.workloads import WorkloadSpec

SCHEMA_VERSION = 1
DATA = {"BBH": ("bbh", "bbh"), "MATH": ("math", "math/test.jsonl"), "MMLU-Pro": ("mmlu_pro", "mmlu_pro")}
"""For each benchmark the workload of its real items, and where they lie in a data folder."""


class Suite(Struct, frozen=True, kw_only=True):
    """What is studied together. `experiments` have labels, which name their directories; `columns` are the measures of
    the combined table. A claim belongs into the docstring of the script that declares it.
    """

    name: str
    experiments: dict[str, Experiment]
    columns: tuple[str, ...] = ("accuracy_degraded", "tokens_per_task", "detected", "detection_tasks")
    after: Callable[[Path, Mapping[str, Study]], None] | None = None
    """What is to be made of the logs once all is run, e.g. `meshheal.operating.compare_detectors`."""

    def only(self, labels: Sequence[str]) -> Suite:
        """The experiments of some labels. Raises `UsageError` for one that is not there."""
        unknown = [label for label in labels if label not in self.experiments]
        if unknown:
            raise UsageError(f"--only {unknown[0]}: {self.name} has {', '.join(self.experiments)}")
        return replace(self, experiments={label: self.experiments[label] for label in labels})

    def changed(self, change: Callable[[Experiment], Experiment]) -> Suite:
        """The same suite with every experiment changed."""
        return replace(self, experiments={label: change(e) for label, e in self.experiments.items()})


def at_profile_ends(declared: Experiment | Suite) -> Suite:
    """The same with simulated models at the low end, the value and the high end of their estimated ranges.

    Intervals over seeds leave out what is uncertain about the profiles themselves; this shows it beside them.
    """
    one = isinstance(declared, Experiment)
    every = {declared.name: declared} if isinstance(declared, Experiment) else declared.experiments
    ends: tuple[End, ...] = ("low", "value", "high")
    made = {end if one else f"{label}-{end}": replace(e, profile_end=end) for label, e in every.items() for end in ends}
    columns = Suite(name="", experiments={}).columns if isinstance(declared, Experiment) else declared.columns
    return Suite(name=f"{declared.name}-ends", experiments=made, columns=columns)


def also_tuned(declared: Experiment | Suite, tuned: Tuned) -> Suite:
    """Every experiment as declared, and beside it, named -tuned, with the settings that tuning chose for its methods."""
    one = isinstance(declared, Experiment)
    every = {declared.name: declared} if isinstance(declared, Experiment) else declared.experiments
    made: dict[str, Experiment] = {}
    for label, e in every.items():
        made["published" if one else label] = e
        made["tuned" if one else f"{label}-tuned"] = replace(
            e, name=f"{e.name}_tuned", by_method=tuned.settings, tuned_on=tuned.seeds
        )
    if isinstance(declared, Suite):
        return replace(declared, name=f"{declared.name}-tuned", experiments=made)
    return Suite(name=f"{declared.name}-tuned", experiments=made)


def real(spec: WorkloadSpec, folder: Path) -> WorkloadSpec:
    """The benchmark's own items in place of generated ones that stand for it; others stay. `folder` holds the data sets."""
    if spec.benchmark is None:
        return spec
    name, where = DATA[spec.benchmark]
    if not (folder / where).exists():
        raise UsageError(
            f"--data {folder}: there is no {where} in it; a study needs bbh/, math/test.jsonl and mmlu_pro/"
        )
    return replace(spec, name=name, data=str(folder / where), benchmark=None)


class SuiteStudy:
    """Holds the directories of a suite for writing and fills them."""

    def __init__(self, suite: Suite, path: Path, studies: Mapping[str, Study]) -> None:
        self.suite = suite
        self.path = path
        self.studies = dict(studies)

    @property
    def name(self) -> str:
        return self.path.name

    @classmethod
    def start(cls, suite: Suite, out: Path, now: datetime) -> SuiteStudy:
        """Check the experiments and make the directories. Raises `UsageError`, `TraceError`."""
        if not suite.experiments:
            raise UsageError(f"suite {suite.name}: no experiment is declared")
        prepared = {label: prepare(e) for label, e in suite.experiments.items()}
        path = create_suite(out, suite.name, now, _declared(suite))
        return cls(suite, path, {label: Study.start_at(p, path / label) for label, p in prepared.items()})

    @classmethod
    def resume(cls, run: str, out: Path, suite: Suite) -> SuiteStudy:
        """Go on with a study of the same experiments. Raises `UsageError` where they were others."""
        found = find_run(run, out)
        if isinstance(found, RunDir):
            raise UsageError(f"--resume {run}: that is the run of one experiment, not of the study {suite.name}")
        if read_json(found / "suite.json") != _declared(suite):
            raise UsageError(
                f"--resume {found.name}: that study has other experiments; give the same options, "
                "or start a new one without --resume"
            )
        runs = suite_runs(found)
        studies: dict[str, Study] = {}
        for label, e in suite.experiments.items():
            directory = runs[label]
            begun = (directory.path / "experiment.json").is_file()
            prepared = prepare(e)
            studies[label] = Study.resume_at(prepared, directory) if begun else Study.start_at(prepared, directory.path)
        return cls(suite, found, studies)

    def run(self, parallel: Parallel, watches: Sequence[Watch], exposition: Exposition | None = None) -> dict[str, Any]:
        """Run what is not complete yet, write every results.json and the study's own, return its content."""
        found = run_all(list(self.studies.values()), parallel, watches, exposition)
        content = {
            "schema_version": SCHEMA_VERSION,
            "suite": self.suite.name,
            "valid": all(r["valid"] for r in found),
            "columns": list(self.suite.columns),
            "experiments": dict(zip(self.studies, found, strict=True)),
        }
        write_json(self.path / "results.json", content)
        if self.suite.after is not None:
            self.suite.after(self.path, self.studies)
        return content


def _declared(suite: Suite) -> dict[str, Any]:
    return {"name": suite.name, "experiments": list(suite.experiments), "columns": list(suite.columns)}


def main(suite: Suite) -> None:
    """Run a suite from a script: reads the command line, prints, exits."""
    from meshheal.cli.run import script

    script(suite)
