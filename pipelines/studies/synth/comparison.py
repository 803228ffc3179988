"""A statistic twice, as published and as measured: pairs, tables of pairs, and how shares and quantiles are paired.

Which statistics there are is in `job_comparisons` and `use_comparisons`; text is rendered in `report`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import SynthesisError
from pipelines.synth.published import COLUMNS
from pipelines.synth.random_numbers import Curve, Floats

QUANTILES: Final = (0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One statistic twice: as published (or, where nothing is, as chosen) and as measured, number by number."""

    name: str
    published: tuple[float, ...]
    synthetic: tuple[float, ...]
    origin: str = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One table of pairs: its title, the meaning of its numbers, and notes on them."""

    title: str
    columns: tuple[str, ...]
    pairs: tuple[Pair, ...]
    note: str = ""


def numbers(frame: pl.DataFrame, column: str) -> Floats:
    """Return a column's numbers without nulls."""
    return frame[column].drop_nulls().to_numpy().astype(np.float64)


def quantiles(values: Floats, at: Sequence[float]) -> tuple[float, ...]:
    """Return quantiles, NaN where there is nothing."""
    return tuple(np.quantile(values, at).tolist()) if len(values) else (float("nan"),) * len(at)


def labels(at: Iterable[float]) -> tuple[str, ...]:
    """Name probabilities as percentiles."""
    return tuple(f"p{100 * p:g}" for p in at)


def published_values(curve: Curve) -> tuple[float, ...]:
    """Return the quantiles a curve was made from."""
    return tuple(0.0 if log < np.log(1.1e-3) else float(np.exp(log)) for log in curve.logs)


def shares_of(title: str, published: Mapping[str, float], column: pl.Series, note: str = "") -> Comparison:
    """Compare shares of a column's values; published counts are turned into shares of their sum or of one."""
    total = max(1.0, sum(published.values()))
    found = column.cast(pl.String).fill_null("")
    pairs = [
        Pair(name=value or "none", published=(count / total,), synthetic=(float(np.mean((found == value).to_numpy())),))
        for value, count in published.items()
    ]
    return Comparison(title=title, columns=("share",), pairs=tuple(pairs), note=note)


_TEXT: Final = frozenset(
    {
        "job_name", "inst_id", "user", "status", "task_name", "gpu_type", "inst_name", "worker_name", "machine",
        "gpu_name", "gpu_type_spec", "group", "workload",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of one folder."""

    job: pl.DataFrame
    task: pl.DataFrame
    """Task rows with `run_s` (first instance to end; null while running), `user`, `group`, `workload`."""
    sensor: pl.DataFrame
    metric: pl.DataFrame
    machine: pl.DataFrame
    instances: int

    @property
    def finished(self) -> pl.DataFrame:
        """Return the Terminated tasks with GPUs."""
        return self.task.filter(pl.col("status") == "Terminated", pl.col("plan_gpu").is_not_null())


def scan(folder: Path, table: str) -> pl.LazyFrame:
    """Scan one headerless table of a folder with its published columns.

    Raises
    ------
    SynthesisError
        When the table is absent.
    """
    file = folder / f"{table}.csv"
    if not file.is_file():
        raise SynthesisError(f"{folder}: no {file.name}; expected the seven tables `taut synth pai` writes")
    schema = {name: pl.String if name in _TEXT else pl.Float64 for name in COLUMNS[table]}
    return pl.scan_csv(file, has_header=False, schema=schema)


def read_tables(folder: Path) -> Tables:
    """Read what the comparison needs of the tables in a folder."""
    job, tag = scan(folder, "pai_job_table"), scan(folder, "pai_group_tag_table")
    instance = scan(folder, "pai_instance_table")
    began = instance.group_by("job_name", "task_name").agg(began=pl.col("start_time").min())
    owner = job.select("job_name", "inst_id", "user").join(
        tag.select("inst_id", "group", "workload"), on="inst_id", how="left"
    )
    task = (
        scan(folder, "pai_task_table")
        .join(began, on=["job_name", "task_name"], how="left")
        .join(owner, on="job_name", how="left")
        .with_columns(run_s=pl.col("end_time") - pl.col("began"), wait_s=pl.col("began") - pl.col("start_time"))
    )
    return Tables(
        job=job.collect(),
        task=task.collect(),
        sensor=scan(folder, "pai_sensor_table").collect(),
        metric=scan(folder, "pai_machine_metric").collect(),
        machine=scan(folder, "pai_machine_spec").collect(),
        instances=instance.select(pl.len()).collect().item(),
    )


def joined_rows(tables: Tables) -> pl.DataFrame:
    """Return the rows section 4 of the published statistics is about.

    Terminated tasks of tagged jobs times the measured GPU workers of their job, whichever task these belong to.
    """
    tagged = tables.task.filter(pl.col("status") == "Terminated", pl.col("workload").is_not_null())
    measured = tables.sensor.filter(pl.col("gpu_wrk_util").is_not_null()).drop("task_name", "machine", "inst_id")
    return tagged.join(measured, on="job_name")
