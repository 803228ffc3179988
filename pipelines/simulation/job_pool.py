"""The jobs a simulation is about: canonical tables to jobs with what their recorded runs truly were.

Nothing is simulated here; what is left out is counted by why.
Called by `pipelines.simulation.simulate` and the commands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.errors import LakeError
from pipelines.simulation.engine.arrivals import PoolJob
from pipelines.simulation.engine.truth import Measured
from pipelines.simulation.submissions import KEYS
from pipelines.simulation.workloads import REQUESTS
from scheduler_core.types import Job, Request

MEASURED: Final = ("used_cpu_cores", "used_gpus", "mem_avg_gib", "mem_max_gib", "gpu_mem_max_gib")
ASSUMED_DEVICE_MEM_GIB: Final = 16.0
"""Memory of a device whose type does not say it (`MISC`, unknown), unless the caller says otherwise."""

PARAMETER_SERVER: Final = "ps"
"""The role that traces measure with its workers' sensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Jobs in the order of their submission, and what was left out.

    Attributes
    ----------
    jobs
        With what their recorded runs were; one that is not `measured` stands there as having used nothing.
    frame
        The canonical columns of `jobs`, joined with those of their use, row by row.
    known, measured
        By job: whether its device memory is known (others take `assumed_device_mem_gib`), and whether its use is.
    dropped
        Counts the rows left out by why.
    """

    jobs: tuple[PoolJob, ...]
    # A frame compared with a frame is a frame, not a verdict; `jobs` tells pools apart.
    frame: pl.DataFrame = field(compare=False, repr=False)
    known: tuple[bool, ...]
    measured: tuple[bool, ...]
    dropped: Mapping[str, int]
    device_mem_gib: Mapping[str, float]
    assumed_device_mem_gib: float


def job_pool(
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    device_mem_gib: Mapping[str, float] = GPU_MEM_GIB_OF_TYPE,
    assumed_device_mem_gib: float = ASSUMED_DEVICE_MEM_GIB,
    dropped_roles: Sequence[str] = (PARAMETER_SERVER,),
) -> Pool:
    """Join canonical `jobs` and `usage`; keep what ran to its end, was measured, and has every request.

    Parameter servers (role `ps`) are left out by default: the traces measure them with their workers' sensors.
    The order of the rows does not matter: the pool is sorted by submission and key.

    Raises
    ------
    LakeError
        If nothing is left to draw from.
    """
    joined = jobs.join(usage, on=KEYS, how="left").sort("submit_ts", *KEYS)
    rules: dict[str, pl.Expr] = {
        "role": pl.col("role").is_in(list(dropped_roles)),
        "no_run_time": pl.col("run_s").is_null() | (pl.col("run_s") <= 0.0),
        "run_time_censored": pl.col("run_s_censored"),
        "no_request": pl.any_horizontal(pl.col(name).is_null() for name in REQUESTS),
        "not_measured": pl.any_horizontal(pl.col(name).is_null() for name in MEASURED),
    }
    dropped: dict[str, int] = {}
    kept = joined
    for why, rule in rules.items():
        left = kept.filter(~rule)
        dropped[why] = kept.height - left.height
        kept = left
    if kept.is_empty():
        raise LakeError(
            f"job pool: found no measured job with a full request among {jobs.height} jobs "
            f"({', '.join(f'{count} {why}' for why, count in dropped.items() if count)}); "
            "drawing arrivals needs a trace with a usage table; others run with --arrivals recorded"
        )
    return _pool(kept, device_mem_gib, assumed_device_mem_gib, dropped)


def recorded_pool(
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    device_mem_gib: Mapping[str, float] = GPU_MEM_GIB_OF_TYPE,
    assumed_device_mem_gib: float = ASSUMED_DEVICE_MEM_GIB,
) -> Pool:
    """Join the jobs of `submissions.submissions` with what they used, keeping every one of them and their order."""
    joined = jobs.join(usage, on=KEYS, how="left", maintain_order="left")
    return _pool(joined, device_mem_gib, assumed_device_mem_gib, {})


def _pool(
    frame: pl.DataFrame, device_mem_gib: Mapping[str, float], assumed_gib: float, dropped: Mapping[str, int]
) -> Pool:
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in (*REQUESTS, *MEASURED))
    is_measured = complete & (pl.col("role") != PARAMETER_SERVER)
    is_known = pl.col("gpu_type").is_in(list(device_mem_gib)).fill_null(value=False) | (
        pl.col("req_gpus").fill_null(0.0) == 0.0
    )
    marked = frame.with_columns(pl.when(is_measured).then(name).otherwise(0.0).alias(name) for name in MEASURED)
    rows = marked.with_columns(pl.col(list(REQUESTS)).fill_null(float("nan"))).iter_rows(named=True)
    return Pool(
        jobs=tuple(_pool_job(row, device_mem_gib, assumed_gib) for row in rows),
        frame=frame,
        known=tuple(frame.select(is_known).to_series()),
        measured=tuple(frame.select(is_measured).to_series()),
        dropped=dropped,
        device_mem_gib=dict(device_mem_gib),
        assumed_device_mem_gib=assumed_gib,
    )


def _pool_job(
    row: Mapping[str, Any],  # a frame's row mixes strings, numbers and timestamps; the table's schema types them
    device_mem_gib: Mapping[str, float],
    assumed_gib: float,
) -> PoolJob:
    job = Job(
        job_id=row["job_id"],
        trace=row["trace"],
        task_type=row["task_type"],
        request=Request(cpu_cores=row["req_cpu_cores"], mem_gib=row["req_mem_gib"], gpus=row["req_gpus"]),
        instances=row["instances"],
        cluster=row["cluster"],
        role=row["role"],
        user=row["user"],
        group=row["group"],
        vc=row["vc"],
        workload=row["workload"],
        gpu_type=row["gpu_type"],
        submit_ts=row["submit_ts"].timestamp(),
    )
    measured = Measured(
        run_s=row["run_s"],
        cpu_cores=row["used_cpu_cores"],
        mem_gib=row["mem_max_gib"],
        gpus=row["used_gpus"],
        gpu_mem_gib=row["gpu_mem_max_gib"],
        mem_avg_gib=row["mem_avg_gib"],
        device_mem_gib=device_mem_gib.get(row["gpu_type"], assumed_gib),
    )
    return PoolJob(job=job, measured=measured)
