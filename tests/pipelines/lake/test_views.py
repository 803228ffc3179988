"""The views agree with the statistics, and the database describes every column."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from pipelines.lake import dictionary, views
from pipelines.lake.lake import Lake
from pipelines.lake.views import COLUMNS
from pipelines.statistics.claims import over_claim
from pipelines.statistics.machines import utilisation_by_machine_type
from pipelines.statistics.outcomes import gpu_hours_by_status
from tests.pipelines.statistics.lakes import T0, job, make_lake, ran, used


@pytest.fixture(params=["UTC", "Asia/Shanghai"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """Return jobs that over-claim, over-use, ask for no GPU, or have no known run time, and three machine samples."""
    claimed = {"req_cpu_cores": 6.0, "req_mem_gib": 10.0, "req_gpus": 0.5, "gpu_type": "T4"}
    sample = {"trace": "toy", "cluster": "c", "ts": T0}
    tables = {
        "jobs": [
            ran(0, 3600.0, instances=2, user="a", **claimed),
            ran(1, 7200.0, user="b", **claimed),
            ran(2, 3600.0, role="ps", **claimed),
            ran(3, 3600.0, req_gpus=0.0),
            job(20, status="running", **claimed),
        ],
        "usage": [
            used(0, used_cpu_cores=2.0, used_gpus=0.1, mem_avg_gib=3.0, mem_max_gib=4.0, gpu_mem_avg_gib=1.0),
            used(1, used_cpu_cores=8.0, used_gpus=0.5, mem_avg_gib=5.0, mem_max_gib=12.0, gpu_mem_max_gib=9.0),
            used(2, role="ps", used_cpu_cores=99.0),
            used(20, used_cpu_cores=1.0),
        ],
        "machines": [{"trace": "toy", "cluster": "c", "machine": "m1", "gpu_type": "T4", "gpus": 2}],
        "machine_usage": [
            sample | {"machine": "m1", "gpu_frac": 0.5},
            sample | {"machine": "m1", "gpu_frac": 1.0, "cpu_frac": 0.2, "ts": T0.replace(minute=59)},
            sample | {"machine": "m2", "gpu_frac": 0.1},
        ],
    }
    return make_lake(tmp_path / "lake", tables, zone=request.param)


def rows_of(lake: Lake, query: str) -> pl.DataFrame:
    with lake:
        return lake.connect().sql(query).pl()


def test_the_file_tells_what_every_table_and_column_means(lake: Lake) -> None:
    lake.connect()
    lake.close()

    with duckdb.connect(str(lake.views_file), read_only=True) as connection:
        names = "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        said = dict(connection.execute(names).fetchall())
        columns = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()

    assert said == {name: view.description for name, view in views.DESCRIBED.items()}
    assert set(said) == {*COLUMNS, *views.VIEWS}
    comments = {(table, column): says for table, column, says in columns if table != views.STATE_TABLE}
    assert comments == {(v.name, column): says for v in views.DESCRIBED.values() for column, says in v.columns.items()}
    assert all(said.values())
    assert all(comments.values())


def test_every_job_stands_once_beside_its_use(lake: Lake) -> None:
    rows = rows_of(lake, "FROM jobs_with_usage ORDER BY job_id")

    assert rows["job_id"].to_list() == ["j000", "j001", "j002", "j003", "j020"]
    assert rows["used_cpu_cores"].to_list() == [2.0, 8.0, 99.0, None, 1.0]
    assert rows["gpus"].to_list() == [1.0, 0.5, 0.5, 0.0, 0.5]
    assert rows["gpu_hours"].to_list() == [1.0, 1.0, 0.5, 0.0, None]
    assert rows["instance_hours"].to_list() == [2.0, 2.0, 1.0, 1.0, None]


def test_hours_are_local_to_the_trace(lake: Lake) -> None:
    zone = lake.manifest("toy").zone
    rows = rows_of(lake, "FROM jobs_with_usage ORDER BY job_id")

    assert set(rows["zone"]) == {zone}
    assert rows["submit_local"][0].hour == (8 if zone == "Asia/Shanghai" else 0)
    days = rows_of(lake, "SELECT DISTINCT submit_date FROM gpu_hours ORDER BY ALL")["submit_date"]
    assert [day.day for day in days] == ([1, 2] if zone == "Asia/Shanghai" else [1])


def test_gpu_hours_add_up_to_the_statistic(lake: Lake) -> None:
    asked = "SELECT status, sum(gpu_jobs)::BIGINT AS gpu_jobs, sum(gpu_hours) AS gpu_hours FROM gpu_hours GROUP BY ALL"
    rows = rows_of(lake, f"{asked} ORDER BY ALL")

    told = gpu_hours_by_status(lake, lake.traces()[0]).select("status", "gpu_jobs", "gpu_hours")
    assert rows.rows() == told.rows() == [("completed", 3, 2.5), ("running", 1, None)]


def test_over_claims_add_up_to_the_statistic(lake: Lake) -> None:
    columns = ["resource", "use", "tasks", "over_claim_share", "requested_h", "slack_h"]
    rows = rows_of(
        lake,
        """SELECT resource, use, count(*) AS tasks, avg(over_claims::INTEGER) AS over_claim_share,
        sum(requested_h) AS requested_h, sum(slack_h) AS slack_h FROM over_claim GROUP BY ALL ORDER BY ALL""",
    )

    told = over_claim(lake, lake.traces()[0]).select(columns)
    assert rows.height == 6
    for found, expected in zip(rows.rows(), told.rows(), strict=True):
        assert found == pytest.approx(expected)


def test_machine_hours_agree_with_the_statistic(lake: Lake) -> None:
    rows = rows_of(lake, "FROM machine_hours ORDER BY machine")

    assert rows.select("machine", "machine_type", "cpu_frac", "gpu_frac", "cpu_samples", "gpu_samples").rows() == [
        ("m1", "T4", 0.2, 0.75, 1, 2),
        ("m2", "unknown", None, 0.1, 0, 1),
    ]
    told = utilisation_by_machine_type(lake, lake.traces()[0]).filter(resource="gpu")
    assert told.select("machine_type", "mean_frac").rows() == [("T4", 0.75), ("unknown", 0.1)]


def test_a_lake_of_older_views_gets_new_ones(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> list[tuple[str]]:
        with Lake(lake.path) as opened:
            opened.connect()
        with duckdb.connect(str(lake.views_file), read_only=True) as connection:
            return connection.execute("SHOW TABLES").fetchall()

    with monkeypatch.context() as older:
        older.setattr(views, "VIEWS", {})
        older.setattr(views, "DESCRIBED", {})
        assert ("over_claim",) not in shown()

    assert ("over_claim",) in shown()


def test_the_data_dictionary_is_current() -> None:
    text = dictionary.PAGE.read_text(encoding="utf-8")
    assert text == dictionary.page(), "write it anew with `python -m pipelines.lake.dictionary`"
