"""One synthetic trace of 20 000 tasks, shared by the tests of its format and of its calibration."""

from pathlib import Path

import pytest

from pipelines.synth.pai import SynthReport, synthesise
from tests.pipelines.synth.trace_tables import Tables, read_tables


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> SynthReport:
    return synthesise(tmp_path_factory.mktemp("synth"), tasks=20_000, seed=11)


@pytest.fixture(scope="session")
def folder(made: SynthReport) -> Path:
    return made.folder


@pytest.fixture(scope="session")
def tables(folder: Path) -> Tables:
    return read_tables(folder)
