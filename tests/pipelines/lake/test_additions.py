"""Rows added to a trace that is in the lake: laid over what is there, in one commit."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import LakeError
from pipelines.lake.ingest import add_rows
from pipelines.lake.lake import Lake
from tests.pipelines.statistics.lakes import make_lake, ran, used


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return two jobs, of which the first has a use."""
    return make_lake(tmp_path / "lake", {"jobs": [ran(0, 60.0), ran(1, 60.0)], "usage": [used(0, used_cpu_cores=2.0)]})


def use(*jobs: str, **columns: float | None) -> pl.DataFrame:
    return pl.DataFrame({"job_id": jobs}).with_columns(
        *(pl.lit(value, dtype=pl.Float64).alias(name) for name, value in columns.items()),
        role=pl.lit("job"),
        instances_measured=pl.lit(1),
    )


def rows(lake: Lake) -> list[tuple[object, ...]]:
    return lake.table("usage").select("job_id", "used_cpu_cores", "used_gpus", "coverage_frac").collect().rows()


def test_fresh_values_are_laid_over_and_nulls_leave_what_is_there(lake: Lake) -> None:
    add_rows(lake, "toy", "c", {"usage": use("j000", "j001", used_cpu_cores=None, used_gpus=0.5, coverage_frac=0.9)})
    assert rows(lake) == [("j000", 2.0, 0.5, 0.9), ("j001", None, 0.5, 0.9)]
    add_rows(lake, "toy", "c", {"usage": use("j001", used_gpus=0.7)})
    assert rows(lake) == [("j000", 2.0, 0.5, 0.9), ("j001", None, 0.7, 0.9)]


def test_the_same_rows_again_change_nothing(lake: Lake) -> None:
    fresh = {"usage": use("j001", used_gpus=0.5)}
    first = add_rows(lake, "toy", "c", fresh)
    files = {path: path.stat().st_mtime_ns for path in lake.path.rglob("*.parquet")}
    assert add_rows(lake, "toy", "c", fresh) == first == lake.manifest("toy")
    assert {path.name for path in files} == {path.name for path in lake.path.rglob("*.parquet")}
    assert not (lake.path / "staging").exists()


def test_other_tables_stay_and_sql_sees_the_new_rows(lake: Lake) -> None:
    hour = datetime(2020, 7, 1, tzinfo=UTC)
    gpu = {
        "machine": ["m"],
        "device": ["0"],
        "ts": [hour],
        "power_w": [100.0],
        "coverage_frac": [0.5],
        "energy_j": [1.8e5],
    }
    add_rows(lake, "toy", "c", {"environment": pl.DataFrame(gpu)})
    with lake:
        counts = lake.connect().sql("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM usage)").fetchall()
        days = lake.connect().sql("SELECT date::VARCHAR, sampled_h, energy_kwh, power_w FROM gpu_days").fetchall()
    assert counts == [(2, 1)]
    assert days == [("2020-07-01", 0.5, 0.05, 100.0)]


def test_rows_that_break_a_rule_are_refused_and_nothing_changes(lake: Lake) -> None:
    before = lake.manifest("toy")
    with pytest.raises(LakeError, match="not added"):
        add_rows(lake, "toy", "c", {"usage": use("j001", used_gpus=-0.5)})
    assert lake.manifest("toy") == before
    assert rows(lake) == [("j000", 2.0, None, None)]


def test_an_unknown_trace_or_cluster_is_refused(lake: Lake) -> None:
    for trace, cluster in (("other", "c"), ("toy", "other")):
        with pytest.raises(LakeError, match="other"):
            add_rows(lake, trace, cluster, {"usage": use("j001", used_gpus=0.5)})
