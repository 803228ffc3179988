"""Jobs to be answered, as the canonical columns that features are built from.

The two ways in: `scheduler_core.types.Job` values, and frames that lack what their trace does not have.
Called by `modelserve.bundle.predictor` and `modelserve.bundle.flavor`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from features.history import History, cluster_of_vc
from features.vocabulary import ROLE_WHOLE_JOB
from scheduler_core.types import Job

COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "trace": pl.String(),
    "cluster": pl.String(),
    "job_id": pl.String(),
    "role": pl.String(),
    "user": pl.String(),
    "vc": pl.String(),
    "group": pl.String(),
    "workload": pl.String(),
    "task_type": pl.String(),
    "gpu_type": pl.String(),
    "submit_ts": pl.Datetime("us", "UTC"),
    "instances": pl.Int32(),
    "req_cpu_cores": pl.Float64(),
    "req_mem_gib": pl.Float64(),
    "req_gpus": pl.Float64(),
    "time_limit_s": pl.Float64(),
    "priority": pl.Int32(),
}
"""The columns of `jobs` that are known at submission."""


def jobs_frame(jobs: Sequence[Job], history: History) -> pl.DataFrame:
    """Return the canonical columns of `jobs` (n rows, in order); an unknown request is null.

    A job that names no cluster takes that of its VC in the history, else the one with the most jobs there.
    """
    clusters = cluster_of_vc(history)
    rows = [
        {
            "trace": job.trace,
            "cluster": job.cluster or clusters.get(job.vc, clusters[None]),
            "job_id": job.job_id,
            "role": job.role,
            "user": job.user,
            "vc": job.vc,
            "group": job.group,
            "workload": job.workload,
            "task_type": job.task_type,
            "gpu_type": job.gpu_type,
            "submit_ts": round(job.submit_ts * 1e6),
            "instances": job.instances,
            "req_cpu_cores": job.request.cpu_cores,
            "req_mem_gib": job.request.mem_gib,
            "req_gpus": job.request.gpus,
        }
        for job in jobs
    ]
    schema = {name: pl.Int64() if name == "submit_ts" else dtype for name, dtype in COLUMNS.items()}
    frame = pl.DataFrame(rows, schema=schema)
    requests = [name for name in COLUMNS if name.startswith("req_")]
    return frame.with_columns(
        pl.from_epoch("submit_ts", time_unit="us").dt.replace_time_zone("UTC"), pl.col(requests).fill_nan(None)
    )


def completed(frame: pl.DataFrame, trace: str, task_type: str, history: History) -> pl.DataFrame:
    """Return `frame` with every canonical column: those it lacks are the model's own, the usual value, or null."""
    usual = {
        "trace": trace,
        "task_type": task_type,
        "cluster": cluster_of_vc(history)[None],
        "role": ROLE_WHOLE_JOB,
        "instances": 1,
    }
    given = set(frame.columns)
    return frame.select(
        pl.col(name).cast(dtype) if name in given else pl.lit(usual.get(name), dtype=dtype).alias(name)
        for name, dtype in COLUMNS.items()
    )
