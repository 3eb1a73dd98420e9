"""Results for somewhere else: a run that is written here and copied to any path that fsspec knows, such as s3://bucket/runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshheal.experiment import Arm
from meshheal.folds.summary import SeedResult
from meshheal.study import Snapshot, Watch
from meshheal.trace.upload import reachable, upload

HERE = Path("runs")
"""Where a run is written whose results go elsewhere."""


class Away:
    """Where the runs of a command go. `here` is where they are written."""

    def __init__(self, out: str | Path) -> None:
        """Raises `UsageError` for a URL that nobody can open."""
        self.url = str(out) if "://" in str(out) else None
        self.here = Path(out) if self.url is None else HERE
        if self.url is not None:
            reachable(self.url)

    def copy(self, run: Path) -> str:
        """Copy what is whole of a run, where it is to be elsewhere; where it then is. Raises `TraceError`."""
        if self.url is None:
            return str(run)
        upload(run, self.url)
        return f"{self.url.rstrip('/')}/{run.name}"

    def copying(self, run: Path, watches: Sequence[Watch]) -> list[Watch]:
        """Watchers that copy the run each time that one of its arms has ended, besides."""
        return list(watches) if self.url is None else [self._copying(run, watch) for watch in watches]

    def _copying(self, run: Path, watch: Watch) -> Watch:
        def watched(arm: Arm, value: Snapshot | SeedResult) -> None:
            watch(arm, value)
            if isinstance(value, SeedResult):
                self.copy(run)

        return watched
