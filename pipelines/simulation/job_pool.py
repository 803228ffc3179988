"""Choose the recorded jobs of a simulation: by time window or virtual cluster (VC), and by known use and request."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import NormalDist
from typing import Any, Final
from zlib import crc32

import polars as pl

from features.frames import has_ended
from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from modelserve.bundle.alike import PARAMETER_SERVER
from pipelines.errors import BadUsage, LakeError
from pipelines.simulation.engine.slowdown import Measured, PoolJob
from pipelines.simulation.workloads import REQUESTS
from scheduler_core.types import Job, Request

__all__ = ["KEYS", "Pool", "job_pool", "one_instance_each", "recorded_pool", "submissions"]

KEYS: Final = ("trace", "cluster", "job_id", "role")
SHOWN: Final = 8
"""Maximum number of names listed in an error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submissions:
    """Submitted jobs as rows of the canonical table, sorted by submission and then key; each has a run time.

    `dropped` counts the jobs left out, by reason. `lower_bounds` counts the jobs whose recorded run time is only a
    lower bound (cut, clamped or still running); the simulation uses the recorded time.
    """

    jobs: pl.DataFrame
    dropped: Mapping[str, int]
    lower_bounds: int

    def notes(self) -> list[str]:
        """Return notes on the chosen and the dropped jobs, to print with the results."""
        notes = [f"{self.jobs.height} recorded jobs, at their recorded submission times"]
        if any(self.dropped.values()):
            notes.append("left out: " + ", ".join(f"{count} {why}" for why, count in self.dropped.items() if count))
        if self.lower_bounds:
            notes.append(f"{self.lower_bounds} run times are lower bounds (cut, clamped or running): used as they are")
        return notes


def submissions(
    jobs: pl.DataFrame, *, since: datetime | None = None, until: datetime | None = None, vc: str | None = None
) -> Submissions:
    """Return the jobs submitted in [since, until) to one VC, or to all VCs if `vc` is None.

    Jobs that never ran are left out, and counted.
    """
    clusters = jobs["cluster"].unique().sort().to_list()
    if len(clusters) > 1:
        raise BadUsage(
            f"found jobs of the clusters {', '.join(clusters)}, expected one cluster: name it with --cluster"
        )
    if vc is not None and vc not in jobs["vc"]:
        held = jobs["vc"].drop_nulls().unique().sort().to_list()
        known = ", ".join([*held[:SHOWN], *(["..."] if len(held) > SHOWN else [])])
        raise BadUsage(f"--vc: found no job of {vc!r}, expected one of {known or 'none'}")
    window = jobs if vc is None else jobs.filter(pl.col("vc") == vc)
    window = window if since is None else window.filter(pl.col("submit_ts") >= since)
    window = window if until is None else window.filter(pl.col("submit_ts") < until)
    ran = pl.col("run_s").fill_null(0.0) > 0.0
    kept = window.filter(ran).sort("submit_ts", *KEYS)
    if kept.is_empty():
        raise LakeError(
            f"found no job with a run time among {window.height} in the window, of {jobs.height} in all; "
            "expected at least one: widen --since and --until, or name another --vc"
        )
    bounds = kept.select((pl.col("run_s_censored") | ~has_ended()).sum()).item()
    return Submissions(jobs=kept, dropped={"without a run time": window.height - kept.height}, lower_bounds=int(bounds))


MEASURED: Final = ("used_cpu_cores", "used_gpus", "mem_avg_gib", "mem_max_gib", "gpu_mem_max_gib")
ASSUMED_DEVICE_MEM_GIB: Final = 16.0
"""Memory in GiB of a GPU whose type is unknown or `MISC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The jobs of a simulation in the order of submission, and `dropped`: counts of the jobs left out, by reason.

    A job whose use was not measured has a use of 0. `frame` has the columns of the canonical tables of jobs and of use,
    one row per job. `known` is whether the memory of each job's GPUs is known (else `assumed_device_mem_gib` is used),
    and `measured` whether its use was measured.
    """

    jobs: tuple[PoolJob, ...]
    # Left out of `==`, because comparing two frames gives a frame and not a bool.
    frame: pl.DataFrame = field(compare=False, repr=False)
    known: tuple[bool, ...]
    measured: tuple[bool, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    device_mem_gib: Mapping[str, float] = field(default_factory=lambda: dict(GPU_MEM_GIB_OF_TYPE))
    assumed_device_mem_gib: float = ASSUMED_DEVICE_MEM_GIB


def job_pool(jobs: pl.DataFrame, usage: pl.DataFrame) -> Pool:
    """Join the canonical tables `jobs` and `usage`; keep jobs that ended, were measured and state every request.

    Parameter servers are left out. The pool is sorted by submission time and key.
    """
    joined = jobs.join(usage, on=KEYS, how="left").sort("submit_ts", *KEYS)
    rules: dict[str, pl.Expr] = {
        "role": pl.col("role") == PARAMETER_SERVER,
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
            "expected a trace with a usage table; else use --arrivals recorded"
        )
    return _pool(kept, dropped)


def one_instance_each(pool: Pool) -> Pool:
    """Return the pool with every job cut to one of its instances."""
    single = pool.frame.with_columns(instances=pl.lit(1).cast(pool.frame.schema["instances"]))
    jobs = tuple(replace(entry, job=replace(entry.job, instances=1)) for entry in pool.jobs)
    return replace(pool, jobs=jobs, frame=single)


def recorded_pool(jobs: pl.DataFrame, usage: pl.DataFrame) -> Pool:
    """Join the jobs returned by `submissions` with their use; keep all jobs and their order."""
    return _pool(jobs.join(usage, on=KEYS, how="left", maintain_order="left"), {})


def _pool(frame: pl.DataFrame, dropped: Mapping[str, int]) -> Pool:
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in (*REQUESTS, *MEASURED))
    is_measured = complete & (pl.col("role") != PARAMETER_SERVER)
    kinds = [kind for kind in frame["gpu_type"].unique() if kind in GPU_MEM_GIB_OF_TYPE]
    is_known = pl.col("gpu_type").is_in(kinds).fill_null(value=False) | (pl.col("req_gpus").fill_null(0.0) == 0.0)
    marked = frame.with_columns(pl.when(is_measured).then(name).otherwise(0.0).alias(name) for name in MEASURED)
    rows = marked.with_columns(pl.col(list(REQUESTS)).fill_null(float("nan"))).iter_rows(named=True)
    return Pool(
        jobs=tuple(_pool_job(row) for row in rows),
        frame=frame,
        known=tuple(frame.select(is_known).to_series()),
        measured=tuple(frame.select(is_measured).to_series()),
        dropped=dropped,
    )


# A row mixes strings, numbers and timestamps, as the table's schema types them.
def _pool_job(row: Mapping[str, Any]) -> PoolJob:
    same = "job_id trace task_type instances cluster role user group vc workload gpu_type"
    job = Job(
        request=Request(cpu_cores=row["req_cpu_cores"], mem_gib=row["req_mem_gib"], gpus=row["req_gpus"]),
        submit_ts=row["submit_ts"].timestamp(),
        **{name: row[name] for name in same.split()},
    )
    measured = Measured(
        run_s=row["run_s"],
        cpu_cores=row["used_cpu_cores"],
        mem_gib=row["mem_max_gib"],
        gpus=row["used_gpus"],
        gpu_mem_gib=row["gpu_mem_max_gib"],
        mem_avg_gib=row["mem_avg_gib"],
        device_mem_gib=GPU_MEM_GIB_OF_TYPE.get(row["gpu_type"], ASSUMED_DEVICE_MEM_GIB),
        gpu_spread=_spread(job.job_id),
    )
    return PoolJob(job=job, measured=measured)


def _spread(job_id: str) -> float:
    """Return a standard normal number that depends on the job only: no trace has the response of its program."""
    return NormalDist().inv_cdf((crc32(job_id.encode()) + 0.5) / 2**32)
