"""Fixtures that several test files share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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


RUNTIMES = ("local", "realtime", "ray")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of conformance runs on each runtime that its marker names: the local and the real-time one by default."""
    marker = metafunc.definition.get_closest_marker("conformance")
    if marker is None:
        return
    names = marker.args or (RUNTIMES if os.environ.get("MESHHEAL_CONFORMANCE") == "all" else RUNTIMES[:2])
    params = [pytest.param(n, marks=pytest.mark.ray) if n == "ray" else n for n in names]
    metafunc.parametrize("runtime", params, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def runtime(request) -> Iterator[str]:
    """The runtime that worlds of this test are played on; the local one unless the test is one of conformance."""
    from scripted import RUNTIME

    name = getattr(request, "param", "local")
    if name == "ray":
        request.getfixturevalue("cluster")
    RUNTIME.append(name)
    yield name
    RUNTIME.pop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray on this machine, for all tests of a process. Skips where it is not installed."""
    ray = pytest.importorskip("ray", reason="needs the extra `ray`")
    from sim import ray_session

    with pytest.MonkeyPatch.context() as patch:
        # Hosts unpickle the models of these tests.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        ray_session.connect()
        yield
        ray.shutdown()


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
