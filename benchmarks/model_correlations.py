"""How models err together: recorded ones, simulated ones side by side, and the figures that profiles take
from it.

    python benchmarks/model_correlations.py --data DIR
 DIR holds the published MMLU-Pro outputs and, for the consistency of repeated samples,
`qwen2.5_math_samples.jsonl` (both are looked for in its subfolders too). Prints, for each pair of models: how
often both are wrong, the correlation of their errors (phi, and tetrachoric: of the normal variables behind
them), and how often they give the same letter where both are wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, least_squares
from scipy.stats import multivariate_normal, norm

from meshheal.answers import read
from meshheal.model import CallKey, Request, Sampling
from meshheal.types import Task, TaskId
from sim.models import PROFILES, Synthetic, recordings
from sim.models.figures import Estimated, Profile, Published
from sim.workloads.mmlu_pro import load
from sim.workloads.sheet import AnswerSheet

STAND_INS = {
    "gemini-1.5-pro-002": "gpt-oss-120b",
    "gemini-1.5-flash-002": "gpt-oss-120b",
    "Meta-Llama-3_1-70B-Instruct": "gpt-oss-120b",
    "Meta-Llama-3_1-8B-Instruct": "llama-3.1-8b",
    "Llama-2-7b-hf": "llama-3.2-1b",
}
"""Recorded model -> the profile whose habits of erring it is compared with; its accuracy is put in for the
profile's.
"""

MAKERS = ("gemini", "llama")
Answers = Mapping[TaskId, str | None]


class Pair(NamedTuple):
    """How two models err together. `independent` is the rate of both wrong if they did not."""

    both_wrong: float
    independent: float
    phi: float
    tetrachoric: float
    same_letter: float


def maker(model: str) -> str:
    """Who made a model: what its twin's family is."""
    return next((name for name in MAKERS if name in model.lower()), model)


def tetrachoric(p: float, q: float, both: float) -> float:
    """Correlation of two normal variables that lie below their p and q quantiles together with probability
    `both`.
    """
    at = [float(norm.ppf(p)), float(norm.ppf(q))]

    def excess(r: float) -> float:
        return float(multivariate_normal.cdf(at, cov=[[1.0, r], [r, 1.0]])) - both

    return float(brentq(excess, -0.99, 0.999))


def compare(first: Answers, second: Answers, tasks: Mapping[TaskId, Task], sheet: AnswerSheet) -> Pair:
    """The pair's figures over `tasks`; an answer that could not be read is wrong, and no letter."""
    a = np.array([sheet.correct(task, first[i]) for i, task in tasks.items()])
    b = np.array([sheet.correct(task, second[i]) for i, task in tasks.items()])
    wrong = [i for i, x, y in zip(tasks, a, b, strict=True) if not x and not y]
    same = [first[i] is not None and first[i] == second[i] for i in wrong]
    return Pair(
        both_wrong=len(wrong) / len(tasks),
        independent=float((1 - a.mean()) * (1 - b.mean())),
        phi=float(np.corrcoef(a, b)[0, 1]),
        tetrachoric=tetrachoric(float(a.mean()), float(b.mean()), float((a & b).mean())),
        same_letter=float(np.mean(same)),
    )


def recorded_answers(data: Path) -> tuple[dict[str, Answers], dict[TaskId, Task], AnswerSheet]:
    """Model -> item -> the value read from its published text, over the items that all models have."""
    found = {m: p for m, p in recordings.find(data).items() if m in STAND_INS}
    workload = load(next(iter(found.values()))[0].parent)
    every = {task.id: task for tasks in workload.pool.values() for task in tasks}
    texts = {model: recordings.read(model, paths, every) for model, paths in found.items()}
    common = {i: t for i, t in every.items() if all(i in held for held in texts.values())}
    answers: dict[str, Answers] = {
        model: {i: read(t.form, held[i]["produce"][0].text) for i, t in common.items()} for model, held in texts.items()
    }
    return answers, common, workload.sheet


def accuracy_of(answers: Answers, tasks: Mapping[TaskId, Task], sheet: AnswerSheet) -> float:
    """Share of right answers."""
    return sum(sheet.correct(task, answers[i]) for i, task in tasks.items()) / len(tasks)


def stand_in(model: str, answers: Answers, tasks: Mapping[TaskId, Task], sheet: AnswerSheet) -> Profile:
    """The profile to set beside a recorded model: a catalogue profile's habits at the recorded accuracy."""
    right = accuracy_of(answers, tasks, sheet)
    unread = sum(value is None for value in answers.values()) / len(tasks)
    return replace(
        PROFILES[STAND_INS[model]],
        name=model,
        family=maker(model),
        accuracy={"MMLU-Pro": Published(right, "its recorded answers")},
        unreadable_answer=Estimated(unread, unread, unread, "its recorded answers"),
    )


def simulated_answers(profile: Profile, tasks: Mapping[TaskId, Task], sheet: AnswerSheet, seed: int) -> Answers:
    """What the simulated model answers to each task, read from its text."""
    model = Synthetic(profile, sheet, tasks, "MMLU-Pro", seed)
    answers = {}
    for i, task in tasks.items():
        request = Request(task.messages, Sampling(), CallKey(i, 0, "produce", 0))
        answers[i] = read(task.form, model.sample(request, task).texts[0])
    return answers


def consistency(samples: Path) -> tuple[float, float, float]:
    """P(right | another sample right), P(wrong | another wrong), and the correlation of two samples of one
    problem.
    """
    rows = [json.loads(line)["score"] for line in samples.read_text().splitlines() if line.strip()]
    n = len(rows[0])
    right = np.array([sum(map(bool, row)) for row in rows])
    mean = right.mean() / n
    both = float((right * (right - 1)).mean() / (n * (n - 1)))
    neither = float(((n - right) * (n - right - 1)).mean() / (n * (n - 1)))
    return both / mean, neither / (1 - mean), (both - mean**2) / (mean * (1 - mean))


def loadings(pairs: Mapping[tuple[str, str], Pair], accuracy: Mapping[str, float], fresh: float) -> dict[str, float]:
    """One-factor fit with a family share to the correlations of what models can solve, freed of fresh draws.

    Answers follow ability with probability 1 - k, so their phi is (1 - k)^2 times that of ability. The entry
    `family` is the squared loading that pairs of one family share beyond it.
    """
    models = list(accuracy)
    wanted = {}
    for (a, b), pair in pairs.items():
        p, q = accuracy[a], accuracy[b]
        phi = pair.phi / (1 - fresh) ** 2
        wanted[a, b] = tetrachoric(p, q, p * q + phi * (p * (1 - p) * q * (1 - q)) ** 0.5)

    def residuals(x: Sequence[float]) -> list[float]:
        held = dict(zip(models, x[:-1], strict=True))
        kin = {(a, b): maker(a) == maker(b) for a, b in wanted}
        return [held[a] * held[b] + (x[-1] if kin[a, b] else 0.0) - r for (a, b), r in wanted.items()]

    fit = least_squares(residuals, [0.8] * len(models) + [0.05], bounds=(0, [1.0] * len(models) + [0.3]))
    return dict(zip([*models, "family"], map(float, fit.x), strict=True))


def side_by_side(
    answers: Mapping[str, Answers], tasks: Mapping[TaskId, Task], sheet: AnswerSheet, seed: int = 1
) -> dict[tuple[str, str], tuple[Pair, Pair]]:
    """Pair of models -> (recorded, simulated)."""
    twins = {
        model: simulated_answers(stand_in(model, given, tasks, sheet), tasks, sheet, seed)
        for model, given in answers.items()
    }
    return {
        (a, b): (compare(answers[a], answers[b], tasks, sheet), compare(twins[a], twins[b], tasks, sheet))
        for a, b in combinations(answers, 2)
    }


def main() -> None:
    """Print the tables."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--data", type=Path, required=True, help="folder with the published outputs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    data: Path = arguments.data
    answers, tasks, sheet = recorded_answers(data)
    pairs = side_by_side(answers, tasks, sheet, arguments.seed)
    head = ["both wrong", "(indep.)", "phi", "tetrachoric", "same letter"]
    print(f"{'recorded|simulated stand-in':62} {'  '.join([f'{h:11}' for h in head])}")
    for (a, b), (real, drawn) in pairs.items():
        cells = [f"{x:.3f}|{y:.3f}" for x, y in zip(real, drawn, strict=True)]
        print(f"{a:30}  {b:30} {'  '.join(cells)}")
    accuracy = {m: accuracy_of(a, tasks, sheet) for m, a in answers.items()}
    fresh = PROFILES["gpt-oss-120b"].fresh.value
    for path in sorted(data.rglob("qwen2.5_math_samples.jsonl")):
        right, wrong, phi = consistency(path)
        fresh = 1 - phi**0.5
        print(f"\n{path.name}: two samples of a problem")
        print(f"P(right|right) {right:.3f}, P(wrong|wrong) {wrong:.3f}, phi {phi:.3f}, k {fresh:.3f}")
    fit = loadings({k: real for k, (real, _) in pairs.items()}, accuracy, fresh)
    print("loadings:", ", ".join(f"{m} {x:.2f}" for m, x in fit.items()))


if __name__ == "__main__":
    main()
