"""Running servers for the server's tests: real processes on free ports of the loopback, ended by their own id."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.modelserve.server.running import HERE, Running, check_serving, start, stop

Start = Callable[..., Running]


@contextmanager
def launching(folder: Path) -> Iterator[Start]:
    """Yield a function that starts a server of stand-in workers with settings, and waits until it serves."""
    running: list[Running] = []

    def begin(*, ready: bool = True, environment: dict[str, str] | None = None, **settings: object) -> Running:
        said = {"port": 0, "drain_s": 0, "stop_limit_s": 5, "bundles": folder / "bundles", **settings}
        values = {f"TAUT_SERVE_{name.upper()}": str(value) for name, value in said.items()}
        one = start([sys.executable, str(HERE / "launch.py")], {**values, **(environment or {})})
        running.append(one)
        if ready:
            check_serving(one)
        return one

    yield begin
    for one in running:
        stop(one)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts servers of stand-in workers, which end with the test."""
    with launching(tmp_path) as begin:
        yield begin


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a server with the usual settings, for all tests that only send to it."""
    with launching(tmp_path_factory.mktemp("server")) as begin:
        yield begin()
