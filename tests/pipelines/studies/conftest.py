"""The folder of real measurements where there is one, and a made-up one of the same form."""

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipelines.studies.made_up import write_folder


@pytest.fixture(scope="session")
def energy() -> Path:
    """Return the folder of real measurements (`TAUT_ENERGY`), or skip."""
    folder = Path(os.environ.get("TAUT_ENERGY", ROOT.parent / "shared" / "energy")).resolve()
    if not (folder / "README.md").is_file():
        pytest.skip("no real energy measurements here: set TAUT_ENERGY to their folder")
    return folder


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "energy")
