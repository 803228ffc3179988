"""The lake as readers see it: tables, views that survive a move, and what is not there."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from features.frames import frame_schema
from features.tables import TABLES
from pipelines.errors import LakeError
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake, configured
from pipelines.lake.views import COLUMNS

Published = dict[str, Any]


@pytest.fixture(scope="module")
def original(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    for source in ("pai", "helios", "philly"):
        trace = published[source]
        ingest(source, trace.write(folder / source, trace.spoilers[:1]), folder / "lake")
    return folder / "lake"


@pytest.fixture
def lake(original: Path, tmp_path: Path) -> Lake:
    return Lake(shutil.copytree(original, tmp_path / "lake"))


def test_tables_are_read_over_all_traces_or_one_cluster(lake: Lake) -> None:
    assert lake.traces() == ["helios", "pai", "philly"]
    assert lake.table("jobs").collect().height == 4 + 4 + 4
    assert lake.table("jobs", trace="helios", cluster="Earth").collect().height == 1
    assert lake.table("jobs", cluster="pai").collect().height == 4
    assert lake.table("quarantine").collect().height == 3


def test_a_table_without_rows_is_empty_with_its_columns(lake: Lake) -> None:
    frame = lake.table("usage", trace="helios").collect()

    TABLES["usage"].validate(frame)
    assert frame.is_empty()


def test_the_partitions_are_named_for_other_tools(lake: Lake) -> None:
    files = sorted((lake.path / "jobs").rglob("*.parquet"))

    assert [p.parent.relative_to(lake.path / "jobs").as_posix() for p in files] == [
        "trace=helios/cluster=Earth",
        "trace=helios/cluster=Venus",
        "trace=pai/cluster=pai",
        "trace=philly/cluster=philly",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "job"}, "no table 'job'"),
        ({"name": "jobs", "trace": "borg"}, "it holds: helios, pai, philly"),
        ({"name": "jobs", "trace": "pai", "cluster": "Venus"}, "no cluster 'Venus' in pai"),
    ],
)
def test_what_the_lake_lacks_is_named(lake: Lake, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(LakeError, match=message):
        lake.table(**arguments)


def test_no_lake_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="taut ingest"):
        Lake(tmp_path / "none").connect()
    assert not (tmp_path / "none").exists()


def test_views_show_every_table(lake: Lake) -> None:
    with lake, lake.connect() as connection:
        for name in COLUMNS:
            frame = connection.sql(f"SELECT * FROM {name}").pl()
            assert dict(frame.schema) == dict(frame_schema(COLUMNS[name]))
            assert frame.height == lake.table(name).select(pl.len()).collect().item()


def test_views_follow_a_lake_that_moved(lake: Lake, tmp_path: Path) -> None:
    shutil.move(lake.path, tmp_path / "moved")

    with Lake(tmp_path / "moved") as moved:
        assert moved.connect().execute("SELECT count(*) FROM jobs").fetchall() == [(12,)]


@pytest.mark.parametrize("content", [b"no database", None])
def test_the_file_of_views_is_rebuilt_where_it_is_damaged_or_gone(lake: Lake, content: bytes | None) -> None:
    lake.views_file.unlink()
    if content is not None:
        lake.views_file.write_bytes(content)
    with lake:
        lake.connect()
    with duckdb.connect(str(lake.views_file), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchall() == [(12,)]


def test_views_are_right_while_an_older_connection_or_a_writer_holds_them(lake: Lake, published: Published) -> None:
    with lake:
        older = lake.connect()
        ingest("pai", published["pai"].write(lake.path.parent / "from"), lake.path, as_name="pai-again")
        assert older.execute("SELECT count(*) FROM jobs").fetchall() == [(12,)]
        assert lake.connect().execute("SELECT count(*) FROM jobs").fetchall() == [(16,)]
        lake.views_file.unlink()
        with lake.storage.writing():
            assert lake.connect().execute("SELECT count(*) FROM jobs").fetchall() == [(16,)]


@pytest.mark.parametrize("name", [None, "some.duckdb"])
def test_long_queries_print_nothing_among_the_rows(tmp_path: Path, name: str | None) -> None:
    with configured(name and tmp_path / name) as connection:
        settings = "select current_setting('enable_progress_bar'), current_setting('TimeZone')"
        assert connection.execute(settings).fetchone() == (False, "UTC")
