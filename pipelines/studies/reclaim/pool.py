"""Measured jobs of the reclaiming study: read from a file, and drawn as arrivals.

Jobs of a trace come from the lake, see `study`. Called by `study`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from features.canonical import CANONICAL
from features.frames import frame_schema
from features.tables import TABLES
from pipelines.errors import BadUsage, LakeError
from pipelines.lake.sources.source import MOST_ASKED
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.workload import NO_OUTAGES, poisson_draws
from pipelines.simulation.job_pool import KEYS, Pool, job_pool
from pipelines.simulation.paired_runs import Arrivals
from pipelines.simulation.simulate import ALL
from pipelines.studies.shrinking.cases import GNN, TYPES, Case, cases_of

__all__ = ["MeasuredJobs", "drawn", "measured_in", "measured_jobs"]

NEEDED: Final = (
    "job_id",
    "submit_ts",
    "run_s",
    "req_cpu_cores",
    "req_mem_gib",
    "req_gpus",
    "used_cpu_cores",
    "used_gpus",
    "mem_max_gib",
    "gpu_mem_max_gib",
)
"""Columns that a file must have."""

DEFAULTS: Final = {
    "trace": "pool",
    "cluster": "pool",
    "role": "worker",
    "task_type": "other",
    "instances": 1,
    "run_s_censored": False,
    "instances_measured": 1,
}
"""Values of columns that a file may lack, and of their nulls; all other columns become null."""

PARQUET: Final = (".parquet", ".pq")

A_TIME: Final = "a time as ISO 8601, such as 2020-07-01T12:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJobs:
    """The pool that arrivals are drawn from, notes on it, and the tables on which models are trained.

    The tables also hold jobs that the pool lacks, because they were not measured.
    """

    pool: Pool
    jobs: pl.DataFrame
    usage: pl.DataFrame
    notes: tuple[str, ...]


def measured_jobs(jobs: pl.DataFrame, usage: pl.DataFrame) -> MeasuredJobs:
    """Return the measured jobs of the canonical tables `jobs` and `usage`.

    If there are measured jobs of cv, nlp and ctr, the paper's mix is drawn, and jobs of types outside it are left out.

    Raises
    ------
    LakeError
        If no job is left.
    """
    pool = job_pool(jobs, usage)
    if _has_mix(pool):
        jobs, measured = jobs.filter(pl.col("task_type").is_in(TYPES)), len(pool.jobs)
        pool = job_pool(jobs, usage)
        others = measured - len(pool.jobs)
        how = "drawn in the paper's mix" + (f"; {others} of other task types are left out" if others else "")
    else:
        how = "drawn uniformly, because cv, nlp or ctr of the paper's mix is missing"
    left = ", ".join(f"{count} {why}" for why, count in pool.dropped.items() if count)
    notes = (f"{len(pool.jobs)} measured jobs, {how}", *([f"not in the pool: {left}"] if left else []))
    return MeasuredJobs(pool=pool, jobs=jobs, usage=usage, notes=notes)


def measured_in(path: Path) -> MeasuredJobs:
    """Return the measured jobs of a file or folder, see `tables_in`.

    Raises
    ------
    BadUsage
        If the path cannot be read, holds no measured job, or one that used more GPU memory than its devices have.
    """
    jobs, usage = tables_in(path)
    try:
        found = measured_jobs(jobs, usage)
    except LakeError as error:
        raise BadUsage(
            f"--pool {path}: found no job with a run time, all requests and all measurements among {jobs.height} rows"
        ) from error
    _check_gpu_memory(found.pool, path)
    return found


def _check_gpu_memory(pool: Pool, path: Path) -> None:
    for entry in pool.jobs:
        job, used = entry.job, entry.measured
        devices = math.ceil(job.request.gpus)
        if used.gpu_mem_gib > devices * used.device_mem_gib:
            held = f"{devices} x {used.device_mem_gib:g} GiB ({job.gpu_type or 'gpu_type not given'})"
            raise BadUsage(
                f"--pool {path}: job {job.job_id}: found gpu_mem_max_gib = {used.gpu_mem_gib:g}, expected at most the "
                f"memory of its GPUs, {held}; correct the value, req_gpus or gpu_type"
            )


def drawn(pool: Pool, *, seeds: Sequence[int], rate_per_h: float) -> list[Case]:
    """Draw arrivals of every seed: in the paper's mix with and without GNN, or else uniformly (`gnn` is then `all`)."""
    if _has_mix(pool):
        cases = cases_of(pool, seeds=seeds, loads_per_h=(rate_per_h,))
        return [case for case in cases if case.devices == ALL]
    return [
        Case(rate_per_h=rate_per_h, gnn=ALL, devices=ALL, seed=seed, arrivals=_uniform(pool, rate_per_h, seed))
        for seed in seeds
    ]


def _has_mix(pool: Pool) -> bool:
    return {kind for kind in TYPES if kind != GNN} <= {entry.job.task_type for entry in pool.jobs}


def _uniform(pool: Pool, rate_per_h: float, seed: int) -> Arrivals:
    draws = poisson_draws(
        [ALL] * len(pool.jobs), rate_per_h=rate_per_h, horizon_s=PAPER_HORIZON_S, rng=np.random.default_rng(seed)
    )
    return Arrivals(devices=ALL, seed=seed, at_s=draws.at_s, picks=draws.picks, outages=NO_OUTAGES)


def tables_in(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read measured jobs from a file or folder, as the canonical tables `jobs` and `usage`.

    A Parquet or CSV file has the columns of both tables; a folder has `jobs.parquet` and `usage.parquet`. `NEEDED`
    columns are required. Without GPUs requested, a missing GPU use is 0; without a mean use of memory, the peak is it.

    Raises
    ------
    BadUsage
        If the path cannot be read, lacks a column, has a job twice, or has values that the tables do not allow.
    """
    frame = _typed(_read(path), path)
    _check_amounts(frame, path)
    none = pl.col("req_gpus") == 0.0
    frame = frame.with_columns(
        *(pl.col(name).fill_null(value) for name, value in DEFAULTS.items()),
        *(
            pl.when(none).then(pl.col(name).fill_null(0.0)).otherwise(name).alias(name)
            for name in ("used_gpus", "gpu_mem_max_gib")
        ),
        pl.col("mem_avg_gib").fill_null(pl.col("mem_max_gib")),
    )
    if (twice := frame.select(KEYS).is_duplicated()).any():
        raise BadUsage(
            f"--pool {path}: found several rows of the job {frame['job_id'].filter(twice)[0]}, expected one for each "
            "trace, cluster, job_id and role"
        )
    tables = {name: frame.select(list(CANONICAL[name].columns)) for name in ("jobs", "usage")}
    for name, table in tables.items():
        _, failures = TABLES[name].filter(table)
        if broken := failures.counts():
            rules = ", ".join(f"{rule} ({count} rows)" for rule, count in broken.items())
            raise BadUsage(f"--pool {path}: rows break rules of the table {name}: {rules}; see docs/data-dictionary.md")
    return tables["jobs"], tables["usage"]


def _read(path: Path) -> pl.DataFrame:
    if not path.exists():
        raise BadUsage(f"--pool {path}: no such file or folder")
    try:
        if path.is_dir():
            jobs, usage = (pl.read_parquet(path / f"{name}.parquet") for name in ("jobs", "usage"))
            return jobs.join(
                usage, on=[key for key in KEYS if key in jobs.columns and key in usage.columns], how="left"
            )
        if path.suffix in PARQUET:
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
        raise BadUsage(
            f"--pool {path}: found no column {', '.join(lacking)}; expected the columns of the tables jobs and usage, "
            f"at least {', '.join(NEEDED)}"
        )
    kinds = {name: column.kind for table in ("jobs", "usage") for name, column in CANONICAL[table].columns.items()}
    return frame.select(_as_type(frame, name, kind, path) for name, kind in frame_schema(kinds).items())


def _as_type(frame: pl.DataFrame, name: str, kind: pl.DataType, path: Path) -> pl.Series:
    if name not in frame.columns:
        return pl.Series(name, [None] * frame.height, dtype=kind)
    column = frame[name]
    typed = _cast(column, kind)
    if (lost := column.is_not_null() & typed.is_null()).any():
        row = lost.arg_true()[0]
        expected = A_TIME if kind.is_temporal() else "a number" if kind.is_numeric() else f"a {kind}"
        raise BadUsage(f"--pool {path}: row {row + 1}: found {name} = {str(column[row])[:40]!r}, expected {expected}")
    return typed.fill_nan(None) if kind.is_float() else typed


def _cast(column: pl.Series, kind: pl.DataType) -> pl.Series:
    """Return the column cast to a type; values that cannot be cast become null. A number is never read as a time."""
    try:
        if kind.is_temporal() and column.dtype == pl.String:
            return column.str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
        if not kind.is_temporal() or column.dtype.is_temporal() or column.dtype == pl.Null:
            return column.cast(kind, strict=False)
    except pl.exceptions.PolarsError:  # no value of the one type can be one of the other
        pass
    return pl.Series(column.name, [None] * len(column), dtype=kind)


def _check_amounts(frame: pl.DataFrame, path: Path) -> None:
    """Raise BadUsage for an amount that is too large to be one; the limit is that of ingest."""
    for name in (*NEEDED[2:], "instances"):  # all but the id and the time
        if (beyond := (frame[name] > MOST_ASKED).fill_null(value=False)).any():
            row = beyond.arg_true()[0]
            raise BadUsage(
                f"--pool {path}: row {row + 1}: found {name} = {frame[name][row]:g}, expected at most {MOST_ASKED:g}: "
                "is the unit right?"
            )
