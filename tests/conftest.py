"""Fixtures every package's tests share: where the real trace samples are, and logging as it was before a test."""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler.loadfile import LoadFileScheduling

from tests.examples import FEW, QUICK

settings.register_profile(QUICK, derandomize=True, deadline=None, max_examples=FEW)
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("wide", max_examples=1000, deadline=None)

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same examples every time, fewer if slow tests are left out; others with HYPOTHESIS_PROFILE=wide."""
    os.environ.pop("COLUMNS", None)  # some parent processes set it, and tables are fitted to it
    gc.disable()  # a quarter of the time of collecting the tests; see `pytest_collection_finish`
    quick = config.option.markexpr == "not slow"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", QUICK if quick else "steady"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect tests/live for `-m live` only; do not import a file of slow tests alone if slow tests are left out."""
    if collection_path == ROOT / "tests" / "live":
        return config.option.markexpr != "live" or None
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow" in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_finish() -> None:
    """Keep modules and tests, which stay, out of the collections of garbage from here on."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the end of the process collect everything."""
    gc.unfreeze()


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Spread tests by file, but some folders as one: the live Slurm has one set of cgroups, the contract one lake."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in ("/slurm/", "/contract/") if folder in file), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:  # Any: xdist's log
    """Spread the slow suite by file, in the order of `pytest_collection_modifyitems`."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # by number of tests: the longest file has five, and would come last
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes minutes, so that no process waits for it at the end."""
    items.sort(key=lambda item: not any(each in item.nodeid for each in ("test_demo.py", "/slurm/", "/contract/")))


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the folder of real trace samples (`TAUT_TRACES`), or skip."""
    folder = Path(os.environ.get("TAUT_TRACES", ROOT.parent / "shared" / "traces")).resolve()
    if not (folder / "README.md").is_file():
        pytest.skip("no real trace samples here: set TAUT_TRACES to their folder")
    return folder


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Take back what a command run inside a test did to the root logger: its stream is closed when the test ends."""
    root = logging.getLogger()
    level, before = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler and each not in before]:
        root.removeHandler(handler)
