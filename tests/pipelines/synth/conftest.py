"""One synthetic trace of 20 000 tasks, shared by the tests of its format and of its calibration."""

from pathlib import Path

import pytest

from pipelines.synth.pai import SynthReport, synthesise
from tests.pipelines.synth.trace_tables import Tables, read_tables


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synth")


@pytest.fixture(scope="session", autouse=True)
def made(folder: Path) -> SynthReport:
    return synthesise(folder, tasks=20_000, seed=11)


@pytest.fixture(scope="session")
def tables(folder: Path, made: SynthReport) -> Tables:
    return read_tables(folder)
