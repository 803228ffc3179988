"""A folder with a file for each cluster is one ingest, and the name of each file is that of its cluster."""

import re
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import MappingError, SourceError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import IngestReport, ingest
from pipelines.lake.lake import Lake
from tests.own_cluster_examples import PAGE
from tests.pipelines.lake.generic.own_rows import COLUMNS, ROWS, row, written_as_csv

PATTERN = "part-{cluster}.csv"


def ingested(place: Path, mapping: str, folder: Path) -> IngestReport:
    (place / "mapping.toml").write_text(mapping)
    with opened_source(place / "mapping.toml", str(folder)) as opened:
        return ingest(opened.source, opened.folder, place / "lake", as_name="own")


def mapping_of(file: str, more: str = "") -> str:
    return f'[jobs]\nfile = "{file}"\n{COLUMNS}{more}'


def jobs_of(place: Path) -> pl.DataFrame:
    return Lake(place / "lake").table("jobs").collect()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the jobs of two clusters, which have job ids in common, and files of other names."""
    folder = tmp_path / "from"
    folder.mkdir()
    written_as_csv(folder / "part-north.csv", ROWS[:5])
    written_as_csv(folder / "part-south.csv", [*ROWS[:3], row(20, State="WEIRD")])
    written_as_csv(folder / "other.csv", ROWS)
    (folder / "LICENSE").write_text("none")
    return folder


def test_every_file_of_the_name_is_a_cluster(folder: Path, tmp_path: Path) -> None:
    report = ingested(tmp_path, mapping_of(PATTERN), folder)

    assert jobs_of(tmp_path)["cluster"].value_counts().sort("cluster").rows() == [("north", 5), ("south", 3)]
    assert [(a.cluster, a.file, a.rows_quarantined) for a in report.manifest.accounts] == [
        ("north", "part-north.csv", 0),
        ("south", "part-south.csv", 1),
    ]
    assert [i.file for i in report.manifest.inputs] == ["part-north.csv", "part-south.csv", "the mapping"]


def test_another_file_is_another_cluster_and_the_same_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    ingested(tmp_path, mapping_of(PATTERN), folder)
    assert not ingested(tmp_path, mapping_of(PATTERN), folder).changed

    written_as_csv(folder / "part-west.csv", ROWS[:1])

    assert ingested(tmp_path, mapping_of(PATTERN), folder).manifest.clusters == ("north", "south", "west")


def test_folders_and_machines_are_named_alike(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "from" / name).mkdir(parents=True)
        written_as_csv(tmp_path / "from" / name / "jobs", ROWS[:2])
        (tmp_path / "from" / name / "nodes.csv").write_text(f"m,g\nnode-{name},8\n")
    machines = '[machines]\nfile = "{cluster}/nodes.csv"\n[machines.columns]\nmachine = "m"\ngpus = "g"\n'

    ingested(tmp_path, mapping_of("{cluster}/jobs", machines), tmp_path / "from")

    held = Lake(tmp_path / "lake").table("machines").collect()
    assert held.select("cluster", "machine").rows() == [("a", "node-a"), ("b", "node-b")]
    assert sorted(jobs_of(tmp_path)["cluster"].unique()) == ["a", "b"]


def test_a_message_names_the_file_of_the_cluster(folder: Path, tmp_path: Path) -> None:
    (folder / "part-south.csv").write_text("JobID\n1\n")

    with pytest.raises(SourceError, match=r"part-south\.csv lacks the column"):
        ingested(tmp_path, mapping_of(PATTERN), folder)


def test_what_gives_no_clusters_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no cluster of generic in .*; expected {cluster}.tsv"):
        ingested(tmp_path, mapping_of("{cluster}.tsv"), folder)
    with pytest.raises(MappingError, match="expected --from FOLDER"):
        ingested(tmp_path, mapping_of(PATTERN), folder / "part-north.csv")
    written_as_csv(folder / "part-the west.csv", ROWS)
    with pytest.raises(SourceError, match="the cluster 'the west'; expected letters"):
        ingested(tmp_path, mapping_of(PATTERN), folder)


@pytest.mark.slow
def test_the_pages_mapping_reads_four_real_clusters_at_once(traces: Path, tmp_path: Path) -> None:
    [mapping] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    report = ingested(tmp_path, mapping, traces / "itp")

    rows = {path.stem: len(path.read_text().splitlines()) - 1 for path in (traces / "itp").glob("*.csv")}
    jobs = jobs_of(tmp_path)
    assert dict(jobs["cluster"].value_counts().rows()) == rows
    assert len(rows) == 4
    assert report.manifest.rows_quarantined == 0
    assert jobs["end_ts"].null_count() == 0
    assert jobs["queue_s"].null_count() == jobs.height
