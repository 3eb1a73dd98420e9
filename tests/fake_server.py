"""A model server in miniature for tests of the supervisor: /health, /v1/models, and likelihoods of its own making.

Run as a process: `python fake_server.py --port N [--dies | --sick-after N | --never-ready]`. Likelihoods: an ending is the
likelier the more letters it shares with its stem, so that answers are steady and differ between tasks.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    checks = 0
    options: argparse.Namespace

    def do_GET(self) -> None:
        if self.path == "/health":
            Handler.checks += 1
            sick = self.options.sick_after is not None and Handler.checks > self.options.sick_after
            self._reply(503 if sick or self.options.never_ready else 200, {})
        else:
            self._reply(200, {"data": [{"id": self.options.name}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choices = [{"index": i, "text": p, "logprobs": likelihoods(p)} for i, p in enumerate(asked["prompt"])]
        words = sum(len(p.split()) for p in asked["prompt"])
        usage = {"prompt_tokens": words, "completion_tokens": 0, "total_tokens": words}
        self._reply(
            200, {"id": "x", "object": "text_completion", "model": asked["model"], "choices": choices, "usage": usage}
        )

    def _reply(self, status: int, body: object) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        return


def likelihoods(prompt: str) -> dict[str, list]:
    """One token a word; a word is the likelier the more letters it shares with the words before it."""
    tokens = [w if i == 0 else f" {w}" for i, w in enumerate(prompt.split(" "))]
    offsets = [len("".join(tokens[:i])) for i in range(len(tokens))]
    before = [set("".join(tokens[:i]).lower()) for i in range(len(tokens))]
    odds = [-float(len(set(t.lower()) - b)) - len(t) / 100 for t, b in zip(tokens, before, strict=True)]
    return {"tokens": tokens, "text_offset": offsets, "token_logprobs": [None, *odds[1:]]}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="smollm2-135m")
    parser.add_argument("--dies", action="store_true")
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--sick-after", type=int, default=None)
    Handler.options = parser.parse_args()
    if Handler.options.dies:
        print("ValueError: these weights are no weights", file=sys.stderr)
        return 1
    server = ThreadingHTTPServer(("127.0.0.1", Handler.options.port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
