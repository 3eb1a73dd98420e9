"""Mathematical tasks generated offline, nearly all by reasoning-gym, with answers that are checked exactly.

An item's id names its data set and the number it is generated from, so an id means the same task everywhere.
Published accuracies on MATH stand for the models' accuracies here; that is a declared proxy, not a
measurement.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from meshheal.answers import instruction
from meshheal.answers.plain import number_text, text_form
from meshheal.errors import UsageError
from meshheal.rng import Stream
from meshheal.types import Ability, AnswerForm, Message, Task
from sim.workloads.equations import linear_equation
from sim.workloads.sheet import AnswerSheet, Workload


class _Kind(NamedTuple):
    """A data set: where its module in reasoning-gym is, how its answers look, settings that differ from its
    defaults.
    """

    module: str
    form: AnswerForm
    settings: Mapping[str, Any] = MappingProxyType({})


_NUMBER = AnswerForm("number")
_TEXT = AnswerForm("text")
_COLOURS = (
    "red", "green", "blue", "yellow", "orange", "purple", "pink", "brown", "gray", "black",
    "white", "gold", "silver", "indigo", "violet", "cyan", "magenta",
)  # fmt: skip

KINDS: dict[str, _Kind] = {
    "chain_sum": _Kind("arithmetic.chain_sum", _NUMBER, {"min_terms": 3, "max_terms": 6}),
    "products": _Kind("arithmetic.products", _NUMBER, {"min_digits": 2, "max_digits": 4}),
    "gcd": _Kind("arithmetic.gcd", _NUMBER),
    "lcm": _Kind("arithmetic.lcm", _NUMBER, {"min_value": 2, "max_value": 500}),
    # Text, since the answer asked for is the reduced fraction and no other of the same value.
    "fraction_simplification": _Kind("arithmetic.fraction_simplification", _TEXT, {"styles": ("plain",)}),
    "prime_factorization": _Kind("arithmetic.prime_factorization", _TEXT, {"min_value": 100, "max_value": 100_000}),
    "linear_equation": _Kind("", _NUMBER),
    "complex_arithmetic": _Kind("algebra.complex_arithmetic", _TEXT),
    "simple_geometry": _Kind("geometry.simple_geometry", _NUMBER),
    "color_cube_rotation": _Kind("cognition.color_cube_rotation", AnswerForm("text", _COLOURS)),
}
"""The data sets in use: short answers, exactly checkable, quick to generate.

`linear_equation` is ours, since sympy writes reasoning-gym's own equations, forty times slower than the rest."""

ABILITIES: dict[str, dict[Ability, dict[str, int]]] = {
    "math": {
        "algebra": {"linear_equation": 1, "complex_arithmetic": 1},
        "arithmetic": dict.fromkeys(
            ("chain_sum", "products", "gcd", "lcm", "fraction_simplification", "prime_factorization"), 1
        ),
        "geometry": {"simple_geometry": 2, "color_cube_rotation": 1},
    },
}
"""For each set of tasks the abilities, and for each ability its data sets with their share."""


class GymWorkload(Workload):
    """Items come from a generator without end: none repeats."""

    subject: str = "math"

    def tasks(self, n: int, seed: int) -> list[Task]:
        """`n` tasks with distinct questions, abilities uniform; the first m of n are the same for any n."""
        draw = Stream(seed, "workload", self.name)
        table = {a: _tickets(self.subject, a) for a in self.abilities}
        seen: set[str] = set()
        tasks: list[Task] = []
        while len(tasks) < n:
            kind, ability = draw.choice(table[(name := draw.choice(self.abilities))]), name
            while True:
                number = draw.index(2**31)
                question, gold = _generate(kind, number)
                if gold and question not in seen:
                    break
            seen.add(question)
            form = KINDS[kind].form
            task = Task(
                f"{kind}/{number}",
                (Message("user", f"{question}\n{instruction(form)}"),),
                form,
                ability,
                kind,
            )
            self.sheet.add(task.id, gold)
            tasks.append(task)
        return tasks


def load(subject: str) -> Workload:
    """The generated workload of a subject; raises `UsageError` for one that is not there."""
    if subject not in ABILITIES:
        raise UsageError(f"workload: gym has no tasks on {subject!r}; choose one of {', '.join(ABILITIES)}")
    version = _version()
    return GymWorkload(
        name=f"gym:{subject}",
        benchmark="MATH",
        abilities=tuple(sorted(ABILITIES[subject])),
        sheet=AnswerSheet(),
        source=f"reasoning-gym {version}, generated; MATH is the declared proxy for model accuracies",
        subject=subject,
    )


@lru_cache(maxsize=64)
def _tickets(subject: str, ability: Ability) -> tuple[str, ...]:
    return tuple([kind for kind, share in ABILITIES[subject][ability].items() for _ in range(share)])


def _version() -> str:
    from importlib.metadata import version

    return version("reasoning-gym")


def _generate(kind: str, number: int) -> tuple[str, str]:
    """Question and gold answer of an item; the answer is empty where the item is not to be used."""
    if kind == "linear_equation":
        return linear_equation(number)
    entry = _dataset(kind)[number]
    answer = str(entry["answer"])
    if kind == "simple_geometry" and not 0 < float(answer) < 180:
        return "", ""  # "convex", says the question, which such an angle contradicts
    form = KINDS[kind].form
    gold = number_text(answer) if form.kind == "number" else answer if form.options else text_form(answer)
    return str(entry["question"]), gold or ""


@lru_cache(maxsize=64)
def _dataset(kind: str) -> Any:
    where = KINDS[kind]
    _submodule(where.module)
    factory = sys.modules["reasoning_gym.factory"]
    make, config = factory.DATASETS[kind]
    return make(config(seed=0, size=2**31, **where.settings))


def _submodule(name: str) -> ModuleType:
    """`reasoning_gym.<name>` without what the package's own `__init__` imports (matplotlib and more: over a
    second).
    """
    full = f"reasoning_gym.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("workload: reasoning-gym is not installed; run `pip install reasoning-gym`")
    root = spec.submodule_search_locations[0]
    group = name.partition(".")[0]
    stand_ins = {}
    for package, path in (("reasoning_gym", root), (f"reasoning_gym.{group}", f"{root}/{group}")):
        if package not in sys.modules:
            stand_ins[package] = ModuleType(package)
            stand_ins[package].__path__ = [path]
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(full)
    finally:
        for package in stand_ins:  # so that whoever imports the whole package gets the whole package
            sys.modules.pop(package, None)
