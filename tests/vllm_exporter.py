"""A server that exposes vLLM's metrics by the names vLLM 0.32 has for them, served directly and under Ray."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
COUNTERS = ("prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total", "generation_tokens_total")
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
)
SPELLINGS = {"vllm:": 'model_name="smollm2-135m",engine="0"', "ray_vllm_": 'model_name="smollm2-135m",WorkerId="w1"'}


def exposed(n: int) -> str:
    """The page at its n-th scrape: counters have grown in proportion."""
    lines = []
    for prefix, labels in SPELLINGS.items():
        lines += [f"{prefix}{name}{{{labels}}} {(n % 3) / 4}" for name in GAUGES]
        lines += [f"{prefix}{name}{{{labels}}} {10 * n}" for name in COUNTERS]
        lines.append(f'{prefix}request_success_total{{{labels},finished_reason="stop"}} {n}')
        for name in HISTOGRAMS:
            for share, le in ((1, "0.1"), (3, "1.0"), (4, "+Inf")):
                lines.append(f'{prefix}{name}_bucket{{{labels},le="{le}"}} {share * n}')
            lines += [f"{prefix}{name}_count{{{labels}}} {4 * n}", f"{prefix}{name}_sum{{{labels}}} {2 * n}"]
    return "\n".join(lines) + "\n"


@contextmanager
def serving() -> Iterator[str]:
    """The exporter's address while it runs."""
    scrapes = 0

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal scrapes
            scrapes += 1
            body = exposed(scrapes).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
