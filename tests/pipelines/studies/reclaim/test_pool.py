"""Measured jobs from files: the same jobs from every form, what bad files are told, and how arrivals are drawn."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from features.tables import Jobs, Usage
from pipelines.errors import BadUsage
from pipelines.simulation.job_pool import KEYS, Pool, job_pool
from pipelines.studies.reclaim.pool import NEEDED, drawn, measured_in, measured_jobs, tables_in
from scheduler_core.types import IntArray
from tests.pipelines.studies.reclaim.tiny_pool import rows
from tests.pipelines.studies.shrinking.tiny import tables


def parquet(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def csv(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_csv(folder / "rows.csv")
    return folder / "rows.csv"


def two_tables(frame: pl.DataFrame, folder: Path) -> Path:
    frame.select(list(Jobs.column_names())).write_parquet(folder / "jobs.parquet")
    frame.select(list(Usage.column_names())).write_parquet(folder / "usage.parquet")
    return folder


@pytest.mark.parametrize("write", [parquet, csv, two_tables])
def test_the_tables_come_back_from_every_form(write: Callable[[pl.DataFrame, Path], Path], tmp_path: Path) -> None:
    jobs, usage = tables()

    found = tables_in(write(rows(), tmp_path))

    assert found[0].sort("job_id").equals(jobs.sort("job_id"))
    assert found[1].sort("job_id").equals(usage.sort("job_id"))


@pytest.mark.parametrize("write", [parquet, csv])
def test_the_necessary_columns_suffice(write: Callable[[pl.DataFrame, Path], Path], tmp_path: Path) -> None:
    found = tables_in(write(rows().select(NEEDED), tmp_path))

    jobs, usage = Jobs.validate(found[0]), Usage.validate(found[1])
    pool = measured_jobs(jobs, usage).pool
    assert len(pool.jobs) == 40
    assert jobs.select("trace", "task_type", "instances").unique().rows() == [("pool", "other", 1)]
    assert (usage["mem_avg_gib"] == usage["mem_max_gib"]).all()


def test_use_of_gpus_that_were_not_requested_is_zero(tmp_path: Path) -> None:
    none = {"req_gpus": 0.0, "used_gpus": None, "gpu_mem_max_gib": None}
    frame = rows().with_columns(pl.lit(value, pl.Float64).alias(name) for name, value in none.items())

    _, usage = tables_in(parquet(frame, tmp_path))

    assert usage.select("used_gpus", "gpu_mem_max_gib").sum().row(0) == (0.0, 0.0)


def test_jobs_without_a_measurement_are_left_out_and_counted(tmp_path: Path) -> None:
    lost = pl.when(pl.col("job_id") == "j001").then(float("nan")).otherwise("used_gpus").alias("used_gpus")

    found = measured_in(parquet(rows().with_columns(lost), tmp_path))

    assert len(found.pool.jobs) == 39
    assert found.notes == ("39 measured jobs, drawn in the paper's mix", "not in the pool: 1 not_measured")


Change = Callable[[pl.DataFrame], pl.DataFrame]


def at_row(row: int, **values: object) -> Change:
    """Return the change of these columns in one row, counted from 1."""
    here = pl.int_range(pl.len()) == row - 1
    return lambda frame: frame.with_columns(
        pl.when(here).then(pl.lit(value)).otherwise(name).alias(name) for name, value in values.items()
    )


TEXTS = pl.col("submit_ts").dt.to_string("iso:strict")
BAD: dict[str, tuple[Change, str]] = {
    "no column": (lambda frame: frame.drop("run_s", "used_gpus"), "found no column run_s, used_gpus"),
    "a text": (
        lambda frame: frame.with_columns(req_gpus=pl.lit("two")),
        "row 1: found req_gpus = 'two', expected a number",
    ),
    "a number as a time": (
        lambda frame: frame.with_columns(submit_ts=pl.lit(5)),
        "row 1: found submit_ts = '5', expected a time as ISO 8601",
    ),
    "a day that is none": (
        lambda frame: at_row(3, submit_ts="2020-13-45")(frame.with_columns(submit_ts=TEXTS)),
        "row 3: found submit_ts = '2020-13-45', expected a time as ISO 8601, such as 2020-07-01T12:00:00Z",
    ),
    "below 0": (lambda frame: frame.with_columns(req_cpu_cores=pl.lit(-1.0)), "req_cpu_cores|min (40 rows)"),
    "infinite": (at_row(2, used_gpus=float("inf")), "row 2: found used_gpus = inf, expected at most 1e+08"),
    "a huge use": (at_row(4, used_cpu_cores=1e300), "row 4: found used_cpu_cores = 1e+300, expected at most 1e+08"),
    "a huge request": (at_row(4, req_mem_gib=1e300), "row 4: found req_mem_gib = 1e+300, expected at most 1e+08"),
    "a huge time": (at_row(1, run_s=1e300), "row 1: found run_s = 1e+300, expected at most 1e+08"),
    "a huge gang": (
        lambda frame: frame.with_columns(instances=pl.lit(2_000_000_000)),
        "row 1: found instances = 2e+09, expected at most 1e+08",
    ),
    "a job twice": (at_row(4, job_id="j007"), "found several rows of the job j007, expected one for each trace, "),
    "an unknown type": (lambda frame: frame.with_columns(task_type=pl.lit("resnet")), "task_type|check (40 rows)"),
}


@pytest.mark.parametrize("bad", list(BAD))
def test_bad_values_are_refused_with_the_column(bad: str, tmp_path: Path) -> None:
    change, said = BAD[bad]
    path = parquet(change(rows()), tmp_path)

    with pytest.raises(BadUsage) as error:
        tables_in(path)

    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_times_as_texts_are_read(tmp_path: Path) -> None:
    found = tables_in(parquet(rows().with_columns(submit_ts=TEXTS), tmp_path))

    assert found[0]["submit_ts"].sort().equals(tables()[0]["submit_ts"].sort())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpu_mem_max_gib": 16.5, "req_gpus": 0.5, "gpu_type": "T4"}, "16.5, expected .* 1 x 16 GiB .T4."),
        ({"gpu_mem_max_gib": 32.5, "req_gpus": 1.5, "gpu_type": "T4"}, "32.5, expected .* 2 x 16 GiB"),
        ({"gpu_mem_max_gib": 33.0, "req_gpus": 1.0, "gpu_type": "V100M32"}, "33, expected .* 1 x 32 GiB"),
        (
            {"gpu_mem_max_gib": 20.0, "req_gpus": 1.0, "gpu_type": None},
            "20, expected .* 1 x 16 GiB .gpu_type not given.",
        ),
        ({"gpu_mem_max_gib": 1.0, "req_gpus": 0.0, "gpu_type": "T4"}, "1, expected .* 0 x 16 GiB"),
    ],
)
def test_more_gpu_memory_than_the_devices_have_is_refused(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadUsage, match=f"job j001: found gpu_mem_max_gib = {said}"):
        measured_in(parquet(at_row(2, **changes)(rows()), tmp_path))


def test_jobs_may_fill_their_devices(tmp_path: Path) -> None:
    whole = {"gpu_mem_max_gib": 16.0, "req_gpus": 0.5, "gpu_type": "T4"}

    assert len(measured_in(parquet(at_row(2, **whole)(rows()), tmp_path)).pool.jobs) == 40


def test_a_row_with_more_fields_than_the_header_is_refused_in_one_line(tmp_path: Path) -> None:
    path = csv(rows(), tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "x," * 50 + "\n", encoding="utf-8")

    with pytest.raises(BadUsage, match=r"found more fields .*each row with as many fields as the header") as error:
        tables_in(path)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["none.parquet", "bytes.parquet", "bytes.csv", "empty.csv", "folder"])
def test_what_is_no_table_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for each in ("bytes.parquet", "bytes.csv"):
        (tmp_path / each).write_bytes(b"\xff\x00\xfe")
    (tmp_path / "empty.csv").write_bytes(b"")

    with pytest.raises(BadUsage, match=f"--pool .*{name}: (no such file|.*expected a Parquet|found no column)"):
        tables_in(tmp_path / name)


@pytest.mark.parametrize("column", ["run_s", "req_mem_gib", "used_cpu_cores", "gpu_mem_max_gib"])
def test_a_file_without_a_measured_job_is_refused(column: str, tmp_path: Path) -> None:
    path = parquet(rows().with_columns(pl.lit(None, pl.Float64).alias(column)), tmp_path)

    with pytest.raises(BadUsage, match="found no job with a run time, all requests and all measurements among 40 rows"):
        measured_in(path)


def test_the_mix_of_the_paper_is_drawn_where_its_types_are() -> None:
    jobs, usage = tables()
    other = pl.when(pl.col("job_id") == "j000").then(pl.lit("other")).otherwise("task_type").alias("task_type")

    found = measured_jobs(jobs.with_columns(other), usage)

    assert found.notes == ("39 measured jobs, drawn in the paper's mix; 1 of other task types are left out",)
    cases = drawn(found.pool, seeds=[3, 4], rate_per_h=1000.0)
    assert [(case.gnn, case.seed) for case in cases] == [("with", 3), ("with", 4), ("without", 3), ("without", 4)]
    assert "other" not in kinds_of(found.pool, cases[0].arrivals.picks)
    assert "gnn" not in kinds_of(found.pool, cases[2].arrivals.picks)


@pytest.mark.parametrize("kept", [("ctr", "gnn"), ("other",)])
def test_jobs_of_other_types_are_drawn_uniformly(kept: tuple[str, ...]) -> None:
    jobs, usage = tables()
    found = measured_jobs(jobs.with_columns(task_type=pl.Series([kept[at % len(kept)] for at in range(40)])), usage)

    [case] = drawn(found.pool, seeds=[5], rate_per_h=4000.0)

    assert case.gnn == "all"
    counts = Counter(case.arrivals.picks.tolist())
    assert len(counts) == 40
    assert max(counts.values()) < 1.2 * min(counts.values())
    assert case.arrivals.at_s.tolist() == drawn(found.pool, seeds=[5], rate_per_h=4000.0)[0].arrivals.at_s.tolist()
    assert "drawn uniformly" in found.notes[0]


def kinds_of(pool: Pool, picks: IntArray) -> set[str]:
    return {pool.jobs[row].job.task_type for row in picks.tolist()}


def test_the_file_gives_the_pool_of_the_tables(tmp_path: Path) -> None:
    found = measured_in(csv(rows(), tmp_path))

    assert found.pool == job_pool(*tables())
    assert set(KEYS) <= set(found.jobs.columns)
