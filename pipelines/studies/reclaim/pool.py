"""Measured jobs of another cluster, read from a file (`taut study reclaim --pool`)."""

from pathlib import Path
from typing import Final

import polars as pl

from features.canonical import CANONICAL
from features.frames import frame_schema
from features.tables import TABLES
from pipelines.errors import BadUsage
from pipelines.lake.sources.source import MOST_ASKED
from pipelines.simulation.job_pool import KEYS, Pool

__all__ = ["check_gpu_memory", "tables_in"]

REQUESTED: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
USED: Final = ("used_cpu_cores", "used_gpus", "mem_max_gib", "gpu_mem_max_gib")
NEEDED: Final = ("job_id", "submit_ts", "run_s", *REQUESTED, *USED)
TEXTS: Final = {"trace": "pool", "cluster": "pool", "role": "worker", "task_type": "other"}
DEFAULTS: Final = {**TEXTS, "instances": 1, "run_s_censored": False, "instances_measured": 1, "drawn": True}
"""Values of columns that a file may lack, and of their nulls; all other columns become null."""


def tables_in(path: Path) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Read the canonical tables `jobs` and `usage` from one file, or from a folder with one Parquet file of each.

    The third value marks the jobs that may be drawn (n,), by the column `drawn`; the others are history only.

    Without GPUs requested, a missing GPU use is 0; without a mean use of memory, the peak is it.

    Raises
    ------
    BadUsage
        If the path cannot be read, lacks a needed column, or has a job twice or values that the tables do not allow.
    """
    frame = _typed(_read(path), path)
    for name in ("run_s", *REQUESTED, *USED, "instances"):
        _refuse(path, frame, name, frame[name] > MOST_ASKED, f"at most {MOST_ASKED:g}: is the unit right?")
    no_gpus = pl.col("req_gpus") == 0.0
    frame = frame.with_columns(
        *(pl.col(name).fill_null(value) for name, value in DEFAULTS.items()),
        *(pl.when(no_gpus).then(pl.col(n).fill_null(0.0)).otherwise(n).alias(n) for n in ("used_gpus", USED[-1])),
        pl.col("mem_avg_gib").fill_null(pl.col("mem_max_gib")),
    )
    _refuse(path, frame, "job_id", frame.select(KEYS).is_duplicated(), f"one row for each {', '.join(KEYS)}")
    jobs, usage = (frame.select(list(CANONICAL[table].columns)) for table in ("jobs", "usage"))
    for table, rows in (("jobs", jobs), ("usage", usage)):
        if broken := TABLES[table].filter(rows)[1].counts():
            rules = ", ".join(f"{rule} ({count} rows)" for rule, count in broken.items())
            raise BadUsage(
                f"--pool {path}: rows break rules of the table {table}: {rules}; see docs/data-dictionary.md"
            )
    return jobs, usage, frame["drawn"]


def check_gpu_memory(pool: Pool, path: Path) -> None:
    """Raise BadUsage for a job that used more GPU memory than its devices have."""
    devices, used = pool.frame["req_gpus"].ceil(), pool.frame["gpu_mem_max_gib"]
    memory = devices * pl.Series([entry.measured.device_mem_gib for entry in pool.jobs])
    expected = "at most the memory of its GPUs; correct the value, req_gpus or gpu_type"
    _refuse(path, pool.frame, "gpu_mem_max_gib", used > memory, expected)


def _read(path: Path) -> pl.DataFrame:
    try:
        if path.is_dir():
            jobs, usage = (pl.read_parquet(path / f"{table}.parquet") for table in ("jobs", "usage"))
            return jobs.join(usage, on=[key for key in KEYS if key in jobs and key in usage], how="left")
        if path.suffix in (".parquet", ".pq"):
            return pl.read_parquet(path)
        return pl.read_csv(path, try_parse_dates=True, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise BadUsage(
            f"--pool {path}: {reason}; expected a Parquet or CSV file (each row with as many fields as the header), or "
            "a folder with jobs.parquet and usage.parquet"
        ) from error


def _typed(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return all columns of both tables in their types; absent columns and NaN become null."""
    if lacking := [name for name in NEEDED if name not in frame.columns]:
        raise BadUsage(f"--pool {path}: found no column {', '.join(lacking)}; expected at least {', '.join(NEEDED)}")
    kinds = {name: column.kind for table in ("jobs", "usage") for name, column in CANONICAL[table].columns.items()}
    columns: list[pl.Series] = []
    for name, kind in frame_schema(kinds | {"drawn": "BOOLEAN"}).items():
        column = frame[name] if name in frame.columns else pl.Series(name, [None] * frame.height)
        if kind.is_temporal() and not column.dtype.is_temporal():  # a number is no time
            typed = column.cast(pl.String).str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
        elif kind == pl.Boolean and column.dtype == pl.String:
            typed = column.replace_strict({"true": True, "false": False}, default=None, return_dtype=kind)
        else:
            typed = column.cast(kind, strict=False)
        expected = "a number" if kind.is_numeric() else "true or false" if kind == pl.Boolean else f"a {kind}"
        if kind.is_temporal():
            expected = "a time as ISO 8601, such as 2020-07-01T12:00:00Z"
        _refuse(path, frame, name, column.is_not_null() & typed.is_null(), expected)
        columns.append(typed.fill_nan(None) if kind.is_float() else typed)
    return pl.DataFrame(columns)


def _refuse(path: Path, frame: pl.DataFrame, name: str, wrong: pl.Series, expected: str) -> None:
    """Raise BadUsage with the job and value of the first wrong row."""
    if wrong.any():
        row = wrong.arg_true()[0]
        job, value = (str(frame[column][row])[:40] for column in ("job_id", name))
        raise BadUsage(f"--pool {path}: job {job!r}: found {name} = {value!r}, expected {expected}")
