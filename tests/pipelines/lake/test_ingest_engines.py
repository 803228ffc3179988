"""An ingest on several engines writes the same bytes, also if a process dies while it loads a cluster.

`tests.benchmarks.faults` ingests on Dask, with workers that die at other moments.
"""

from pathlib import Path

import pytest

from pipelines.engine.engine import Engine, Local, Processes
from pipelines.errors import EngineError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import IngestReport, ingest
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
    opened = opened_source(folder / "mapping.toml", str(folder))
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
