"""What a run would cost on GPUs: its model calls' tokens, by model, over a server's throughput and a price.

    python benchmarks/cost.py RUN --tokens-per-second gpt-oss-120b=14000 --gpu-hour 3.00

RUN is a run directory. Tokens are as its logs have them: counted by servers, or estimated where models are simulated, which
the output says. Throughput is in prompt and completion tokens together, per GPU; a model that is not named takes `*`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from meshheal.events import ModelCalled, TaskArrived
from meshheal.trace.reader import LogFile
from meshheal.trace.rundir import open_run


def main() -> None:
    """Read the logs, print a line a model and the sum."""
    asked = _arguments()
    speeds = dict(pair.split("=") for pair in asked.tokens_per_second)
    prompt, completion, cached = Counter[str](), Counter[str](), Counter[str]()
    calls, tasks, runs, seconds = 0, 0, 0, 0.0
    directory = open_run(asked.run, Path("runs"))
    for arm in directory.complete_arms():
        if asked.methods and arm.method.removesuffix("+twin") not in asked.methods:
            continue
        runs += 1
        with LogFile(directory.log_path(*arm)) as log:
            for event in log.events():
                if isinstance(event, ModelCalled):
                    calls += 1
                    prompt[event.model] += event.usage.prompt
                    completion[event.model] += event.usage.completion
                    cached[event.model] += event.usage.cached
                tasks += isinstance(event, TaskArrived)
            footer = log.footer or {}
            seconds += footer.get("virtual_seconds", footer.get("seconds", 0.0))
    nature = (directory.results or {}).get("tokens", "estimated")
    print(f"{directory.name}: {runs} runs, {tasks} tasks, {calls} calls; tokens are {nature}")
    hours = 0.0
    for model in sorted(prompt):
        total = prompt[model] + completion[model]
        speed = float(speeds.get(model.partition("/")[2], speeds.get("*", 10_000)))
        hours += total / speed / 3600
        print(
            f"  {model}: {prompt[model]:,} prompt ({cached[model]:,} cached) + {completion[model]:,} completion tokens, "
            f"{total / speed / 3600:.2f} GPU hours at {speed:,.0f} tokens/s"
        )
    each = max(1, runs)
    print(
        f"  {hours:.2f} GPU hours, {hours * asked.gpu_hour:.2f} at {asked.gpu_hour:.2f} a GPU hour, if the GPUs are kept busy"
    )
    print(
        f"  one task at a time: {seconds / each / 3600:.1f} hours a run by the calls' latencies, whatever the throughput"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--tokens-per-second", nargs="+", default=["*=10000"], metavar="MODEL=N")
    parser.add_argument("--gpu-hour", type=float, default=3.0, help="price of a GPU hour")
    parser.add_argument("--methods", nargs="*", help="only these methods' runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
