"""vLLM servers on CPU cores: the command, the environment, and what has to be there before they can start."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from meshheal.errors import UsageError
from sim.live.servers import HOST, Launch

PYTHON = Path(".venv-vllm/bin/python")
"""Interpreter of the environment that `make live-setup` makes; MESHHEAL_VLLM_PYTHON names another."""
WEIGHTS = Path("weights/smollm2-135m")
"""Folder that `make live-weights` fills; MESHHEAL_LIVE_WEIGHTS names another."""
SERVED = "smollm2-135m"
"""The name under which every copy is served: a client cannot tell them apart by it."""


class Copy(Struct, frozen=True):
    """A copy of the model as it is served; `weights` is a folder of `WEIGHTS`."""

    name: str
    weights: str = "healthy"


def launches(copies: tuple[Copy, ...], context: int = 512) -> list[Launch]:
    """One server a copy: same served name, one core, 1 GB of KV cache, `context` tokens.

    Raises `UsageError` where the environment or the weights are missing.
    """
    python = Path(os.environ.get("MESHHEAL_VLLM_PYTHON") or PYTHON)
    if not python.is_file():
        raise UsageError(f"vllm: no interpreter at {python}; run `make live-setup`, or set MESHHEAL_VLLM_PYTHON")
    root = Path(os.environ.get("MESHHEAL_LIVE_WEIGHTS") or WEIGHTS)
    cores = sorted(os.sched_getaffinity(0))
    return [_launch(copy, python, root, cores[n % len(cores)], context) for n, copy in enumerate(copies)]


def _launch(copy: Copy, python: Path, root: Path, core: int, context: int) -> Launch:
    weights = root / copy.weights
    if not (weights / "config.json").is_file():
        raise UsageError(f"vllm: no weights at {weights}; run `make live-weights`, or set MESHHEAL_LIVE_WEIGHTS")
    command = [
        str(python), "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(weights), "--served-model-name", SERVED,
        "--host", HOST, "--port", "{port}",
        "--max-model-len", str(context), "--dtype", "float32", "--enforce-eager",
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
    }
    return Launch(copy.name, tuple(command), environment)
