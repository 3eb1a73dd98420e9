"""Fixtures that several test files share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


def data_folder() -> Path:
    """The folder of published data sets: MESHHEAL_DATA, else ../shared/data. Skips the test where there is none."""
    folder = Path(os.environ.get("MESHHEAL_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}; set MESHHEAL_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def data() -> Path:
    """See `data_folder`."""
    return data_folder()


@pytest.fixture
def script():
    """What the agents of `world` say; change it before playing."""
    from scripted import Script

    return Script()


@pytest.fixture
def world(script) -> Callable:
    """Makes a world of six scripted agents and plays it: `world(n, ...)` gives the log (see scripted.make_world)."""
    from scripted import Played, make_world

    def play(n: int = 1, **options):
        return Played(make_world(n, script=script, **options))

    return play
