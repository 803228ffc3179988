"""`taut sql` answers SELECT within limits, and nothing in SQL reaches a file, a setting, a variable or the network."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import LakeError, QueryRefused
from pipelines.lake import sql, views
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.sql import PREFIX, spill_folder
from pipelines.render import render


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("sql")
    (folder / "from" / "Venus").mkdir(parents=True)
    header = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    row = "{},u{},v,{},,1,FAILED,2020-04-01 08:00:00,2020-04-01 08:00:01,2020-04-01 08:00:31,30,1"
    rows = [row.format(i, i % 2, i) for i in range(4)]
    (folder / "from" / "Venus" / "cluster_log.csv").write_text("\n".join([header, *rows, "spoiled"]) + "\n")
    ingest("helios", folder / "from", folder / "lake")
    (folder / "secret.csv").write_text("a,b\n1,2\n")
    (folder / "lake" / "link.csv").symlink_to(folder / "secret.csv")
    (folder / "lake" / "plain.csv").write_text("a,b\n1,2\n")
    return Lake(folder / "lake")


def rows_of(lake: Lake, text: str) -> pl.DataFrame:
    return sql.query(lake, text)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "SELECT user, sum(req_gpus) AS g, sum(instances) AS i FROM jobs GROUP BY ALL ORDER BY ALL;",
            [
                ("u0", 2.0, 2),
                ("u1", 4.0, 2),
            ],
        ),
        (
            "WITH big AS (SELECT * FROM jobs WHERE req_gpus > 2) SELECT job_id, (SELECT count(*) FROM usage), "
            "(SELECT sum(range) FROM range(4)), unnest([1, 2]), 'COPY jobs TO ''x''; ATTACH' AS harmless FROM big",
            [("3", 0, 6, 1, "COPY jobs TO 'x'; ATTACH"), ("3", 0, 6, 2, "COPY jobs TO 'x'; ATTACH")],
        ),
        ("FROM quarantine SELECT rule, raw", [("column_count", "spoiled")]),
    ],
)
def test_a_select_is_answered(lake: Lake, text: str, rows: list[tuple[Any, ...]]) -> None:
    assert rows_of(lake, text).rows() == rows


def test_tables_can_be_listed_and_described(lake: Lake) -> None:
    assert "jobs" in rows_of(lake, "SHOW TABLES")["name"].to_list()
    assert "run_s" in rows_of(lake, "DESCRIBE jobs")["column_name"].to_list()


def test_whole_numbers_stay_whole_numbers(lake: Lake) -> None:
    assert rows_of(lake, "SELECT sum(instances) AS n, 1.5::DECIMAL(9, 2) AS d FROM jobs").schema == {
        "n": pl.Int64,
        "d": pl.Float64,
    }


@pytest.mark.parametrize(
    "text",
    [
        "COPY jobs TO '{out}/x.csv'",
        "COPY (SELECT 1) TO '{out}/x.parquet'",
        "EXPORT DATABASE '{out}'",
        "ATTACH '{out}/x.db'",
        "ATTACH '{lake}/taut.duckdb'",
        "CREATE TABLE x AS SELECT 1",
        "CREATE VIEW x AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "INSERT INTO jobs SELECT * FROM jobs",
        "DELETE FROM jobs",
        "UPDATE jobs SET user = 'x'",
        "DROP VIEW jobs",
        "WITH x AS (SELECT 1) INSERT INTO jobs SELECT * FROM x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA threads = 1",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "EXPLAIN ANALYZE SELECT 1",
        "BEGIN",
        "VACUUM",
        "CHECKPOINT",
        "USE memory",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW jobs",
        "",
        ";",
        "-- nothing",
        "SELEKT 1",
        "SELECT * FROM nothing",
        "SELECT * FROM '{lake}/link.csv'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM read_csv_auto('{lake}/../secret.csv')",
        "SELECT * FROM read_csv('{lake}/link.csv')",
        "SELECT * FROM read_json('{secret}')",
        "SELECT * FROM read_parquet('{secret}')",
        "SELECT * FROM parquet_metadata('{secret}')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "SELECT * FROM jobs WHERE user IN (SELECT content FROM read_text('/etc/passwd'))",
        "WITH x AS (FROM read_text('/etc/passwd')) FROM x",
        "SELECT * FROM query('FROM read_text(''/etc/passwd'')')",
        "SELECT * FROM query_table('/etc/passwd')",
        "SELECT * FROM histogram('/etc/passwd', 'x')",
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''/etc/passwd'')'))",
        "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
        "SELECT getenv('HOME')",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = '{out}')",
        "SELECT * FROM enable_profiling(save_location = '{out}/x')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM frame",
    ],
)
def test_everything_else_is_refused_and_writes_nothing(lake: Lake, text: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1]})  # a Python variable that DuckDB could take for a table
    before = sorted(lake.path.rglob("*"))

    with pytest.raises(QueryRefused) as refused:
        rows_of(lake, text.format(lake=lake.path, secret=lake.path.parent / "secret.csv", out=tmp_path))

    assert frame.height == 1
    assert str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    assert sorted(lake.path.rglob("*")) == before


def test_the_sealed_connection_alone_reads_no_other_file(lake: Lake, tmp_path: Path) -> None:
    """The second wall stands without the first: a statement that got past the check still reaches nothing."""
    import duckdb

    with lake:
        connection = lake.connect(tmp_path)
        for text in (
            "SELECT * FROM read_text('/etc/passwd')",
            f"COPY (SELECT 1) TO '{tmp_path}/x.csv'",
            f"ATTACH '{tmp_path}/x.db'",
            "SET enable_external_access = true",
            "SELECT * FROM query('FROM read_text(''/etc/passwd'')')",
            "SELECT * FROM glob('/etc/*')",
            "LOAD httpfs",
            "SELECT nothing FROM jobs",
            "SELECT * FROM '{secret}'",
            "SELECT * FROM '/etc/passwd'",
            "SELECT * FROM '{lake}/plain.csv'",
            "SELECT * FROM '{lake}/link.csv'",
            "SELECT * FROM '{lake}/../secret.csv'",
            "SELECT * FROM 'jobs/**/*.parquet'",
            "SELECT * FROM '{lake}/jobs/**/*.parquet'",
            "DESCRIBE '{secret}'",
            "SUMMARIZE '{secret}'",
            "SELECT * FROM 'https://example.org/x.csv'",
            "SELECT * FROM text",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(text.format(lake=lake.path, secret=lake.path.parent / "secret.csv")).fetchall()
        assert connection.execute("SELECT count(*) FROM jobs").fetchall() == [(4,)]


def test_a_query_larger_than_memory_spills_and_cleans_up(lake: Lake) -> None:
    text = "SELECT max(x) AS x FROM (SELECT random() AS x FROM range(3000000) ORDER BY x)"
    assert sql.query(lake, text, memory_mb=128).height == 1


def test_no_lake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake"):
        rows_of(Lake(tmp_path / "none"), "SELECT 1")


def test_the_help_names_every_table_and_view() -> None:
    told = " ".join(CliRunner().invoke(app, ["sql", "--help"]).stdout.split())

    assert all(name in told for name in views.DESCRIBED)


ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
SPILLS = "SELECT count(*) FROM (SELECT DISTINCT md5(range::VARCHAR) || md5((range + 1)::VARCHAR) FROM range(5000000))"
HOARDS = "SELECT len(list(range)) FROM range(2000000000)"


def test_a_query_without_end_is_interrupted(lake: Lake) -> None:
    began = time.monotonic()
    with pytest.raises(QueryRefused, match=r"longer than 0\.2 s"):
        sql.query(lake, ENDLESS, time_s=0.2)
    assert time.monotonic() - began < 60


def test_the_limit_of_memory_ends_with_the_query(lake: Lake) -> None:
    with pytest.raises(QueryRefused, match="more than 200 MB of memory"):
        sql.query(lake, HOARDS, memory_mb=200, spill_mb=50)
    assert sql.query(lake, "SELECT 1 AS one").rows() == [(1,)]


def test_spill_is_limited(lake: Lake) -> None:
    with pytest.raises(QueryRefused, match="spilled more than 10 MB"):
        sql.query(lake, SPILLS, memory_mb=128, spill_mb=10)


@pytest.mark.parametrize(("tabular", "rows"), [(False, 3_000_000), (True, 300_000)])
def test_a_result_that_would_not_fit_is_refused(lake: Lake, tabular: bool, rows: int) -> None:
    with pytest.raises(QueryRefused, match="result is larger than"):
        sql.query(lake, f"FROM range({rows})", memory_mb=120, tabular=tabular)


@pytest.mark.slow
def test_a_query_stays_within_its_memory(lake: Lake) -> None:
    measured = f"""
import resource
from pipelines.lake.lake import Lake
from pipelines.lake.sql import query
try:
    query(Lake({str(lake.path)!r}), {HOARDS!r}, memory_mb=600)
except Exception as error:
    print(error, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", measured], capture_output=True, text=True, timeout=120)

    assert "more than 600 MB" in done.stdout
    assert 0 < int(done.stdout.split()[-1]) / 1000 <= 600


def test_modules_in_the_present_folder_are_not_imported(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckdb.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)

    assert sql.query(lake, "SELECT 1 AS one").rows() == [(1,)]


def test_a_query_ends_with_the_process_that_asked(lake: Lake) -> None:
    imports = "from pipelines.lake.lake import Lake; from pipelines.lake.sql import query"
    endless = f"{imports}; query(Lake({str(lake.path)!r}), {ENDLESS!r})"
    asking = subprocess.Popen([sys.executable, "-c", endless])
    children = Path(f"/proc/{asking.pid}/task/{asking.pid}/children")
    while not (child := children.read_text().strip()):
        time.sleep(0.05)
    time.sleep(1.0)
    asking.kill()
    asking.wait()

    end = time.monotonic() + 60
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


HOLDER = """
import sys, time
from pipelines.lake.sql import spill_folder
with spill_folder() as folder:
    (folder / "spill").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_query_spilled_is_removed_by_the_next_and_a_running_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    killed, running = (Path(holder.stdout.readline().strip()) for holder in holders)
    holders[0].send_signal(signal.SIGKILL)
    holders[0].wait()
    assert killed.exists()

    with spill_folder() as own:
        left = set(tmp_path.glob(f"{PREFIX}*"))
    holders[1].kill()
    for holder in holders:
        holder.communicate()

    assert left == {own, running}
    assert not own.exists()


def test_texts_that_a_spreadsheet_would_run_are_quoted_and_numbers_are_not() -> None:
    rows = pl.DataFrame({"=x": ["=1+1", "+1", "-a", "@b", "\tc", "ok"], "n": [-1, 2, -3, 4, 5, 6], "f": [-0.5] * 6})
    inert = io.StringIO()
    render(rows, "csv", stream=inert)

    assert inert.getvalue().splitlines()[:4] == ["'=x,n,f", "'=1+1,-1,-0.5", "'+1,2,-0.5", "'-a,-3,-0.5"]
    assert len(pl.read_csv(io.StringIO(inert.getvalue()))) == 6
