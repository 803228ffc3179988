"""The tables of a synthetic trace as the published statistics were computed on them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.synth.published import COLUMNS
from pipelines.synth.random_numbers import Curve, Floats

_TEXT: Final = frozenset(
    {
        "job_name", "inst_id", "user", "status", "task_name", "gpu_type", "inst_name", "worker_name", "machine",
        "gpu_name", "gpu_type_spec", "group", "workload",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a synthetic trace.

    `task` also has `run_s` (start of the first instance to end; null while running), `user`, `group` and `workload`.
    """

    job: pl.DataFrame
    task: pl.DataFrame
    sensor: pl.DataFrame
    metric: pl.DataFrame
    instances: int

    @property
    def finished(self) -> pl.DataFrame:
        """Return the tasks that request GPUs and have the status Terminated (completed)."""
        return self.task.filter(pl.col("status") == "Terminated", pl.col("plan_gpu").is_not_null())

    @property
    def tagged(self) -> pl.DataFrame:
        """Return Terminated tasks of tagged jobs, each joined with every measured GPU worker of its job."""
        tasks = self.task.filter(pl.col("status") == "Terminated", pl.col("workload").is_not_null())
        measured = self.sensor.filter(pl.col("gpu_wrk_util").is_not_null()).drop("task_name", "machine", "inst_id")
        return tasks.join(measured, on="job_name")


def scan(folder: Path, table: str) -> pl.LazyFrame:
    """Scan one CSV table without header, with the column names of the published trace."""
    schema = {name: pl.String if name in _TEXT else pl.Float64 for name in COLUMNS[table]}
    return pl.scan_csv(folder / f"{table}.csv", has_header=False, schema=schema)


def read_tables(folder: Path) -> Tables:
    job, tag, instance = (scan(folder, f"pai_{name}_table") for name in ("job", "group_tag", "instance"))
    began = instance.group_by("job_name", "task_name").agg(began=pl.col("start_time").min())
    owner = job.select("job_name", "inst_id", "user").join(
        tag.select("inst_id", "group", "workload"), on="inst_id", how="left"
    )
    task = (
        scan(folder, "pai_task_table")
        .join(began, on=["job_name", "task_name"], how="left")
        .join(owner, on="job_name", how="left")
        .with_columns(run_s=pl.col("end_time") - pl.col("began"))
    )
    return Tables(
        job=job.collect(),
        task=task.collect(),
        sensor=scan(folder, "pai_sensor_table").collect(),
        metric=scan(folder, "pai_machine_metric").collect(),
        instances=instance.select(pl.len()).collect().item(),
    )


def numbers(frame: pl.DataFrame, column: str) -> Floats:
    """Return the non-null values of a column as floats."""
    return frame[column].drop_nulls().to_numpy().astype(np.float64)


def published_values(curve: Curve) -> Floats:
    """Return the published quantiles from which a curve was made; values near 0 are returned as 0."""
    return np.where(curve.logs < np.log(1.1e-3), 0.0, np.exp(curve.logs))
