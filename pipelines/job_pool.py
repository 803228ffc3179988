"""The pool a simulation draws from: canonical tables to jobs with what their recorded runs truly were.

Nothing is simulated here; what is left out is counted by why.
Called by `pipelines.simulate` and the commands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.errors import LakeError
from scheduler_core.arrivals import PoolJob
from scheduler_core.truth import Measured
from scheduler_core.types import Job, Request

KEYS: Final = ("trace", "cluster", "job_id", "role")
REQUESTS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
MEASURED: Final = ("used_cpu_cores", "used_gpus", "mem_avg_gib", "mem_max_gib", "gpu_mem_max_gib")
ASSUMED_DEVICE_MEM_GIB: Final = 16.0
"""Memory of a device whose type does not say it (`MISC`, unknown), unless the caller says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Jobs to draw arrivals from, and what was left out.

    `known` are those of `jobs` whose device memory is known; the others take `assumed_device_mem_gib`.
    `dropped` counts the rows left out by why.
    """

    jobs: tuple[PoolJob, ...]
    known: tuple[PoolJob, ...]
    dropped: Mapping[str, int]
    device_mem_gib: Mapping[str, float]
    assumed_device_mem_gib: float


def job_pool(
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    device_mem_gib: Mapping[str, float] = GPU_MEM_GIB_OF_TYPE,
    assumed_device_mem_gib: float = ASSUMED_DEVICE_MEM_GIB,
    dropped_roles: Sequence[str] = ("ps",),
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
            "simulations need a trace with a usage table"
        )
    pool = tuple(_pool_job(row, device_mem_gib, assumed_device_mem_gib) for row in kept.iter_rows(named=True))
    return Pool(
        jobs=pool,
        known=tuple(entry for entry in pool if entry.job.gpu_type in device_mem_gib or entry.job.request.gpus == 0.0),
        dropped=dropped,
        device_mem_gib=dict(device_mem_gib),
        assumed_device_mem_gib=assumed_device_mem_gib,
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
