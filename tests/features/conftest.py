"""A lake of real samples, shared by the tests of features."""

from pathlib import Path

import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake


@pytest.fixture(scope="session")
def real(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("real")
    for source, path, name in (("philly", "philly_rebuilt", "philly-rebuilt"), ("helios", "helios", "helios")):
        ingest(source, traces / path, folder, as_name=name)
    ingest("pai", traces / "pai", folder)
    return Lake(folder)
