"""A Prometheus of one's own on a free port, for the tests and the pictures: started, asked, ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from dashboards.panels import Dashboard

RULES = Path(__file__).parent / "prometheus" / "rules.yml"
_READY = "Server is ready to receive web requests"


class Prometheus:
    """One that is up, by its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: object) -> Any:
        """`data` of an answer of the HTTP API. Raises `OSError` where the query is refused."""
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def at(self, expr: str, time: float) -> list[dict[str, Any]]:
        """Series of an instant query: {metric, value: [time, text]}."""
        return self.get("query", query=expr, time=time)["result"]  # type: ignore[no-any-return]

    def over(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Series of a range query: {metric, values: [[time, text], ...]}."""
        return self.get("query_range", query=expr, start=start, end=end, step=step)["result"]  # type: ignore[no-any-return]

    def rules(self) -> dict[str, str]:
        """Expression by name of rule."""
        return {rule["name"]: rule["query"] for group in self.get("rules")["groups"] for rule in group["rules"]}


def installed() -> bool:
    """Whether Prometheus and promtool are there."""
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def backfill(openmetrics: Path, data: Path) -> None:
    """Take an OpenMetrics file into a data directory. Raises `RuntimeError` with what promtool says."""
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(openmetrics), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"promtool: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def running(data: Path, targets: dict[str, list[str]] | None = None, rules: bool = True) -> Iterator[Prometheus]:
    """Prometheus over a data directory, scraping `targets` (address lists by job) every second. Raises `RuntimeError`."""
    data.mkdir(parents=True, exist_ok=True)
    config = data.parent / f"{data.name}.yml"
    jobs = [{"job_name": job, "static_configs": [{"targets": to}]} for job, to in (targets or {}).items()]
    content = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": jobs,
        "rule_files": [str(RULES)] if rules else [],
    }
    config.write_text(json.dumps(content))  # JSON is YAML
    port = _free_port()
    command = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=10y",
        f"--web.listen-address=127.0.0.1:{port}", "--query.lookback-delta=5m",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=_environment()
    )
    try:
        _await_ready(process)
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if _READY in line:
            # What it says from now on is thrown away, so that it never waits for a reader.
            threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
            return
    raise RuntimeError(f"prometheus ended at its start: {''.join(said[-3:])}")


def _drain(stream: Any) -> None:
    try:
        for _ in stream:
            pass
    except ValueError:  # closed
        pass


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bound(expr: str, window: str = "30m", span: str = "12h", **chosen: str) -> str:
    """An expression of a panel as Grafana would send it: its variables replaced (everything chosen by default)."""
    values = {"window": window, "__range": span, "run": ".*", "method": ".*", "twin": ".*", "seed": ".*", "agent": ".*"}
    return re.sub(r"\$(\w+)", lambda m: {**values, **chosen}[m[1]], expr)


def expressions(dashboard: Dashboard) -> list[tuple[str, str]]:
    """(panel's title, expression) of every query on a dashboard."""
    return [(panel.title, query.expr) for panel in dashboard.panels() for query in panel.queries]
