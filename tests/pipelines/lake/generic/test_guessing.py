"""Mappings guessed from names and values: what is certain, what a person should look at, what fails."""

import gzip
import tomllib
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import SourceError
from pipelines.lake.generic.guessing import GuessedMapping, guess_mapping
from pipelines.lake.generic.mapping import read_mapping
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake


def guessed(folder: Path, text: str) -> GuessedMapping:
    """Return the guess for a file with this text, after the mapping it writes was read back."""
    (folder / "jobs.csv").write_text(text, encoding="utf-8")
    guess = guess_mapping(folder / "jobs.csv")
    (folder / "mapping.toml").write_text(guess.toml(), encoding="utf-8")
    read_mapping(folder / "mapping.toml")
    return guess


def keys(guess: GuessedMapping) -> dict[str, tuple[str, dict[str, object], bool]]:
    return {each.name: (each.source, dict(each.reading.keys), each.reading.sure) for each in guess.columns}


@pytest.mark.parametrize(
    ("header", "cells", "name", "read", "sure"),
    [
        ("mem_mb", "2048", "req_mem_gib", {"unit": "MiB"}, False),
        ("mem_mb", "64000", "req_mem_gib", {"unit": "MB"}, False),
        ("mem_mib", "64000", "req_mem_gib", {"unit": "MiB"}, True),
        ("memory (GiB)", "64", "req_mem_gib", {"unit": "GiB"}, True),
        ("memory", "64", "req_mem_gib", {"unit": "GiB"}, False),
        ("memory", "8589934592", "req_mem_gib", {"unit": "bytes"}, False),
        ("ReqMem", "64G", "req_mem_gib", {"as": "slurm_memory"}, True),
        ("memory_request", "512Mi", "req_mem_gib", {"as": "kubernetes_quantity"}, True),
        ("cpuRequest", "500m", "req_cpu_cores", {"as": "kubernetes_quantity"}, True),
        ("cpu_milli", "12000", "req_cpu_cores", {"unit": "millicores"}, True),
        ("gpu_milli", "500", "req_gpus", {"unit": "milligpus"}, True),
        ("duration_min", "15", "run_s", {"unit": "min"}, True),
        ("runtime", "15", "run_s", {"unit": "s"}, False),
        ("Elapsed", "1-02:03:04", "run_s", {"as": "slurm_time"}, True),
        ("State", "CANCELLED by 12", "status", {"as": "slurm_state"}, True),
        ("state", "Succeeded", "status", {"values": {"Succeeded": "completed"}}, True),
        ("cpu_time_sec", "17798", "used_cpu_cores", {"per": "run_s"}, False),
        ("avg cpu cores used", "2.2", "used_cpu_cores", {"unit": "cores"}, False),
        ("peak_ram_mb", "5468", "mem_max_gib", {"unit": "MB"}, False),
        ("began", "2024-01-31 10:00:00", "start_ts", {}, True),
        ("gpu_util", "85", "used_gpus", {"unit": "percent"}, False),
        ("end_time", "1704103200123", "end_ts", {"time": "epoch_ms"}, True),
        ("end_time", "31.12.2024 10:00", "end_ts", {"time": "%d.%m.%Y %H:%M"}, True),
        ("end_time", "03/04/2024 10:00:00", "end_ts", {"time": "%d/%m/%Y %H:%M:%S"}, False),
        ("end_time", "03/14/2024 10:00:00", "end_ts", {"time": "%m/%d/%Y %H:%M:%S"}, True),
    ],
)
def test_units_and_formats_come_from_names_and_values(
    tmp_path: Path, header: str, cells: str, name: str, read: dict[str, object], sure: bool
) -> None:
    guess = guessed(tmp_path, f"job_id;submit;{header}\na;2024-01-31T10:00:00;{cells}\n")

    assert keys(guess)[name] == (header, read, sure)


@pytest.mark.parametrize(
    ("header", "cells", "name", "read", "sure"),
    [
        ("ReqMem", ["65536", "65536M", "4G"], "req_mem_gib", "slurm_memory", True),
        ("memory;State;Elapsed", ["65536;RUNNING;1:00", "64G;FAILED;2:00"], "req_mem_gib", "slurm_memory", True),
        ("memory", ["65536", "65536M"], "req_mem_gib", "slurm_memory", False),
        ("memory", ["68719476736", "64G"], "req_mem_gib", "kubernetes_quantity", False),
        ("memory", ["68719476736", "64Gi"], "req_mem_gib", "kubernetes_quantity", True),
        ("memory", ["65536", "64Gi"], "req_mem_gib", "kubernetes_quantity", False),
        ("MaxRSS", ["0", "0", "6728542K"], "mem_max_gib", "slurm_memory", True),
        ("peak_rss", ["0", "6728542K"], "mem_max_gib", "slurm_memory", True),
        ("memory", ["0", "64Gi"], "req_mem_gib", "kubernetes_quantity", True),
    ],
)
def test_sizes_without_a_letter_are_certain_only_where_slurm_wrote_them(
    tmp_path: Path, header: str, cells: list[str], name: str, read: str, sure: bool
) -> None:
    lines = [f"j{row};2024-01-31T10:00:00;{cell}" for row, cell in enumerate(cells)]

    guess = guessed(tmp_path, "\n".join([f"job_id;submit;{header}", *lines, ""]))

    assert keys(guess)[name] == (header.partition(";")[0], {"as": read}, sure)


def test_sizes_in_mb_are_in_one_unit_in_one_table(tmp_path: Path) -> None:
    text = "job_id,submit,memory_requested_mb,max_rss_mb\na,2024-01-31T10:00:00,65536,5468\n"
    guess = guessed(tmp_path, text)
    opened = opened_source(tmp_path / "mapping.toml", str(tmp_path / "jobs.csv"))
    ingest(opened.source, opened.folder, tmp_path / "lake")

    assert keys(guess)["mem_max_gib"] == ("max_rss_mb", {"unit": "MiB"}, False)
    assert Lake(tmp_path / "lake").table("jobs", "generic").collect()["req_mem_gib"].to_list() == [64.0]


@pytest.mark.parametrize(
    ("requested", "percent", "read", "sure", "used"),
    [
        (("8", "2"), ("80", "50"), {"unit": "percent", "of": "request"}, False, (6.4, 1.0)),
        (("8", "2"), ("640", "50"), {"unit": "percent"}, True, (6.4, 0.5)),
        (("1", "1"), ("80", "50"), {"unit": "percent"}, True, (0.8, 0.5)),
        (("1000m", "8000m"), ("80", "50"), {"unit": "percent", "of": "request"}, False, (0.8, 4.0)),
        (None, ("80", "50"), {"unit": "percent"}, False, (0.8, 0.5)),
    ],
)
def test_percentages_that_never_exceed_100_may_be_of_the_request(
    tmp_path: Path,
    requested: tuple[str, str] | None,
    percent: tuple[str, str],
    read: dict[str, object],
    sure: bool,
    used: tuple[float, float],
) -> None:
    cores = requested or ("", "")
    lines = [f"j{i},2024-01-31T10:00:00,{cores[i]},{percent[i]}" for i in (0, 1)]

    guess = guessed(tmp_path, "\n".join(["job_id,submit,cpus,cpu_util_pct", *lines, ""]))
    opened = opened_source(tmp_path / "mapping.toml", str(tmp_path / "jobs.csv"))
    ingest(opened.source, opened.folder, tmp_path / "lake")

    assert keys(guess)["used_cpu_cores"] == ("cpu_util_pct", read, sure)
    usage = Lake(tmp_path / "lake").table("usage", "generic").sort("job_id").collect()
    assert usage["used_cpu_cores"].to_list() == pytest.approx(list(used))


def test_task_types_are_taken_where_they_are_known(tmp_path: Path) -> None:
    def types(*texts: str) -> tuple[str, dict[str, object], bool] | None:
        lines = [f"j{i},2024-01-31T10:00:00,{text}" for i, text in enumerate(texts)]
        return keys(guessed(tmp_path, "\n".join(["job_id,submit,task_type", *lines, ""]))).get("task_type")

    assert types("nlp", "cv") == ("task_type", {}, True)
    assert types("nlp", "speech") == ("task_type", {"values": {"nlp": "nlp"}, "otherwise": "other"}, False)
    assert types("ps", "worker") is None


def test_spans_are_compared_with_the_times_between_which_they_lie(tmp_path: Path) -> None:
    rows = [f"j{i},2024-01-01 09:00:00,2024-01-01 10:{i:02}:00,2024-01-01 11:00:00,{60 - i}" for i in range(9)]

    guess = guessed(tmp_path, "\n".join(["job_id,submit_time,start_time,end,duration", *rows]))

    assert keys(guess)["run_s"] == ("duration", {"unit": "min"}, True)


def test_the_zone_is_the_offset_of_the_times_or_open(tmp_path: Path) -> None:
    assert guessed(tmp_path, "job_id,submit\na,2024-01-31T10:00:00+08:00\n").settings["zone"] == "Etc/GMT-8"
    assert guessed(tmp_path, "job_id,submit\na,2024-01-31T10:00:00\n").settings["zone"] == "UTC"


def test_a_column_of_texts_that_never_repeat_is_taken_for_the_id(tmp_path: Path) -> None:
    lines = [f"2024-01-31T10:00:{i:02},R{i},{i % 2},{i}.5" for i in range(9)]

    guess = guessed(tmp_path, "\n".join(["submit,run_no,cluster_no,seconds", *lines]))

    assert keys(guess)["job_id"] == ("run_no", {}, False)
    with pytest.raises(SourceError, match="found no column for job_id"):
        guessed(tmp_path, "submit,run_no\n2024-01-31T10:00:00,R1\n2024-01-31T10:00:01,R1\n")


@pytest.mark.parametrize(
    ("more", "start"),
    [
        ("wait_sec", ("", {"derive": "submit_ts + queue_s"}, True)),
        ("end", ("", {"derive": "end_ts - run_s"}, True)),
        ("colour", ("submit", {"time": "epoch_s"}, False)),
    ],
)
def test_a_start_that_no_column_holds_is_derived(tmp_path: Path, more: str, start: object) -> None:
    value = "1709283999" if more == "end" else "30"

    guess = guessed(tmp_path, f"job_id,submit,run_s,{more}\na,1709283389,10,{value}\n")

    assert keys(guess)["start_ts"] == start
    opened = opened_source(tmp_path / "mapping.toml", str(tmp_path / "jobs.csv"))
    ingest(opened.source, opened.folder, tmp_path / "lake")
    assert Lake(tmp_path / "lake").table("jobs", "generic").collect()["end_ts"].null_count() == 0


def test_a_parquet_file_is_guessed_and_read_like_the_same_csv_file(tmp_path: Path) -> None:
    hours = [datetime(2024, 1, 31, hour) for hour in range(20)]
    table = pl.DataFrame({
        "job_id": [f"j{hour.hour}" for hour in hours], "submitted_at": hours, "started_at": hours,
        "ended_at": [hour + timedelta(minutes=30) for hour in hours], "state": "COMPLETED",
        "requested_gpus": 2, "memory_peak_gb": 4.5, "tags": [["a"]] * len(hours),
    })  # fmt: skip
    table.write_parquet(tmp_path / "jobs.parquet")
    table.drop("tags").write_csv(tmp_path / "jobs.csv")

    lakes = []
    for name in ("jobs.parquet", "jobs.csv"):
        (tmp_path / "m.toml").write_text(guess_mapping(tmp_path / name).toml(), encoding="utf-8")
        opened = opened_source(tmp_path / "m.toml", str(tmp_path / name))
        ingest(opened.source, opened.folder, tmp_path / f"lake-{name}")
        lake = Lake(tmp_path / f"lake-{name}")
        lakes.append([lake.table(each, "generic").sort("job_id").collect() for each in ("jobs", "usage")])

    assert lakes[0][0].height == len(hours)
    assert lakes[0][1]["mem_max_gib"][0] == pytest.approx(4.5e9 / 2**30)
    assert all(ours.equals(theirs) for ours, theirs in zip(*lakes, strict=True))
    (tmp_path / "damaged").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match="cannot be read as Parquet"):
        guess_mapping(tmp_path / "damaged")


def test_columns_of_known_names_that_are_not_used_are_named_with_the_reason(tmp_path: Path) -> None:
    header = "job_id,submit,mem_gib,memory,MaxRSS,AveRSS,colour,start"

    guess = guessed(
        tmp_path, f"{header}\na,2024-01-31T10:00:00,4,8,,0,red,never\nb,2024-01-31T10:00:00,4,8,,x\tn,red,never"
    )

    assert guess.unused == [
        "memory (req_mem_gib is read from mem_gib)",
        "MaxRSS (no row has a value)",
        "AveRSS (mem_avg_gib cannot be read from texts like x?n)",
        "colour",
        "start (start_ts cannot be read from texts like never)",
    ]
    assert "# not used: memory (req_mem_gib is read from mem_gib), MaxRSS (no row has a value), AveRSS" in guess.toml()


def test_texts_of_the_file_cannot_add_lines_to_the_mapping(tmp_path: Path) -> None:
    guess = guessed(tmp_path, 'job_id,submit,state,"od\nd"\na,2024-01-31,done,1\nb,2024-01-31,"x\nzone = 1",2\n')

    assert tomllib.loads(guess.toml())["jobs"]["columns"]["status"]["values"] == {"done": "completed"}
    assert "add a meaning for x?zone = 1" in guess.toml()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no header"),
        ("a,2024-01-01\nb,2024-01-02\n", "found no column for job_id and submit_ts"),
        ("1,2,3\n4,5,6\n", "found no header"),
        ("job_id,colour\na,red\n", "found no column for submit_ts among job_id, colour"),
        ("job_id,submit\na,\0\n", "bytes that are no text"),
        ('{"job_id": "a", "submit": 1}\r\n', r"found JSON; expected CSV or Parquet.*read_ndjson\('jobs.csv'\)"),
        ('[{"job_id": "a", "submit": 1}]', "found JSON.* read_json for an array"),
        ('\n{\n "jobs": [{"job_id": "a", "submit": 1}]}\n', "found JSON"),
    ],
)
def test_files_that_are_no_table_of_jobs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        guessed(tmp_path, text)


def test_the_command_writes_a_new_file_only(tmp_path: Path) -> None:
    jobs, mapping = tmp_path / "jobs.csv.gz", tmp_path / "mapping.toml"
    jobs.write_bytes(gzip.compress(b"job_id,submit\na,2024-01-31T10:00:00\n"))

    first, again = (CliRunner().invoke(app, ["init", str(jobs), "--to", str(mapping)]) for _ in range(2))

    assert first.exit_code == 0, first.stderr
    assert f"taut ingest generic --mapping {mapping} --from {jobs} --check" in first.stderr
    assert again.exit_code == 2
    assert CliRunner().invoke(app, ["init", str(tmp_path), "--to", str(tmp_path / "b.toml")]).exit_code == 1
    homeless = CliRunner().invoke(app, ["init", str(jobs), "--to", str(tmp_path / "none" / "b.toml")])
    assert homeless.exit_code == 2
    assert "there is no folder" in homeless.stderr
    assert not (tmp_path / "b.toml").exists()


@pytest.mark.slow
def test_a_real_trace_is_read_as_its_own_reader_reads_it(tmp_path: Path, traces: Path) -> None:
    log = traces / "helios" / "Venus" / "cluster_log.csv"
    (tmp_path / "m.toml").write_text(guess_mapping(log).toml().replace('"UTC"', '"Asia/Shanghai"'), encoding="utf-8")
    opened = opened_source(tmp_path / "m.toml", str(log))
    ingest(opened.source, opened.folder, tmp_path / "lake", as_name="guessed")
    ingest("helios", traces / "helios", tmp_path / "lake")
    names = ["job_id", "submit_ts", "start_ts", "end_ts", "run_s", "req_gpus"]

    ours, theirs = (
        Lake(tmp_path / "lake").table("jobs", trace, cluster).select(names).sort("job_id").collect()
        for trace, cluster in (("guessed", "main"), ("helios", "Venus"))
    )

    assert ours.height > 90_000
    assert ours.equals(theirs)
