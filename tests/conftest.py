"""Fixtures every package's tests share: where the real trace samples are."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the folder of real trace samples (`TAUT_TRACES`), or skip."""
    folder = Path(os.environ.get("TAUT_TRACES", ROOT.parent / "shared" / "traces")).resolve()
    if not (folder / "README.md").is_file():
        pytest.skip("no real trace samples here: set TAUT_TRACES to their folder")
    return folder
