"""The seven files: their bytes, their format, their joins, their counts."""

import csv
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.errors import SynthesisError
from pipelines.lake.ingest import ingest
from pipelines.synth.calibration import load_calibration
from pipelines.synth.pai import SynthReport, Trace, draw_trace, synthesise
from pipelines.synth.published import COLUMNS
from pipelines.synth.runtime import WAITING
from pipelines.synth.tables import chunk_tables
from tests.pipelines.synth.trace_tables import Tables, scan

FLOAT = r"\d+\.\d+"
HEX24, HEX60 = r"[0-9a-f]{24}", r"[0-9a-f]{60}"
STATUS = "Terminated|Failed|Running|Waiting"
FORMATS = {
    "pai_job_table": [HEX24, HEX60, r"[0-9a-f]{12}", STATUS, FLOAT, f"({FLOAT})?"],
    "pai_task_table": [HEX24, r"\w+", r"\d+\.0", STATUS, FLOAT, f"({FLOAT})?", FLOAT, FLOAT, f"({FLOAT})?", r"\w*"],
    "pai_instance_table": [HEX24, r"\w+", HEX60, HEX60, HEX60, STATUS, FLOAT, f"({FLOAT})?", HEX24],
    "pai_sensor_table": [HEX24, r"\w+", HEX60, HEX60, HEX24, r"(/dev/nvidia[0-7])?", *[f"({FLOAT})?"] * 10],
    "pai_group_tag_table": [HEX60, r"[0-9a-f]{12}", "", r"[0-9a-f]{32}", r"[a-z]*"],
    "pai_machine_spec": [HEX24, "CPU|MISC|P100|T4|V100|V100M32", r"\d+", r"\d+", r"\d+"],
    "pai_machine_metric": [HEX60, HEX24, *[FLOAT] * 10],
}


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_the_same_seed_gives_the_same_bytes_whatever_the_chunk(tmp_path: Path):
    synthesise(tmp_path / "whole", tasks=2000, seed=5)
    synthesise(tmp_path / "pieces", tasks=2000, seed=5, chunk_jobs=123)

    assert digests(tmp_path / "whole") == digests(tmp_path / "pieces")


@pytest.mark.parametrize("table", COLUMNS)
def test_every_field_has_the_published_form(folder: Path, table: str):
    forms = [re.compile(form) for form in FORMATS[table]]

    with (folder / f"{table}.csv").open(newline="") as lines:
        rows = [row for number, row in enumerate(csv.reader(lines)) if number % 7 == 0]

    assert rows
    for row in rows:
        assert len(row) == len(COLUMNS[table]), row
        wrong = [field for form, field in zip(forms, row, strict=True) if not form.fullmatch(field)]
        assert not wrong, (table, row)


def test_header_files_name_the_columns_as_published(folder: Path, traces: Path):
    for header in sorted((traces / "pai").glob("*.header")):
        assert (folder / header.name).read_text().strip() == header.read_text().strip()


def test_the_count_of_tasks_is_the_one_asked_for(made: SynthReport, tables: Tables):
    assert made.tasks == made.row_counts["pai_task_table"] == tables.task.height == 20_000
    assert made.row_counts["pai_instance_table"] == tables.instances
    assert [row["rows"] for row in made.rows()] == list(made.row_counts.values())


@pytest.mark.parametrize(
    ("child", "parent", "keys"),
    [
        ("pai_task_table", "pai_job_table", ["job_name"]),
        ("pai_job_table", "pai_task_table", ["job_name"]),
        ("pai_instance_table", "pai_task_table", ["job_name", "task_name"]),
        ("pai_instance_table", "pai_job_table", ["job_name", "inst_id"]),
        ("pai_instance_table", "pai_machine_spec", ["machine"]),
        ("pai_sensor_table", "pai_instance_table", ["job_name", "task_name", "worker_name", "inst_id", "machine"]),
        ("pai_group_tag_table", "pai_job_table", ["inst_id", "user"]),
        ("pai_job_table", "pai_group_tag_table", ["inst_id", "user"]),
        ("pai_machine_metric", "pai_sensor_table", ["worker_name", "machine"]),
    ],
)
def test_every_row_finds_its_parent(folder: Path, child: str, parent: str, keys: list[str]):
    orphans = scan(folder, child).join(scan(folder, parent), on=keys, how="anti").collect()

    assert orphans.is_empty()


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("pai_job_table", ["job_name"]),
        ("pai_job_table", ["inst_id"]),
        ("pai_task_table", ["job_name", "task_name"]),
        ("pai_instance_table", ["inst_name"]),
        ("pai_instance_table", ["worker_name"]),
        ("pai_sensor_table", ["worker_name", "gpu_name"]),
        ("pai_machine_spec", ["machine"]),
    ],
)
def test_keys_are_unique(folder: Path, table: str, key: list[str]):
    assert not scan(folder, table).select(key).collect().is_duplicated().any()


def test_started_tasks_have_all_their_instances_inside_their_times(folder: Path):
    instances = (
        scan(folder, "pai_instance_table")
        .group_by("job_name", "task_name")
        .agg(pl.len().alias("found"), pl.col("start_time").min().alias("first"), pl.col("end_time").max().alias("last"))
    )
    tasks = scan(folder, "pai_task_table").join(instances, on=["job_name", "task_name"], how="left").collect()
    started, waiting = tasks.filter(pl.col("status") != "Waiting"), tasks.filter(pl.col("status") == "Waiting")

    assert waiting["found"].null_count() == waiting.height > 0
    assert (started["found"] == started["inst_num"]).all()
    assert (started["first"] >= started["start_time"]).all()
    ended = started.filter(pl.col("status").is_in(["Terminated", "Failed"]))
    assert (ended["last"] == ended["end_time"]).all()
    assert (ended["last"] > ended["first"]).all()
    running = started.filter(pl.col("status") == "Running")
    assert running["end_time"].null_count() == running.height > 0
    assert (running["first"] <= tasks["start_time"].max()).all()


def test_jobs_span_their_tasks(tables: Tables):
    spans = tables.task.group_by("job_name").agg(pl.col("start_time").min(), pl.col("end_time").max())
    jobs = tables.job.join(spans, on="job_name", suffix="_tasks")

    assert (jobs["start_time"] == jobs["start_time_tasks"]).all()
    ended = jobs.filter(pl.col("end_time").is_not_null())
    assert (ended["end_time"] == ended["end_time_tasks"]).all()


def test_nothing_ends_after_the_trace(tables: Tables):
    trace = load_calibration().trace
    last = trace.start_s + trace.days * 86_400

    assert tables.task["start_time"].min() >= trace.start_s
    assert tables.task["end_time"].max() <= last


def test_use_is_physically_possible(tables: Tables):
    sensor = tables.sensor

    assert (sensor["avg_mem"] <= sensor["max_mem"]).all()
    gpu = sensor.filter(pl.col("gpu_name").is_not_null())
    assert (gpu["avg_gpu_wrk_mem"] <= gpu["max_gpu_wrk_mem"]).all()
    assert gpu["gpu_wrk_util"].is_between(0, 100).all()
    assert gpu["max_gpu_wrk_mem"].max() < 32
    assert sensor.filter(pl.col("gpu_name").is_null())["gpu_wrk_util"].null_count() == sensor.height - gpu.height > 0


def test_more_than_two_gpus_an_instance_sit_where_machines_have_them(tables: Tables):
    large = tables.task.filter(pl.col("plan_gpu") > 200)

    assert large.height > 0
    assert set(large["gpu_type"]) <= {"MISC", "V100", "V100M32"}


def test_ingest_takes_every_row(folder: Path, tables: Tables, tmp_path: Path):
    report = ingest("pai", folder, tmp_path / "lake", as_name="pai-synth")

    assert {a.table: a.quarantined for a in report.manifest.accounts if a.quarantined} == {}
    assert {o.table: o.rows for o in report.manifest.outputs}["jobs"] == tables.task.height


def test_a_tagged_share_is_honoured(tmp_path: Path):
    synthesise(tmp_path, tasks=5000, seed=2, tagged_share=0.6)

    tags = scan(tmp_path, "pai_group_tag_table").collect()["workload"]
    assert tags.is_not_null().mean() == pytest.approx(0.6, abs=0.05)
    assert {"ctr", "bert", "nmt", "inception", "graphlearn", "rl"} <= set(tags.drop_nulls())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tagged_share", [None, 0.0, 1.0])
def test_any_mix_makes_the_tasks_asked_for(seed: int, tagged_share: float | None):
    trace = draw_trace(load_calibration(), seed=seed, tasks=1000, tagged_share=tagged_share)

    assert len(trace.tasks.job) == 1000


def test_a_damaged_calibration_says_so(tmp_path: Path):
    (tmp_path / "pai.toml").write_text("[trace]\ntasks = 1\n")

    with pytest.raises(SynthesisError, match="not a calibration"):
        load_calibration(tmp_path / "pai.toml")


def test_only_the_largest_gangs_grow_until_as_many_instances_start_as_asked_for():
    def drawn(instances: int | None) -> Trace:
        return draw_trace(load_calibration(), seed=3, tasks=20_000, tagged_share=None, instances=instances)

    def started(trace: Trace) -> int:
        return int(trace.tasks.instances[trace.tasks.status != WAITING].sum())

    plain = drawn(None)
    wanted = round(1.1 * started(plain))
    filled, fewer = drawn(wanted), drawn(started(plain) // 2)

    assert abs(started(filled) - wanted) < 0.002 * wanted
    small = plain.tasks.instances < 100
    assert np.array_equal(filled.tasks.instances[small], plain.tasks.instances[small])
    assert (filled.tasks.instances[~small] > plain.tasks.instances[~small]).all()
    assert np.array_equal(fewer.tasks.instances, plain.tasks.instances)
    rows = (frame for name, frame in chunk_tables(filled, 0, len(filled.jobs.group)) if name == "pai_instance_table")
    table = pl.concat(rows)
    assert table["worker_name"].n_unique() == table.height == started(filled)


@pytest.mark.slow
def test_memory_stays_bounded_as_the_trace_grows(tmp_path: Path):
    code = (
        "import sys, pathlib; from pipelines.synth.pai import synthesise;"
        "synthesise(pathlib.Path(sys.argv[1]), tasks=int(sys.argv[2]), seed=1, chunk_jobs=2000);"
        "print(pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"  # ru_maxrss is inherited
    )
    peak_kib = {
        tasks: int(subprocess.check_output([sys.executable, "-c", code, str(tmp_path / str(tasks)), str(tasks)]))
        for tasks in (10_000, 80_000)
    }
    written = sum(file.stat().st_size for file in (tmp_path / "80000").iterdir()) / 1024

    assert peak_kib[80_000] - peak_kib[10_000] < 0.4 * written
