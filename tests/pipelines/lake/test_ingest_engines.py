"""An ingest on several engines writes the same bytes, also if a process dies while it loads a cluster.

`tests.benchmarks.faults` ingests on Dask, with workers that die at other moments.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine.engine import Engine, Local, Processes
from pipelines.errors import EngineError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import IngestReport, ingest
from pipelines.lake.storage import Folder
from tests.pipelines.engine.work import Mortal, held
from tests.pipelines.lake.generic.own_rows import COLUMNS, ROWS, row, written_as_csv

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
DOOMED = "cluster south"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clusters_written(tmp_path_factory.mktemp("from"))


def clusters_written(folder: Path) -> Path:
    """Write the jobs of three clusters, one with a row that is quarantined, and their mapping."""
    written_as_csv(folder / "part-north.csv", ROWS[:5])
    written_as_csv(folder / "part-south.csv", [*ROWS[:3], row(20, State="WEIRD")])
    written_as_csv(folder / "part-west.csv", ROWS)
    (folder / "mapping.toml").write_text(f'[jobs]\nfile = "part-{{cluster}}.csv"\n{COLUMNS}')
    return folder


def ingested(folder: Path, lake: Path | str, engine: Engine) -> IngestReport:
    with opened_source(folder / "mapping.toml", str(folder)) as opened:
        return ingest(opened.source, opened.folder, lake, as_name="own", engine=engine, threads=1)


def test_a_process_that_dies_in_a_cluster_changes_nothing_and_repeats_this_one_alone(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    engine = Mortal(engine=Processes(2), folder=tmp_path / "runs", doomed=DOOMED, after_s=0.1)

    ingested(folder, tmp_path / "local", Local())
    ingested(folder, tmp_path / "other", engine)

    assert held(tmp_path / "other") == held(tmp_path / "local")
    assert {each.split("/")[0] for each in held(tmp_path / "local")} >= {"jobs", "quarantine", "manifests"}
    names = [f"cluster {each}-0" for each in ("north", "south", "west")]
    assert engine.ran == sorted([*names, f"{DOOMED}-1"])


@dataclass(frozen=True, kw_only=True)
class Halving:
    """An engine whose process dies in its first run of `DOOMED`, when half of a table's file is written."""

    engine: Engine
    mark: Path

    def run(self, work: Callable[[Any, Any], Any], shared: Any, units: Sequence[Any]) -> Iterator[Any]:
        return self.engine.run(partial(_halved, self.mark, work), shared, units)


def _halved(mark: Path, work: Callable[[Any, Any], Any], shared: Any, unit: Any) -> Any:
    def half(_: Folder, staged: Path, __: str) -> None:
        os.truncate(staged, staged.stat().st_size // 2)
        mark.write_text(str(staged))
        os.kill(os.getpid(), signal.SIGKILL)

    if str(unit) == DOOMED and not mark.exists():
        Folder.place = half  # type: ignore[method-assign]
    return work(shared, unit)


def test_a_file_half_written_by_a_killed_worker_is_not_committed(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the optional group dask is not installed")
    from pipelines.engine.dask_cluster import Dask

    ingested(folder, tmp_path / "local", Local())
    ingested(folder, tmp_path / "lake", Halving(engine=Dask(None, 2), mark=tmp_path / "mark"))

    assert (tmp_path / "mark").exists()
    assert held(tmp_path / "lake") == held(tmp_path / "local")
    assert not (tmp_path / "lake" / "staging").exists()


def test_a_cluster_that_always_kills_its_process_leaves_the_lake_as_it_was(folder: Path, tmp_path: Path) -> None:
    lake, runs, more = tmp_path / "lake", tmp_path / "runs", tmp_path / "more"
    runs.mkdir(), more.mkdir()
    ingested(folder, lake, Local())
    before = held(lake)
    for each in folder.iterdir():
        (more / each.name).write_bytes(each.read_bytes())
    written_as_csv(more / "part-north.csv", ROWS[:2])

    with pytest.raises(EngineError, match=r"cluster south: 4 processes died.*nothing was committed"):
        ingested(more, lake, Mortal(engine=Processes(2), folder=runs, doomed=DOOMED, after_s=0.1, deaths=99))

    assert held(lake) == before
    assert not (lake / "staging").exists()
