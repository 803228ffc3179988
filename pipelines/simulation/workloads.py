"""Convert jobs of a lake to the columns of a workload: requests, allocations, run times, arrivals, average use."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import polars as pl

from features.vocabulary import Status
from pipelines.simulation.engine.slowdown import SLOWDOWN_MODELS, PoolJob
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.metrics import Uses
from scheduler_core.cluster import UNIT_SLACK, UNITS
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.types import BoolArray, FloatArray, IntArray, Recommendation

__all__ = [
    "DRAWN",
    "REQUESTS",
    "Gangs",
    "Starts",
    "arriving",
    "as_requested",
    "gangs_of",
    "requests_of",
    "starts_under",
    "uses_of",
]

REQUESTS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
"""Columns of the canonical table that hold requests, in the order of `scheduler_core.types.RESOURCES`."""

GPUS: Final = REQUESTS.index("req_gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gangs:
    """The columns (n) of a workload that depend neither on arrivals nor on allocations.

    They are described in `Workload`. `priority` is 0 if the trace states none. `pieces` is the number of equal
    instances into which a single-instance job was divided because no machine has enough GPUs; 1 for most jobs.
    """

    request_units: IntArray
    instances: IntArray
    pieces: IntArray
    gpu_type: IntArray
    user: IntArray
    priority: FloatArray
    run_s: FloatArray
    fails: BoolArray
    gpu_types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """The columns (n) of a workload that describe each job's first start: allocation, run time; see `Workload`."""

    granted_units: IntArray
    granted_run_s: FloatArray
    dies: BoolArray
    predicted_s: FloatArray


def units_of(requests: FloatArray) -> IntArray:
    """Round requests (n, 3) up to integer units; a resource that the trace lacks (NaN) becomes 0.

    Examples
    --------
    >>> units_of(np.array([[0.55 * 6, 29.3, 0.25], [np.nan, np.nan, 2.0]])).tolist()
    [[3300, 30004, 250], [0, 0, 2000]]
    """
    known = np.where(np.isnan(requests), 0.0, requests)
    wrong = (known < 0.0) | np.isinf(known)
    if wrong.any():
        raise BadInput(f"request: found {known[wrong][0]}, expected a finite amount of at least 0")
    units: IntArray = np.ceil(known * np.array(UNITS) - UNIT_SLACK).astype(np.int64)
    return units


def requests_of(jobs: pl.DataFrame) -> FloatArray:
    """Return the request of one instance of each job, NaN if unknown; shape (n, 3)."""
    columns = [jobs[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in REQUESTS]
    return np.column_stack(columns).astype(np.float64)


def gangs_of(jobs: pl.DataFrame, *, gpus_per_machine: int | None = None) -> Gangs:
    """Convert rows of the canonical jobs table (n, each with a run time) to columns, in the same order.

    In traces that record only the total GPUs of a job, the job has one instance. If that instance has more than
    `gpus_per_machine` GPUs, the job is divided into equal instances whose GPUs divide those of a machine: for machines
    of 8, 16 GPUs become 2 x 8, 12 become 3 x 4, and 9 become 9 x 1.
    """
    gpu_type, gpu_types = _coded(jobs["gpu_type"])
    units, instances = units_of(requests_of(jobs)), jobs["instances"].cast(pl.Int64).to_numpy()
    pieces = np.ones_like(instances)
    if gpus_per_machine is not None:
        gpus, most = units[:, GPUS], gpus_per_machine * UNITS[GPUS]
        pieces = np.where((instances == 1) & (gpus > most), gpus // np.gcd(gpus, most), 1)
    return Gangs(
        request_units=divided(units, pieces),
        instances=instances * pieces,
        pieces=pieces,
        gpu_type=gpu_type + ANY_GPU_TYPE,
        user=_coded(jobs["user"])[0],
        priority=jobs["priority"].cast(pl.Float64).fill_null(0.0).to_numpy(),
        run_s=jobs["run_s"].to_numpy(),
        fails=jobs["status"].is_in([Status.FAILED, Status.OOM]).fill_null(value=False).to_numpy(),
        gpu_types=gpu_types,
    )


def as_requested(gangs: Gangs, predicted_s: FloatArray | None = None) -> Starts:
    """Return starts of jobs with their full requests and recorded run times; predictions (n) are NaN if unknown."""
    count = len(gangs.run_s)
    return Starts(
        granted_units=gangs.request_units,
        granted_run_s=gangs.run_s,
        dies=np.zeros(count, dtype=np.bool_),
        predicted_s=np.full(count, np.nan) if predicted_s is None else predicted_s,
    )


def arriving(gangs: Gangs, starts: Starts, arrive_s: FloatArray, picks: IntArray | None = None) -> Workload:
    """Return the workload in which job `picks[i]` of `gangs` (by default job i) arrives at `arrive_s[i]`."""
    rows: IntArray | slice = slice(None) if picks is None else picks
    columns = {
        each.name: getattr(of, each.name)[rows]
        for of in (gangs, starts)
        for each in fields(of)
        if each.name not in ("pieces", "gpu_types")
    }
    return Workload(arrive_s=arrive_s, gpu_types=gangs.gpu_types, **columns)


def divided(units: IntArray, pieces: IntArray) -> IntArray:
    """Divide the units (n, 3) of each row by its number of equal pieces, and round up."""
    each: IntArray = -(-units // pieces[:, None])
    return each


def submitted_s(jobs: pl.DataFrame) -> FloatArray:
    """Return the time of each submission (n,) in seconds since the first submission."""
    since_first = jobs["submit_ts"] - jobs["submit_ts"].min()
    return since_first.dt.total_microseconds().cast(pl.Float64).to_numpy() / 1e6


def _coded(names: pl.Series) -> tuple[IntArray, tuple[str, ...]]:
    """Return each row's name as a number (from 1 in sorted order, null as 0), and the distinct names."""
    known = names.drop_nulls().unique().sort().to_list()
    codes = names.cast(pl.Enum(known)).to_physical().cast(pl.Int64) + 1
    return codes.fill_null(0).to_numpy(), tuple(known)


DRAWN: Final = ("used_cpu_cores", "mem_avg_gib", "used_gpus")
"""Columns that hold the average use of one instance, in the order of `RESOURCES`."""


def predicted_times(answers: Sequence[Recommendation]) -> FloatArray:
    """Return the predicted run times (p50) of the recommendations (n,).

    Negative and infinite times become NaN, which means unknown.
    """
    times_s = np.array([answer.run_time_p50_s for answer in answers], dtype=np.float64)
    return np.where(np.isfinite(times_s) & (times_s >= 0.0), times_s, np.nan)


def starts_under(model: str, jobs: Sequence[PoolJob], gangs: Gangs, answers: Sequence[Recommendation]) -> Starts:
    """Return starts of jobs (n) with the recommended requests, and run times from the slowdown model `model`.

    Jobs that keep their full request run as recorded, without a call of the model.
    """
    if model not in SLOWDOWN_MODELS:
        raise BadInput(f"truth: found {model!r}, expected one of {', '.join(sorted(SLOWDOWN_MODELS))}")
    slowed = SLOWDOWN_MODELS[model]
    targets = np.array([answer.target.row() for answer in answers], dtype=np.float64).reshape(-1, len(UNITS))
    granted_units = np.minimum(divided(units_of(targets), gangs.pieces), gangs.request_units)
    granted_run_s, dies = gangs.run_s.copy(), np.zeros(len(jobs), dtype=np.bool_)
    for row in np.flatnonzero((granted_units != gangs.request_units).any(axis=1)).tolist():
        entry, answer = jobs[row], answers[row]
        run = slowed(entry.measured, entry.job.request, answer.target, answer)
        granted_run_s[row], dies[row] = run.run_s, run.killed
    return Starts(
        granted_units=granted_units,
        granted_run_s=granted_run_s,
        dies=dies,
        predicted_s=predicted_times(answers),
    )


def uses_of(frame: pl.DataFrame, gangs: Gangs, measured: Sequence[bool]) -> Uses:
    """Return the average use of one instance of each job (n) at its recorded speed, at most its request."""
    drawn = np.column_stack([frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in DRAWN])
    requests = requests_of(frame)
    bounded = np.where(np.isnan(requests), drawn, np.minimum(drawn, requests)) * np.array(UNITS)
    bounded[~np.array(measured, dtype=np.bool_)] = np.nan
    return Uses(mean=bounded / gangs.pieces[:, None])
