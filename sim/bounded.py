"""Models behind servers, none of whose calls lasts for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from meshheal.errors import ModelError
from meshheal.model import Completion, Model, Request


class Bounded:
    """A live model whose calls end within `seconds` in real time, whatever its server and its own deadline do."""

    nature: Literal["live"] = "live"

    def __init__(self, model: Model, seconds: float) -> None:
        self.name = model.name
        self.family = model.family
        self._model = model
        self._seconds = seconds

    async def complete(self, request: Request) -> Completion:
        """See `Model`. Raises `ModelError` where the time is over."""
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await self._model.complete(request)
        except TimeoutError:
            if limit.expired():
                raise ModelError("timeout") from None
            raise

    async def aclose(self) -> None:
        """End the model's connections, where it has any."""
        aclose: Any = getattr(self._model, "aclose", None)
        if aclose is not None:
            await aclose()


def bounded(model: Callable[[str], Model], seconds: float) -> Callable[[str], Model]:
    """`model` with its live models bounded."""
    made: dict[str, Model] = {}

    def named(name: str) -> Model:
        if name not in made:
            found = model(name)
            made[name] = Bounded(found, seconds) if found.nature == "live" else found
        return made[name]

    return named
