"""At most the newest jobs are read from a lake, with their use alone."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.models.training_tables import newest_tables, read_tables

MAPPING = """
[jobs]
[jobs.columns]
job_id = "job"
user = "user"
submit_ts = "at"
run_s = "took"
start_ts = "at"
[usage.columns]
used_cpu_cores = "cores"
"""
JOBS = 40
T0 = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ingest jobs whose order in the file is not that of their submission; four a minute, half of them measured."""
    folder = tmp_path_factory.mktemp("newest")
    places = [(7 * n) % JOBS for n in range(JOBS)]
    rows = [f"{n},u,{T0 + timedelta(minutes=n // 4):%Y-%m-%dT%H:%M:%S},9,{1 if n % 2 else ''}" for n in places]
    (folder / "jobs.csv").write_text("job,user,at,took,cores\n" + "\n".join(rows) + "\n")
    (folder / "mapping.toml").write_text(MAPPING)
    with opened_source(folder / "mapping.toml", str(folder / "jobs.csv")) as opened:
        ingest(opened.source, opened.folder, folder / "lake", as_name="own")
    return Lake(folder / "lake")


def test_all_jobs_are_read_if_they_fit(lake: Lake) -> None:
    said: list[str] = []
    tables = newest_tables(lake, "own", None, JOBS, said.append)
    assert_frame_equal(tables.jobs, lake.table("jobs", "own").collect())
    assert said == []


@pytest.mark.parametrize("newest", [1, 8, 9, 11, JOBS - 1])
def test_the_last_submitted_are_kept_with_their_use(lake: Lake, newest: int) -> None:
    said: list[str] = []
    tables = newest_tables(lake, "own", None, newest, said.append)
    whole, kept = lake.table("jobs", "own").collect(), tables.jobs["job_id"].to_list()
    assert len(kept) == newest
    left_out = whole.filter(~pl.col("job_id").is_in(kept))
    assert left_out["submit_ts"].max() <= tables.jobs["submit_ts"].min()  # type: ignore[operator]  # both are times
    assert_frame_equal(tables.jobs.sort("job_id"), whole.filter(pl.col("job_id").is_in(kept)).sort("job_id"))
    assert set(tables.usage["job_id"]) == {each for each in kept if int(each) % 2}
    assert f"newest {newest} of {JOBS} jobs of own" in said[0]


def test_training_reads_no_more(lake: Lake) -> None:
    assert read_tables(lake, "own", newest=8).jobs.height == 8
