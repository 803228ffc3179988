"""Building blocks to compare statistics of a synthetic trace with published ones: pairs, tables of pairs, readers.

The statistics are in `job_comparisons` and `use_comparisons`; text is rendered in `report`.
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
    """One statistic, published and synthetic: two tuples of numbers that correspond one to one.

    `origin` is `chosen` instead of `published` if nothing is published and the first numbers are our choice.
    """

    name: str
    published: tuple[float, ...]
    synthetic: tuple[float, ...]
    origin: str = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A table of pairs with its title, the meaning of each number of a pair (`columns`), and a note."""

    title: str
    columns: tuple[str, ...]
    pairs: tuple[Pair, ...]
    note: str = ""


def numbers(frame: pl.DataFrame, column: str) -> Floats:
    """Return the non-null values of a column as floats."""
    return frame[column].drop_nulls().to_numpy().astype(np.float64)


def quantiles(values: Floats, at: Sequence[float]) -> tuple[float, ...]:
    """Return the quantiles of `values` at these probabilities; all NaN if there are no values."""
    return tuple(np.quantile(values, at).tolist()) if len(values) else (float("nan"),) * len(at)


def labels(at: Iterable[float]) -> tuple[str, ...]:
    """Return the column names of quantiles, such as `p95` for 0.95."""
    return tuple(f"p{100 * p:g}" for p in at)


def published_values(curve: Curve) -> tuple[float, ...]:
    """Return the published quantiles from which a curve was made; values near 0 are returned as 0."""
    return tuple(0.0 if log < np.log(1.1e-3) else float(np.exp(log)) for log in curve.logs)


def shares_of(title: str, published: Mapping[str, float], column: pl.Series, note: str = "") -> Comparison:
    """Compare the share of each value of a column with the published one.

    `published` has shares, or counts, which are divided by their sum.
    """
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
    """The tables of a synthetic trace."""

    job: pl.DataFrame
    task: pl.DataFrame
    """Tasks, with added columns `run_s` (start of the first instance to end; null while running), `wait_s`, `user`,
    `group` and `workload`."""
    sensor: pl.DataFrame
    metric: pl.DataFrame
    machine: pl.DataFrame
    instances: int

    @property
    def finished(self) -> pl.DataFrame:
        """Return the tasks that request GPUs and have the status Terminated (completed)."""
        return self.task.filter(pl.col("status") == "Terminated", pl.col("plan_gpu").is_not_null())


def scan(folder: Path, table: str) -> pl.LazyFrame:
    """Scan one CSV table without header, with the column names of the published trace.

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
    """Read from a folder the tables that the comparisons need."""
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
    """Return the rows on which the published statistics by workload tag are computed.

    Each Terminated task of a tagged job is joined with every measured GPU worker of the job, even of its other tasks.
    """
    tagged = tables.task.filter(pl.col("status") == "Terminated", pl.col("workload").is_not_null())
    measured = tables.sensor.filter(pl.col("gpu_wrk_util").is_not_null()).drop("task_name", "machine", "inst_id")
    return tagged.join(measured, on="job_name")
