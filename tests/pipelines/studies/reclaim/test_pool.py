"""Measured jobs from files: the same jobs from every form, and the refusals of bad values."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.simulation.job_pool import KEYS, job_pool
from pipelines.studies.reclaim.pool import NEEDED, tables_in
from pipelines.studies.reclaim.study import Config, run_study
from pipelines.studies.study import Context
from tests.pipelines.studies.shrinking.tiny import tables

ROWS = tables()[0].join(tables()[1], on=KEYS)
TIMES = pl.col("submit_ts").dt.to_string("iso:strict")
SMALL = {"seeds": 2, "arm": ("reclaim",), "variation": ("default",), "sharing": ("pooled",)}


def saved(frame: pl.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.write_csv(path)
    elif path.suffix:
        frame.write_parquet(path)
    else:
        path.mkdir()
        for name, table in zip(("jobs", "usage"), tables(), strict=True):
            frame.select(table.columns).write_parquet(path / f"{name}.parquet")
    return path


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "folder"])
def test_every_form_gives_the_pool_of_the_tables(name: str, tmp_path: Path) -> None:
    assert job_pool(*tables_in(saved(ROWS, tmp_path / name))[:2]) == job_pool(*tables())


def test_the_necessary_columns_suffice(tmp_path: Path) -> None:
    cpu_only = {"req_gpus": 0.0, "used_gpus": None, "gpu_mem_max_gib": None}
    jobs, usage, drawn = tables_in(
        saved(ROWS.select(NEEDED).with_columns(TIMES, **cpu_only), tmp_path / "rows.parquet")
    )

    assert jobs.select("trace", "role", "task_type", "instances").unique().rows() == [("pool", "worker", "other", 1)]
    assert jobs["submit_ts"].equals(ROWS["submit_ts"])
    assert usage.select("used_gpus", "gpu_mem_max_gib").sum().row(0) == (0.0, 0.0)
    assert (usage["mem_avg_gib"] == usage["mem_max_gib"]).all()
    assert drawn.all()


def test_the_study_draws_the_jobs_of_a_file(tmp_path: Path) -> None:
    lost = pl.when(pl.col("job_id") == "j001").then(float("nan")).otherwise("used_gpus").alias("used_gpus")
    path = saved(ROWS.drop("task_type").with_columns(lost), tmp_path / "rows.csv")

    found = run_study(Config(pool=path, **SMALL), Context())  # type: ignore[arg-type]

    assert found.trace == "toy"
    assert [(row["mix"], row["arm"]) for row in found.rows()] == [
        ("all", arm) for arm in ("requested", "reclaim", "oracle")
    ]
    assert found.notes[1].startswith("39 measured jobs, drawn uniformly")
    assert found.notes[2] == "not in the pool: 1 not_measured"


def test_a_row_that_is_history_only_is_not_drawn(tmp_path: Path) -> None:
    path = saved(ROWS.with_columns(drawn=pl.col("job_id") < "j030"), tmp_path / "rows.csv")

    found = run_study(Config(pool=path, **SMALL), Context())  # type: ignore[arg-type]

    assert found.notes[0].startswith("toy: 30 measured jobs")
    assert found.notes[2] == "10 jobs are history only: models learn from them, none is drawn"
    assert tables_in(path)[0].height == 40, "models learn from all rows"


def test_jobs_without_an_end_cost_no_training(tmp_path: Path) -> None:
    end = pl.when(pl.col("job_id") != "j003").then("end_ts").alias("end_ts")
    path = saved(ROWS.with_columns(end), tmp_path / "rows.parquet")

    found = run_study(Config(pool=path, **SMALL | {"arm": ("shrunk",)}), Context())  # type: ignore[arg-type]

    assert found.notes[2] == "arms that need models were not run: 1 measured jobs have no end_ts, or still run"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"req_gpus": "two"}, "job 'j000': found req_gpus = 'two', expected a number"),
        ({"submit_ts": 5}, "found submit_ts = '5', expected a time as ISO 8601"),
        ({"submit_ts": "2020-13-45"}, "found submit_ts = '2020-13-45', expected a time as ISO 8601"),
        ({"req_cpu_cores": -1.0}, "req_cpu_cores|min (40 rows)"),
        ({"used_gpus": float("inf")}, "found used_gpus = 'inf', expected at most 1e+08"),
        ({"instances": 2_000_000_000}, "found instances = '2000000000', expected at most 1e+08"),
        (
            {"job_id": "j007"},
            "job 'j007': found job_id = 'j007', expected one row for each trace, cluster, job_id, role",
        ),
        ({"drawn": "maybe"}, "job 'j000': found drawn = 'maybe', expected true or false"),
        ({"task_type": "resnet"}, "task_type|check (40 rows)"),
        ({"run_s": None}, "found no job with a run time, all requests and all measurements among 40 rows"),
        (
            {"gpu_mem_max_gib": 32.5, "req_gpus": 1.5, "gpu_type": "T4"},
            "found gpu_mem_max_gib = '32.5', expected at most",
        ),
        ({"gpu_mem_max_gib": 20.0, "req_gpus": 1.0, "gpu_type": None}, "expected at most the memory of its GPUs"),
    ],
)
def test_bad_values_are_refused_in_one_line(values: dict[str, object], said: str, tmp_path: Path) -> None:
    path = saved(ROWS.with_columns(pl.lit(value).alias(name) for name, value in values.items()), tmp_path / "a.parquet")

    with pytest.raises(BadUsage) as error:
        run_study(Config(pool=path), Context())

    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content"), [("none.csv", None), ("a.parquet", b"\xff\x00"), ("b.csv", b""), ("c.csv", b"a,b\n1,2,3\n")]
)
def test_what_is_no_table_is_refused(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadUsage, match=f"--pool .*{name}: .*expected a Parquet or CSV file"):
        tables_in(tmp_path / name)
