"""A submitted job and an ended run as values, by the names of the canonical columns.

Also their history keys, and runs as a frame. Lookups in a history are in `features.online`.
Called by `features.online`, `features.rows` and `modelserve`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import polars as pl

from features.history import JOB_COLUMNS, USE_COLUMNS
from features.keys import KEYS, KeyValue, Parts, key_of

_MICROSECONDS: Final = ("submit_us", "start_us", "end_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAsked:
    """One job at its submission, by the canonical names; NaN for an unknown number, None for an unknown text."""

    trace: str
    cluster: str | None
    job_id: str
    role: str
    user: str | None
    vc: str | None
    group: str | None
    workload: str | None
    task_type: str
    gpu_type: str | None
    submit_us: int
    instances: int
    req_cpu_cores: float
    req_mem_gib: float
    req_gpus: float
    time_limit_s: float
    priority: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """One ended run, by the canonical names; NaN for a number that is unknown or was not measured."""

    trace: str
    cluster: str
    job_id: str
    role: str
    user: str | None
    vc: str | None
    group: str | None
    submit_us: int
    start_us: int | None
    end_us: int
    run_s: float
    status: str | None
    instances: int
    req_gpus: float
    used_cpu_cores: float
    used_gpus: float
    mem_max_gib: float
    gpu_mem_max_gib: float
    measured: bool


def parts_of(job: JobAsked | EndedRun) -> Parts:
    """Return a job's values of `keys.PARTS`."""
    gpus = job.req_gpus * job.instances
    return job.cluster, job.user, job.vc, job.group, job.role, gpus if gpus == gpus else None  # NaN is not itself


def keys_of(run: EndedRun) -> list[tuple[str, KeyValue]]:
    """Return all keys of a run."""
    parts = parts_of(run)
    keys = (key_of(name, parts) for name in KEYS)
    return [key for key in keys if key is not None]


def runs_frame(runs: Sequence[EndedRun]) -> pl.DataFrame:
    """Return runs with the columns of `History.frame`."""
    raw = {field.name: [getattr(run, field.name) for run in runs] for field in fields(EndedRun)}
    numbers = {name: raw.pop(name) for name in _MICROSECONDS}
    schema = {**JOB_COLUMNS, **dict.fromkeys(USE_COLUMNS, pl.Float64()), "measured": pl.Boolean()}
    columns = [
        pl.Series(name, numbers[f"{name.removesuffix('_ts')}_us"], dtype=pl.Int64()).cast(dtype)
        if name.endswith("_ts")
        else pl.Series(name, raw[name], dtype=dtype)
        for name, dtype in schema.items()
    ]
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))
