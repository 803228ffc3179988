"""Sixty spoiled files of every source: each ends in a clear error or in counted quarantine, and nothing else."""

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from pipelines.errors import SourceError
from pipelines.lake.ingest import ingest
from pipelines.lake.manifest import Manifest
from tests.pipelines.conftest import PUBLISHED, PublishedTrace
from tests.pipelines.lake.sources.mutations import MUTATIONS, check_ended_well, state

FILES: Final = 60


def check_ends_well(trace: PublishedTrace, folder: Path, place: Path) -> None:
    """Ingest a spoiled folder: a clear error and nothing committed, or tables that hold and accounts that close."""
    before = state(folder)
    manifest: Manifest | None = None
    with suppress(SourceError):
        manifest = ingest(trace.source, folder, place / "lake").manifest
    check_ended_well(place, manifest, before)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("source", PUBLISHED)
@pytest.mark.slow
def test_a_spoiled_file_ends_in_an_error_or_in_quarantine(source: str, mutation: str, tmp_path: Path) -> None:
    trace, rng = PUBLISHED[source], random.Random(f"{source} {mutation}")
    for nth in range(FILES // len(MUTATIONS)):
        place = tmp_path / str(nth)
        folder = trace.write(place / "from", tuple(rng.sample(trace.spoilers, min(3, len(trace.spoilers)))))
        path = folder / rng.choice(sorted(trace.files))
        path.write_bytes(MUTATIONS[mutation](path.read_bytes(), rng))
        check_ends_well(trace, folder, place)
        shutil.rmtree(place)
