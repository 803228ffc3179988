"""What own tables become: clusters by file, ends and waits that are missing, time zones, other notations of numbers."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.errors import MappingError, SourceError
from pipelines.lake.lake import Lake
from pipelines.lake.sources import SOURCES
from tests.own_cluster_examples import PAGE
from tests.pipelines.lake.generic.own_rows import (
    COLUMNS,
    ROWS,
    check_own,
    ingest_own,
    mapping_text,
    own_files,
    row,
    table_of,
    written_as_csv,
)

PATTERN = "part-{cluster}.csv"


def mapping_of(file: str, more: str = "") -> str:
    return f'[jobs]\nfile = "{file}"\n{COLUMNS}{more}'


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
    report = ingest_own(tmp_path, folder, mapping_of(PATTERN))

    assert table_of(tmp_path)["cluster"].value_counts().sort("cluster").rows() == [("north", 5), ("south", 3)]
    assert [(a.cluster, a.file, a.rows_quarantined) for a in report.manifest.accounts] == [
        ("north", "part-north.csv", 0),
        ("south", "part-south.csv", 1),
    ]
    assert [i.file for i in report.manifest.inputs] == ["part-north.csv", "part-south.csv", "the mapping"]

    assert not ingest_own(tmp_path, folder, mapping_of(PATTERN)).changed
    written_as_csv(folder / "part-west.csv", ROWS[:1])
    assert ingest_own(tmp_path, folder, mapping_of(PATTERN)).manifest.clusters == ("north", "south", "west")


def test_folders_and_machines_are_named_alike(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "from" / name).mkdir(parents=True)
        written_as_csv(tmp_path / "from" / name / "jobs", ROWS[:2])
        (tmp_path / "from" / name / "nodes.csv").write_text(f"m,g\nnode-{name},8\n")
    machines = '[machines]\nfile = "{cluster}/nodes.csv"\n[machines.columns]\nmachine = "m"\ngpus = "g"\n'

    ingest_own(tmp_path, tmp_path / "from", mapping_of("{cluster}/jobs", machines))

    assert table_of(tmp_path, "machines").select("cluster", "machine").rows() == [("a", "node-a"), ("b", "node-b")]
    assert sorted(table_of(tmp_path)["cluster"].unique()) == ["a", "b"]


def test_what_gives_no_clusters_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no cluster of generic in .*; expected {cluster}.tsv"):
        ingest_own(tmp_path, folder, mapping_of("{cluster}.tsv"))
    with pytest.raises(MappingError, match="expected --from FOLDER"):
        ingest_own(tmp_path, folder / "part-north.csv", mapping_of(PATTERN))
    (folder / "part-south.csv").write_text("JobID\n1\n")
    with pytest.raises(SourceError, match=r"part-south\.csv lacks the column"):
        ingest_own(tmp_path, folder, mapping_of(PATTERN))
    written_as_csv(folder / "part-the west.csv", ROWS)
    with pytest.raises(SourceError, match="the cluster 'the west'; expected letters"):
        ingest_own(tmp_path, folder, mapping_of(PATTERN))


@pytest.mark.slow
def test_the_pages_mapping_reads_four_real_clusters_at_once(traces: Path, tmp_path: Path) -> None:
    [mapping] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    report = ingest_own(tmp_path, traces / "itp", mapping)

    rows = {path.stem: len(path.read_text().splitlines()) - 1 for path in (traces / "itp").glob("*.csv")}
    jobs = table_of(tmp_path)
    assert dict(jobs["cluster"].value_counts().rows()) == rows
    assert len(rows) == 4
    assert report.manifest.rows_quarantined == 0
    assert jobs["end_ts"].null_count() == 0
    assert jobs["queue_s"].null_count() == jobs.height


# Ends and waits.

TEXT = "id,at,start,end,took,wait,how\na,1000,1000,1600,600,0,OK\nb,2000,2000,2060,60,0,OK\n"
LEAST = '[jobs.columns]\njob_id = "id"\nsubmit_ts = { column = "at", time = "epoch_s" }\n'
RUN, WAIT = 'run_s = "took"\n', 'queue_s = "wait"\n'
STARTED_AT, STARTED, ENDED = (
    f'{name} = {{ column = "{column}", time = "epoch_s" }}\n'
    for name, column in (("start_ts", "at"), ("start_ts", "start"), ("end_ts", "end"))
)
NO_WAIT = "main: every job starts when submitted: the queueing delay is unknown, queue_s is null"


def warned(place: Path, columns: str, text: str = TEXT) -> tuple[str, ...]:
    """Check, and ingest, a table; return the warnings, which are the same for both."""
    (place / "jobs").write_text(text)
    mapping = f'[jobs]\nfile = "jobs"\n{LEAST}{columns}'
    report = check_own(place, place, mapping)
    assert report.manifest is not None
    assert ingest_own(place, place, mapping).manifest.warnings == report.manifest.warnings
    return report.manifest.warnings


@pytest.mark.parametrize(
    ("columns", "cure"),
    [
        ("", "map end_ts, or start_ts and run_s"),
        (RUN, "map start_ts, too; if waits are unknown, to the column of submit_ts"),
        (STARTED, "map end_ts, or run_s"),
        (STARTED + ENDED + 'status = { value = "running" }\n', "is every job running?"),
    ],
)
def test_rows_without_an_end_are_reported_with_the_cure(columns: str, cure: str, tmp_path: Path) -> None:
    [warning] = [each for each in warned(tmp_path, columns) if "no row has an end" in each]

    assert cure in warning
    assert table_of(tmp_path)["end_ts"].null_count() == 2


def test_a_start_taken_from_the_submission_gives_ends_and_unknown_waits(tmp_path: Path) -> None:
    assert warned(tmp_path, STARTED_AT + RUN) == (NO_WAIT,)

    jobs = table_of(tmp_path)
    assert jobs["end_ts"].dt.epoch("s").to_list() == [1600, 2060]
    assert jobs["queue_s"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("columns", "text", "waits"),
    [
        (STARTED + ENDED, TEXT, [None, None]),
        (STARTED + ENDED, TEXT.replace("2000,2000", "2000,2010"), [0.0, 10.0]),
        (STARTED + ENDED + WAIT, TEXT, [0.0, 0.0]),
    ],
    ids=["no job waits", "one job waits", "a column of waits"],
)
def test_a_wait_is_zero_only_if_the_table_records_waits(
    columns: str, text: str, waits: list[float | None], tmp_path: Path
) -> None:
    warnings = warned(tmp_path, columns, text)

    assert table_of(tmp_path)["queue_s"].to_list() == waits
    assert (NO_WAIT in warnings) == (waits == [None, None])


# Time zones.


def test_local_hours_and_dates_are_those_of_the_mapping(tmp_path: Path) -> None:
    # Eight jobs, one a day, submitted at 8:00 in Berlin, under a name that begins like a published trace's.
    folder, _ = own_files(tmp_path, "csv")
    report = ingest_own(tmp_path, folder, mapping_text("csv", more='zone = "Europe/Berlin"\n'), name="pai-x")

    assert report.manifest.zone == "Europe/Berlin"
    with Lake(tmp_path / "lake") as lake:
        hours = lake.connect().execute("SELECT DISTINCT zone, hour(submit_local) FROM jobs_with_usage").fetchall()
    assert hours == [("Europe/Berlin", 8)]
    for until, runs in (("2024-03-02T07:59:59", 1), ("2024-03-02T08:00:01", 2)):
        command = ["rightsize", "--lake", str(tmp_path / "lake"), "--until", until, "--format", "json"]
        assert sum(row["runs"] for row in json.loads(CliRunner().invoke(app, command).stdout)) == runs


def test_published_traces_keep_their_zones() -> None:
    zones = {name: source.zone for name, source in SOURCES.items()}

    chinese = dict.fromkeys(("pai", "helios"), "Asia/Shanghai")
    assert zones == {**chinese, "philly": "America/Los_Angeles", "openb": "UTC"}


# Kubernetes quantities, decimal commas and percent signs, also together with units.

PODS_MAPPING = """
[jobs]
file = "pods.csv"
delimiter = ";"
[jobs.columns]
job_id = "pod"
submit_ts = { column = "created", time = "epoch_s" }
run_s = { column = "hours", as = "decimal_comma", unit = "h" }
req_cpu_cores = { column = "cpu", as = "kubernetes_quantity" }
req_mem_gib = { column = "mem", as = "kubernetes_quantity" }
req_gpus = { column = "gpu", as = "kubernetes_quantity" }
[usage.columns]
used_gpus = { column = "util", unit = "percent" }
used_cpu_cores = { column = "busy", as = "decimal_comma", unit = "percent" }
mem_max_gib = { column = "peak", as = "decimal_comma" }
"""
PODS = "pod;created;hours;cpu;mem;gpu;util;busy;peak\na;0;1,5;500m;4Gi;2;85%;12,5 %;3,25\nb;0;2;8;512Mi;1;85;50;1\n"


def test_each_notation_becomes_the_canonical_unit(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS)

    assert ingest_own(tmp_path, tmp_path, PODS_MAPPING).manifest.rows_quarantined == 0

    jobs, usage = table_of(tmp_path), table_of(tmp_path, "usage")
    assert jobs.select("run_s", "req_cpu_cores", "req_mem_gib", "req_gpus").rows() == [
        (5400.0, 0.5, 4.0, 2.0),
        (7200.0, 8.0, 0.5, 1.0),
    ]
    assert usage.select("used_gpus", "used_cpu_cores", "mem_max_gib").rows() == [(0.85, 0.125, 3.25), (0.85, 0.5, 1.0)]


def test_other_notations_go_to_quarantine_with_the_expected_one(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS + "c;0;1.5;4GB;4gb;x;85%%;1.5;3\n")

    problems = {each.rule: each for each in check_own(tmp_path, tmp_path, PODS_MAPPING).problems}

    names = ("run_s", "req_cpu_cores", "req_mem_gib", "req_gpus", "used_gpus", "used_cpu_cores")
    assert set(problems) == {f"unparsable_{name}" for name in names}
    assert "decimal comma" in problems["unparsable_run_s"].cure
    assert "as Kubernetes writes them: 4Gi" in problems["unparsable_req_mem_gib"].cure
    assert "with or without a percent sign" in problems["unparsable_used_gpus"].cure
    assert problems["unparsable_req_mem_gib"].found == "req_mem_gib = 4gb"
