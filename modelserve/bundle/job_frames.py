"""Jobs as data frames with the canonical columns, and encoded candidate requests."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.build import with_requests
from features.contract import FeatureContract
from features.history import History, cluster_of_vc
from features.sets import FEATURES
from features.vocabulary import ROLE_WHOLE_JOB
from scheduler_core.types import FloatArray, IntArray, Job

__all__ = ["jobs_frame"]

TEXTS: Final = ("trace", "cluster", "job_id", "role", "user", "vc", "group", "workload", "task_type", "gpu_type")
REQUESTS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
COLUMNS: Final[Mapping[str, pl.DataType]] = {
    **{name: pl.String() for name in TEXTS},
    "submit_ts": pl.Datetime("us", "UTC"),
    "instances": pl.Int32(),
    **{name: pl.Float64() for name in REQUESTS},
    "time_limit_s": pl.Float64(),
    "priority": pl.Int32(),
}
"""The columns of the canonical jobs table that are known at submission, with their types."""


def jobs_frame(jobs: Sequence[Job], history: History) -> pl.DataFrame:
    """Return the canonical columns of `jobs`, one row per job in the same order; an unknown request is null.

    A job without a cluster gets that of its virtual cluster in the history, otherwise the history's largest cluster.
    """
    clusters = cluster_of_vc(history)
    rows = [
        {
            **{name: getattr(job, name) for name in TEXTS},
            "cluster": job.cluster or clusters.get(job.vc, clusters[None]),
            "submit_ts": round(job.submit_ts * 1e6),
            "instances": job.instances,
            **dict(zip(REQUESTS, job.request.row(), strict=True)),
        }
        for job in jobs
    ]
    frame = pl.DataFrame(rows, schema={**COLUMNS, "submit_ts": pl.Int64()})
    submitted = pl.from_epoch("submit_ts", time_unit="us").dt.replace_time_zone("UTC")
    return frame.with_columns(submitted, pl.col(REQUESTS).fill_nan(None))


def completed(frame: pl.DataFrame, trace: str, task_type: str, history: History) -> pl.DataFrame:
    """Add the missing canonical columns to `frame`.

    A missing trace or task type is filled with the argument; a missing cluster, role or instances with a default; any
    other missing column with nulls.
    """
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


def candidate_rows(
    contract: FeatureContract, features: pl.DataFrame, frame: pl.DataFrame, rows: IntArray, requests: FloatArray
) -> npt.NDArray[np.float32]:
    """Encode jobs with other requests than their own: row i (of m) is job `rows[i]` with the request `requests[i]`.

    `features` are the jobs' features as a model takes them, `frame` their canonical columns. The result (m, k) equals
    the encoded result of `with_requests`, but each job is encoded once.
    """
    changed = [name for name in contract.names if FEATURES[name].from_request]
    matrix: npt.NDArray[np.float32] = contract.encode(features)[rows]
    if changed:
        needed = sorted({column for name in changed for column in FEATURES[name].needs})
        columns = with_requests(features.select(changed), frame.select(needed), rows, requests)
        matrix[:, [contract.names.index(name) for name in changed]] = columns.to_numpy()
    return matrix
