"""Small experiments on made-up MMLU-Pro files, for tests of whole runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from meshheal.experiment import Experiment
from meshheal.rng import uniform
from sim.faults import swap
from sim.workloads import mmlu_pro
from sim.workloads.mmlu_pro import GROUPS, LETTERS
from topologies import complete

ROOT = Path(__file__).resolve().parents[1]
RECORDED = {"strong-a": 0.85, "strong-b": 0.8, "strong-c": 0.75, "weak": 0.2, "outside": 0.4}
MAIN = "from meshheal.cli.app import run; run()"
CATEGORIES = [c for group in GROUPS.values() for c in group]


def write_outputs(folder: Path, questions: int = 60, models: dict[str, float] | None = None) -> Path:
    """Files as MMLU-Pro publishes them: what each model said on made-up questions, right with a given chance."""
    folder.mkdir(parents=True, exist_ok=True)
    for model, accuracy in (models or RECORDED).items():
        rows = []
        for q in range(questions):
            gold = LETTERS[q % 10]
            said = gold if uniform(model, q) < accuracy else LETTERS[(q + 1 + int(9 * uniform(model, q, "w"))) % 10]
            rows.append(
                {
                    "question_id": 70 + q,
                    "question": f"Made-up question {q}?",
                    "options": [f"option {x}" for x in range(10)],
                    "answer": gold,
                    "category": CATEGORIES[q % len(CATEGORIES)],
                    "pred": said,
                    "model_outputs": f"Let us think about question {q}. The answer is ({said}).",
                }
            )
        (folder / f"model_outputs_{model}_5shots.json").write_text(json.dumps(rows))
    return folder


def simulated(data: Path, tasks: int = 60, **fields: Any) -> Experiment:
    """Six agents of simulated models; two fall in turn."""
    return Experiment(
        **{
            "name": "tiny",
            "topology": complete(6),
            "workload": mmlu_pro(tasks=tasks, data=str(data)),
            "healthy": "synthetic/gpt-oss-120b",
            "outside": "synthetic/llama-3.1-8b",
            "faults": (
                swap(0, "synthetic/llama-3.2-1b", tasks // 6, tasks // 2),
                swap(3, "synthetic/llama-3.2-1b", tasks // 3, 2 * tasks // 3),
            ),
            "methods": ("meshheal", "unprotected"),
            "seeds": 2,
            **fields,
        }
    )


def recorded(data: Path, tasks: int = 60, **fields: Any) -> Experiment:
    """The same on recorded models."""
    return simulated(
        data,
        tasks,
        **{
            "healthy": ("recorded/strong-a", "recorded/strong-b", "recorded/strong-c"),
            "outside": "recorded/outside",
            "faults": (
                swap(0, "recorded/weak", tasks // 6, tasks // 2),
                swap(3, "recorded/weak", tasks // 3, 2 * tasks // 3),
            ),
            **fields,
        },
    )


SCRIPT = '''"""A tiny experiment."""
from meshheal.experiment import main
from tiny import {kind}

EXPERIMENT = {kind}({data!r}, {tasks})

if __name__ == "__main__":
    main(EXPERIMENT)
'''


def write_script(folder: Path, kind: str = "simulated", tasks: int = 60, questions: int = 60) -> Path:
    """A script that declares a tiny experiment, with its data beside it."""
    data = write_outputs(folder / "data", questions)
    path = folder / "tiny_experiment.py"
    path.write_text(SCRIPT.format(kind=kind, data=str(data), tasks=tasks))
    return path


def environment(**extra: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "140", "NO_COLOR": "1", **extra}


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `meshheal ...` in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **{"env": environment(), **options},
    )
