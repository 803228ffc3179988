"""The same rows in any format and by any mapping give the same tables; bad ones are quarantined where they stand."""

import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.tables import TABLES
from pipelines.errors import SourceError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.lake import Lake
from tests.pipelines.lake.generic.own_rows import (
    BAD,
    NAMES,
    ROWS,
    WRITERS,
    check_own,
    ingest_own,
    mapping_text,
    own_files,
    row,
    table_of,
    written_as_csv,
)


def read_csv(place: Path, text: str, columns: str, more: str = "") -> pl.DataFrame:
    """Ingest a CSV file of some text; return the jobs."""
    (place / "jobs").write_text(text)
    mapping = place / "mapping.toml"
    mapping.write_text(mapping_text("csv", columns=columns, more=more))
    ingest_own(place, place, mapping)
    return table_of(place)


FORMS = pytest.mark.parametrize("form", WRITERS)


@FORMS
def test_every_format_gives_the_same_tables(form: str, tmp_path: Path) -> None:
    report = ingest_own(tmp_path, *own_files(tmp_path, form))

    assert report.manifest.rows_quarantined == 0
    jobs, usage = (Lake(tmp_path / "lake").table(name).collect() for name in ("jobs", "usage"))
    TABLES["jobs"].validate(jobs)
    TABLES["usage"].validate(usage)
    ingest_own(tmp_path / "other", *own_files(tmp_path / "other", "csv"))
    assert jobs.equals(table_of(tmp_path / "other"))
    first: dict[str, Any] = jobs.sort("job_id").row(0, named=True)
    assert (first["job_id"], first["queue_s"], first["run_s"], first["status"]) == ("1000", 60.0, 3600.0, "completed")
    assert (first["req_cpu_cores"], first["req_mem_gib"], first["req_gpus"], first["gpu_type"]) == (8, 32, 2, "a100")
    assert usage.select("used_cpu_cores", "mem_max_gib", "used_gpus").row(0) == (2.0, 4.0, 0.555)


@FORMS
def test_each_bad_row_goes_to_quarantine_with_its_rule(form: str, tmp_path: Path) -> None:
    report = ingest_own(tmp_path, *own_files(tmp_path, form, (*ROWS, *BAD.values())))

    [account] = report.manifest.accounts
    assert account.quarantined == dict.fromkeys(BAD, 1)
    held = Lake(tmp_path / "lake").table("quarantine").collect()
    assert dict(held.select("rule", "row").rows()) == {rule: len(ROWS) + nth for nth, rule in enumerate(BAD, start=1)}


def test_the_same_again_changes_nothing_and_another_mapping_does(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv")
    ingest_own(tmp_path, folder, mapping)

    assert not ingest_own(tmp_path, folder, mapping).changed
    mapping.write_text(mapping.read_text().replace('user = "User"', 'user = "Name"'))
    assert ingest_own(tmp_path, folder, mapping).changed


def test_a_file_itself_and_one_packed_are_read(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv")
    packed = folder / "mine.csv.gz"
    packed.write_bytes(gzip.compress((folder / "jobs").read_bytes()))
    report = ingest_own(tmp_path, packed, mapping)

    assert report.manifest.rows_out("jobs") == len(ROWS)


def test_lines_and_rows_are_told_apart_where_fields_hold_line_ends(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv", (row(1, Name="two\nlines"), row(2, State="WEIRD"), row(3)))
    ingest_own(tmp_path, folder, mapping)

    [bad] = Lake(tmp_path / "lake").table("quarantine").collect().rows(named=True)
    assert (bad["row"], bad["raw"].startswith("1002,")) == (2, True)
    assert table_of(tmp_path)["group"].to_list()[0] == "two\nlines"


def test_an_open_quote_costs_its_own_line_alone(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv")
    path = folder / "jobs"
    lines = path.read_text().splitlines(True)
    path.write_text("".join([*lines[:3], '77,"open\n', *lines[3:]]))

    report = ingest_own(tmp_path, folder, mapping)

    assert report.manifest.accounts[0].quarantined == {"unreadable_line": 1}
    assert report.manifest.rows_out("jobs") == len(ROWS)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252", "gb18030", "shift_jis"])
def test_other_encodings_are_read(encoding: str, tmp_path: Path) -> None:
    name = "Müller" if encoding in ("utf-16", "latin-1", "cp1252") else "山田"
    folder, mapping = own_files(tmp_path, "csv", [row(1, User=name)])
    path = folder / "jobs"
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    mapping.write_text(mapping_text("csv", more=f'encoding = "{encoding}"\n'))

    ingest_own(tmp_path, folder, mapping)

    assert table_of(tmp_path)["user"].to_list() == [name]


def test_what_is_not_mapped_follows_from_what_is(tmp_path: Path) -> None:
    columns = """[jobs.columns]
    job_id = "id"
    submit_ts = { column = "at", time = "epoch_ms" }
    start_ts = { derive = "submit_ts + queue_s" }
    queue_s = { column = "wait", unit = "min" }
    run_s = { column = "took", unit = "h", default = 0.5 }
    status = { column = "how", values = { ok = "completed", on = "running", q = "waiting" }, otherwise = "failed" }
    instances = "n"
    req_cpu_cores = { column = "cpu", unit = "millicores", per = "instances" }
    workload = { value = "bert" }
    """
    text = "id,at,wait,took,how,n,cpu\na,1700000000000,1,2,ok,4,8000\nb,1700000000000,,,q,1,1000\n"
    text += "c,1700000000000,1,NA,on,,500\nd,1700000000000,0,1e300,ok,1,1\ne,1700000000000,0,1,bad,1,1\n"

    jobs = read_csv(tmp_path, text, columns)

    told = "job_id", "queue_s", "run_s", "run_s_censored", "status", "instances", "req_cpu_cores", "task_type"
    assert jobs.select(told).rows() == [
        ("a", 60.0, 7200.0, False, "completed", 4, 2.0, "nlp"),
        ("b", None, None, False, "waiting", 1, 1.0, "nlp"),
        ("c", 60.0, 1800.0, True, "running", 1, None, "nlp"),
        ("e", 0.0, 3600.0, False, "failed", 1, 0.001, "nlp"),
    ]
    assert [end is None for end in jobs["end_ts"]] == [False, True, True, False]


def test_named_nulls_are_taken_besides_the_usual_ones_and_no_limit_is_null(tmp_path: Path) -> None:
    jobs = read_csv(
        tmp_path,
        "id,submitted,started,limit\na,2024-01-01,Unknown,UNLIMITED\nb,2024-01-01,never,Partition_Limit\n"
        "c,2024-01-01,2024-01-02,60\n",
        '[jobs.columns]\njob_id = "id"\nsubmit_ts = "submitted"\nstart_ts = "started"\n'
        'time_limit_s = { column = "limit", as = "slurm_minutes" }\n',
        'nulls = ["never"]\n',
    )

    assert jobs["job_id"].to_list() == ["a", "b", "c"]
    assert jobs["start_ts"].is_null().to_list() == [True, True, False]
    assert jobs["time_limit_s"].to_list() == [None, None, 3600]


def test_run_times_cut_off_are_lower_bounds_and_what_runs_ran_until_the_latest_time(tmp_path: Path) -> None:
    jobs = read_csv(
        tmp_path,
        "id,submitted,started,ended,state\n"
        "a,2024-01-01T00:00:00,2024-01-01T00:00:00,2024-01-01T01:00:00,TIMEOUT\n"
        "b,2024-01-01T00:00:00,2024-01-01T00:30:00,,RUNNING\n"
        "c,2024-01-01T00:00:00,2024-01-01T00:00:00,2024-01-01T02:00:00,COMPLETED\n"
        "d,2024-01-01T00:00:00,2024-01-01T00:00:00,2024-01-01T00:00:00,COMPLETED\n",
        '[jobs.columns]\njob_id = "id"\nsubmit_ts = "submitted"\nstart_ts = "started"\nend_ts = "ended"\n'
        'status = { column = "state", as = "slurm_state" }\n',
    )

    assert jobs["run_s"].to_list() == [3600, 5400, 7200, 0]
    assert jobs["run_s_censored"].to_list() == [True, True, False, False]


def test_machines_come_from_a_table_of_their_own(tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv")
    (folder / "nodes.csv").write_text("name,gres,mem\nn1,gpu:T4:4,256000\nn2,,\n")
    mapping.write_text(
        mapping.read_text() + '[machines]\nfile = "nodes.csv"\n[machines.columns]\nmachine = "name"\n'
        'gpus = { column = "gres", as = "slurm_gpus" }\nmem_gib = { column = "mem", unit = "MiB" }\n'
        'gpu_type = { column = "gres", as = "slurm_gpu_type" }\n'
    )

    report = ingest_own(tmp_path, folder, mapping)

    [machine] = Lake(tmp_path / "lake").table("machines").collect().rows(named=True)
    assert (machine["gpus"], machine["mem_gib"], machine["gpu_mem_gib"]) == (4, 250.0, 16.0)
    assert report.manifest.accounts[1].quarantined == {"no_gpu_count": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("Submit", "Submitted", 1), "lacks the column 'Submit'"),
        (lambda text: text.replace("User", "JobID", 1), "'JobID' twice"),
        (lambda text: text.replace(",", ";"), "Is the delimiter right?"),
        (lambda _: "", "header"),
        (lambda text: text.partition("\n")[0], "no rows"),
        (lambda text: text.replace("2024-", "24-"), "none of 8 rows can be used"),
    ],
)
def test_a_table_that_is_another_is_refused_by_file_and_column(change: Any, said: str, tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "csv")
    path = folder / "jobs"
    path.write_text(change(path.read_text()))

    with pytest.raises(SourceError, match=said) as caught:
        ingest_own(tmp_path, folder, mapping)

    assert "jobs" in str(caught.value)
    assert Lake(tmp_path / "lake").traces() == []


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([["a"]] * len(ROWS)), r"the column 'User' is of type list<.*>; expected a number, text or time"),
        (pa.array([b"a"] * len(ROWS)), "the column 'User' is of type binary"),
    ],
)
def test_a_column_of_parquet_that_is_no_text_is_refused(column: pa.Array, said: str, tmp_path: Path) -> None:
    folder, mapping = own_files(tmp_path, "parquet")
    table = pq.read_table(folder / "jobs")
    pq.write_table(table.set_column(NAMES.index("User"), "User", column), folder / "jobs")

    with pytest.raises(SourceError, match=said):
        ingest_own(tmp_path, folder, mapping)


@pytest.mark.parametrize(
    ("name", "rule"), [("a\0b", "unreadable_line"), ("a\ufffdb", "unreadable_line"), ("x" * (1 << 20), "too_long")]
)
def test_a_text_of_parquet_that_a_csv_file_could_not_hold_is_quarantined(name: str, rule: str, tmp_path: Path) -> None:
    report = ingest_own(tmp_path, *own_files(tmp_path, "parquet", [*ROWS, row(20, Name=name)]))

    [bad] = Lake(tmp_path / "lake").table("quarantine").collect().rows(named=True)
    assert (bad["rule"], bad["row"], bad["raw"][:9]) == (rule, 9, "1020, u2,")
    assert report.manifest.rows_out("jobs") == len(ROWS)


def test_an_address_is_refused_without_its_password(tmp_path: Path) -> None:
    _, mapping = own_files(tmp_path, "csv")

    with pytest.raises(SourceError, match="Export the rows") as caught:
        opened_source(mapping, "postgresql://u:secret@h/d")

    assert "secret" not in str(caught.value)


def test_a_large_file_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.lake.generic import records

    monkeypatch.setattr(records, "BATCH_RECORDS", 3)
    folder, mapping = own_files(tmp_path, "csv", [row(nth) for nth in range(10)])

    assert ingest_own(tmp_path, folder, mapping).manifest.rows_out("jobs") == 10


def test_duckdb_and_python_read_the_same_from_text_without_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mapping_file = own_files(tmp_path, "csv")
    written_as_csv(folder / "jobs", [*ROWS, *BAD.values(), ROWS[1]], delimiter="|")
    with (folder / "jobs").open("a") as out:
        out.write("77|too|few\n")
    mapping_file.write_text(mapping_text("csv", more='delimiter = "|"\n'))

    by_duckdb = check_own(tmp_path, folder, mapping_file)
    monkeypatch.setattr("pipelines.lake.generic.records._is_plain", lambda *_: False)

    assert check_own(tmp_path, folder, mapping_file) == by_duckdb
    assert len(by_duckdb.problems) == len(BAD) + 1
