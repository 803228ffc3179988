"""One lake for the tests of commands that only read it."""

from pathlib import Path

import pytest

from pipelines.lake.ingest import ingest
from pipelines.synth.pai import synthesise
from tests.pipelines.conftest import PHILLY


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of a synthetic trace with use, and of four jobs of Philly without."""
    folder = tmp_path_factory.mktemp("commands")
    synthesise(folder / "raw", tasks=1000, seed=3, tagged_share=0.9)
    ingest("pai", folder / "raw", folder / "lake", as_name="pai-synth")
    ingest("philly", PHILLY.write(folder / "philly"), folder / "lake")
    return folder / "lake"
