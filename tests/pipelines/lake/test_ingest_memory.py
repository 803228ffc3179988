"""The memory limit of an ingest: by the size of its files, more after an out-of-memory error; no frame library."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import cluster_loading as module
from pipelines.lake.cluster_loading import MEMORY_LEAST_MB, memory_mb
from pipelines.lake.connections import MEMORY_MB
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.archive import Published

ABSENT = ("polars", "dataframely", "sqlalchemy", "pydantic", "pyarrow", "pandas")


@pytest.mark.parametrize(
    ("source", "table", "megabytes", "expected"),
    [
        ("pai", "task", 0, MEMORY_LEAST_MB),
        ("pai", "task", 800, 400),
        ("pai", "task", 9000, MEMORY_MB),
        ("philly", "log", 1, MEMORY_MB),
    ],
)
def test_memory_goes_by_size_within_bounds(
    source: str, table: str, megabytes: int, expected: int, tmp_path: Path
) -> None:
    [declared] = [t for t in SOURCES[source].tables if t.name == table]
    with (tmp_path / "plain").open("wb") as sparse:
        sparse.truncate(megabytes * 1_000_000)
    absent = Published(table=SOURCES[source].tables[-1], file=None, plain=None)

    given = memory_mb([Published(table=declared, file="plain", plain=tmp_path / "plain"), absent])

    assert given == expected


def test_an_ingest_that_needs_more_memory_than_its_size_tells_gets_all(
    published: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = published["pai"].write(tmp_path / "from")
    whole = ingest("pai", folder, tmp_path / "whole").manifest
    given = []
    workbench = Lake.workbench

    @contextmanager
    def noted(lake: Lake, place: Path, memory: int, threads: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
        given.append(memory)
        with workbench(lake, place, memory, threads) as work:
            yield work

    monkeypatch.setattr(Lake, "workbench", noted)
    monkeypatch.setattr(module, "memory_mb", lambda _: 1)

    again = ingest("pai", folder, tmp_path / "lake").manifest

    assert given == [1, MEMORY_MB]
    assert again == whole


def test_an_ingest_imports_no_frames() -> None:
    code = f"import sys, pipelines.cli.data, pipelines.lake.checking; print(*(m for m in {ABSENT} if m in sys.modules))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.split() == []
