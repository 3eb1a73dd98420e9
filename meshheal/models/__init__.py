"""Models behind OpenAI-compatible servers: vLLM, SGLang, llama.cpp, hosted ones.

`served` describes where a model is served, `openai` is the model, `likelihood` its answers and scores by likelihood. One call
passes `endpoints` (which server, how many at a time), `retries` (what is tried again, and when), `client` (HTTP, on
aiohttp) and `replies` (what the server said). A call that cannot be had ends in a `ModelError` whose boundary is one of
`BOUNDARIES`.
"""

from __future__ import annotations

from meshheal.models.openai import OpenAI
from meshheal.models.retries import BOUNDARIES
from meshheal.models.served import Served

__all__ = ["BOUNDARIES", "OpenAI", "Served"]
