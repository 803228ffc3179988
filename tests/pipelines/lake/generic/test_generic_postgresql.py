"""Rows of a real PostgreSQL: the tables that a file of the same rows gives, and nothing done to the database."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import SourceError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from tests.modelserve.store.test_store_postgresql import Server
from tests.modelserve.store.test_store_postgresql import server as server  # the fixture: a PostgreSQL of our own
from tests.pipelines.lake.generic.own_rows import BAD, NAMES, ROWS, mapping_text, own_files

pytestmark = pytest.mark.slow


def filled(server: Server, name: str) -> str:
    """Make a database with the rows; return its address."""
    address = server.make_database(name).replace("+psycopg", "")
    columns = ", ".join(f'"{each}" text' for each in NAMES)
    with psycopg.connect(address) as connection:
        connection.execute(f"CREATE TABLE job ({columns})".encode())
        marks = ", ".join(["%s"] * len(NAMES))
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO job VALUES ({marks})".encode(), [*ROWS, *BAD.values()])
    return address


def test_rows_of_a_database_give_the_tables_of_a_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = filled(server, "same")
    folder, mapping = own_files(tmp_path, "csv", (*ROWS, *BAD.values()))
    with opened_source(mapping, str(folder)) as opened:
        ingest(opened.source, opened.folder, tmp_path / "file", as_name="own")
    mapping.write_text(mapping_text("postgres"))
    asked = ["ingest", "generic", "--mapping", str(mapping), "--from", address, "--as", "own", "--lake"]

    checked = CliRunner().invoke(app, [*asked, str(tmp_path / "base"), "--check"])
    first, again = (CliRunner().invoke(app, [*asked, str(tmp_path / "base")]) for _ in range(2))

    assert (checked.exit_code, first.exit_code, again.exit_code) == (0, 0, 0)
    assert "row 9" in checked.stdout
    assert "unchanged" in again.stderr
    assert "127.0.0.1" not in first.stdout + first.stderr + (tmp_path / "base/manifests/own.json").read_text()
    jobs = [Lake(tmp_path / name).table("jobs").collect() for name in ("file", "base")]
    assert jobs[0].equals(jobs[1])


def test_values_of_other_types_become_texts(server: Server, tmp_path: Path) -> None:
    address = server.make_database("typed").replace("+psycopg", "")
    at = datetime(2024, 3, 1, 8, tzinfo=UTC)
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE job (id bigint, at timestamptz, took interval, gib numeric)")
        connection.execute("INSERT INTO job VALUES (%s, %s, %s, %s)", [7, at, timedelta(hours=1), Decimal("4.5")])
    mapping = tmp_path / "mapping.toml"
    columns = '[jobs.columns]\njob_id = "id"\nsubmit_ts = "at"\nrun_s = "took"\nreq_mem_gib = "gib"\n'
    mapping.write_text(mapping_text("postgres", columns=columns))

    with opened_source(mapping, address) as opened:
        ingest(opened.source, opened.folder, tmp_path / "lake")

    told = Lake(tmp_path / "lake").table("jobs").select("job_id", "submit_ts", "run_s", "req_mem_gib").collect()
    assert told.rows() == [("7", at, 3600.0, 4.5)]


@pytest.mark.parametrize(
    "query",
    [
        "WITH gone AS (DELETE FROM job RETURNING *) SELECT * FROM gone",
        "SELECT * FROM nothing",
        "SELECT pg_sleep(0), setval('counter', 9) FROM job",
        "SELECT 1 AS one FROM job WHERE '%' = '%'",
    ],
)
def test_a_query_that_does_more_or_gives_less_is_refused(server: Server, query: str, tmp_path: Path) -> None:
    address = filled(server, f"refused{len(query)}")
    with psycopg.connect(address) as connection:
        connection.execute("CREATE SEQUENCE counter")
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(mapping_text("postgres").replace("SELECT * FROM job", query))

    with pytest.raises(SourceError), opened_source(mapping, address):
        pass

    with psycopg.connect(address) as connection:
        [[rows]] = connection.execute("SELECT count(*) FROM job").fetchall()
        [[counted]] = connection.execute("SELECT last_value FROM counter").fetchall()
    assert (rows, counted) == (len(ROWS) + len(BAD), 1)
