"""Compute the metrics of a schedule: finished jobs, allocated and used capacity, waits, slowdowns, fairness."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.measures.job_metrics import (
    JobMetrics,
    Uses,
    capacity_units,
    drawn_units,
    gang_units,
    held_s,
    job_metrics,
)
from scheduler_core.cluster import UNITS
from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["SLOWDOWN_BOUND_S", "STRETCHED_ABOVE", "Metrics", "Uses", "summarise"]


STRETCHED_ABOVE: Final = 1.01
"""Stretch above which a job counts as stretched: its run takes more than 1 % longer than recorded."""

SLOWDOWN_BOUND_S: Final = 10.0
"""Minimum run time in the denominator of slowdowns, so that the shortest jobs do not dominate the mean."""

_RESOURCES: Final = (("cpu", "reclaimed_cpu_core_h"), ("mem", "reclaimed_mem_gib_h"), ("gpu", "reclaimed_gpu_h"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics of one simulation, of the time after the warm-up (the window) and of the jobs that arrived in it.

    Means and quantiles are NaN if they have no job.

    - `submitted`, `never_fits`: arrived jobs that fit the empty cluster; jobs that do not fit it, which count nowhere
      else.
    - `deployed`: jobs that started at least once.
    - `completed`, `failed`, `running`, `waiting`: submitted jobs by state at the end. A job that was killed, preempted
      waits until it starts again.
    - `killed`, `retried`: jobs killed at least once for lack of memory; killed jobs that were started again.
    - `preempted`: jobs stopped at least once by a preemption.
    - `complete_rate`: completed / (completed + waiting).
    - `*_allocated_frac`: mean allocation over time / capacity of all machines, those that are down included.
    - `*_used_frac`: mean use over time / the same capacity, see `job_metrics.drawn_units`. A lower bound, because runs
      of unknown use count as 0; NaN if no use is known.
    - `*_use_known_frac`: share of the allocated capacity that was held by runs of known use.
    - `makespan_s`: first arrival to last end, failed jobs included; NaN if a job still runs or waits.
    - `wait_*_s`: arrival to first start, of jobs that started.
    - `wait_at_least_*_s`: the same of submitted jobs; if a job never started, the time to the end, a lower bound.
    - `jct_*_s`: job completion time (JCT), from arrival to end, of completed jobs.
    - `slowdown_*`: bounded slowdown of completed jobs: max(1, JCT / max(run time at the full request, 10 s)).
    - `stretch_*`: `JobMetrics.stretch` of jobs that started; `stretched_share`: share of them above 1.01.
    - `reclaimed_*_h`: (request - allocation) x time of holding it, in core-hours, GiB-hours and GPU-hours.
    - `killed_gpu_h`: GPU-hours of runs whose work was lost in a kill, with earlier, preempted runs of the same work.
    - `users`: number of users who submitted a job.
    - `jain_slowdown`: Jain's index of the users' mean bounded slowdowns (of completed jobs).
    - `jain_served`: Jain's index of the share of each user's submitted work that was done by the end; work is run time
      x dominant share at the full request.

    References
    ----------
    Yang, Hong, Tang: CompleteRate = F / (F + Q) (eq. 14); ResUtilization = used / total, over the window (eq. 15).
    Feitelson, Rudolph: Metrics and benchmarking for parallel job scheduling (JSSPP 1998), bounded slowdown.
    """

    submitted: int
    never_fits: int
    deployed: int
    completed: int
    failed: int
    running: int
    waiting: int
    killed: int
    retried: int
    preempted: int
    complete_rate: float
    cpu_allocated_frac: float
    mem_allocated_frac: float
    gpu_allocated_frac: float
    cpu_used_frac: float
    mem_used_frac: float
    gpu_used_frac: float
    cpu_use_known_frac: float
    mem_use_known_frac: float
    gpu_use_known_frac: float
    makespan_s: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_at_least_mean_s: float
    wait_at_least_p99_s: float
    jct_mean_s: float
    jct_p50_s: float
    jct_p95_s: float
    jct_p99_s: float
    slowdown_mean: float
    slowdown_p50: float
    slowdown_p95: float
    slowdown_p99: float
    stretch_mean: float
    stretch_p99: float
    stretched_share: float
    reclaimed_cpu_core_h: float
    reclaimed_mem_gib_h: float
    reclaimed_gpu_h: float
    killed_gpu_h: float
    users: int
    jain_slowdown: float
    jain_served: float


def summarise(schedule: Schedule, *, uses: Uses | None = None, warm_up_s: float = 0.0) -> Metrics:
    """Return the metrics of a schedule from `warm_up_s` to its end; without `uses` the `*_used_frac` are NaN."""
    workload = schedule.workload
    if not 0.0 <= warm_up_s < max(schedule.end_s, 1e-9):
        raise BadInput(f"metrics: found a warm-up of {warm_up_s} s, expected 0 or more and below {schedule.end_s} s")
    if uses is not None and uses.mean.shape != workload.request_units.shape:
        raise BadInput(f"metrics: found uses of shape {uses.mean.shape}, expected {workload.request_units.shape}")
    jobs = job_metrics(schedule)
    in_window = workload.arrive_s >= warm_up_s
    counted = jobs.arrived & in_window

    def count(of_jobs: BoolArray) -> int:
        return int((counted & of_jobs).sum())

    completed, waiting = count(jobs.completed), count(jobs.waiting)
    return Metrics(
        submitted=int(counted.sum()),
        never_fits=int((in_window & schedule.never_fits & (workload.arrive_s <= schedule.end_s)).sum()),
        deployed=count(~np.isnan(jobs.first_start_s)),
        completed=completed,
        failed=count(jobs.failed),
        running=count(jobs.running),
        waiting=waiting,
        killed=count(jobs.killed),
        retried=count(jobs.retried),
        preempted=count(jobs.preempted),
        users=len(np.unique(workload.user[counted])),
        complete_rate=_ratio(completed, completed + waiting),
        **_held(schedule, uses, warm_up_s),
        **_lost(schedule, jobs, warm_up_s),
        **_service(schedule, jobs, counted),
        **_completions(schedule, jobs, counted),
    )


def _held(schedule: Schedule, uses: Uses | None, warm_up_s: float) -> dict[str, float]:
    """Return the metrics of allocated, used and reclaimed capacity in the window, for each resource."""
    during_s = held_s(schedule, warm_up_s)
    workload, job = schedule.workload, schedule.job
    figures: dict[str, float] = {}
    for at, ((name, reclaimed), capacity) in enumerate(zip(_RESOURCES, capacity_units(schedule), strict=True)):
        held, over = gang_units(schedule, at) * during_s, float(capacity) * (schedule.end_s - warm_up_s)
        drawn, known = math.nan, math.nan
        if uses is not None:
            draws = drawn_units(schedule, uses, at)
            measured = ~np.isnan(draws)
            known = float(held[measured].sum())
            drawn = float(draws[measured] @ during_s[measured]) if measured.any() else math.nan
        requested = workload.request_units[:, at][job] * workload.instances[job] * during_s
        figures |= {
            f"{name}_allocated_frac": _ratio(float(held.sum()), over),
            f"{name}_used_frac": _ratio(drawn, over),
            f"{name}_use_known_frac": _ratio(known, float(held.sum())),
            reclaimed: float((requested - held).sum()) / UNITS[at] / SECONDS_PER_HOUR,
        }
    return figures


def _lost(schedule: Schedule, jobs: JobMetrics, warm_up_s: float) -> dict[str, float]:
    """Return the metrics of lost work."""
    gpu_h = gang_units(schedule, 2) * held_s(schedule, warm_up_s) / UNITS[2] / SECONDS_PER_HOUR
    return {
        "killed_gpu_h": float(gpu_h[jobs.lost].sum()),
    }


def _service(schedule: Schedule, jobs: JobMetrics, counted: BoolArray) -> dict[str, float]:
    """Return the metrics of waits, stretches, makespan and served work of the jobs marked in `counted`."""
    workload = schedule.workload
    wait_s = (jobs.first_start_s - workload.arrive_s)[counted]
    at_least_s = np.where(np.isnan(wait_s), schedule.end_s - workload.arrive_s[counted], wait_s)
    stretches = jobs.stretch[counted & ~np.isnan(jobs.first_start_s)]
    work_s = dominant_share_s(schedule)[counted]
    ends_s = schedule.finished_s[counted]
    over = bool(len(ends_s)) and not np.isnan(ends_s).any()
    return {
        **_distribution("wait", wait_s[~np.isnan(wait_s)], "_s", ("mean", "p50", "p95", "p99")),
        **_distribution("wait_at_least", at_least_s, "_s", ("mean", "p99")),
        **_distribution("stretch", stretches, "", ("mean", "p99")),
        "stretched_share": _mean(stretches > STRETCHED_ABOVE),
        "makespan_s": float(ends_s.max() - workload.arrive_s[counted].min()) if over else math.nan,
        "jain_served": jain(user_means(jobs.done_frac[counted], workload.user[counted], work_s)),
    }


def _completions(schedule: Schedule, jobs: JobMetrics, counted: BoolArray) -> dict[str, float]:
    """Return the metrics of JCT and bounded slowdown of completed jobs marked in `counted`."""
    workload = schedule.workload
    rows = np.flatnonzero(counted & jobs.completed)
    jct_s = schedule.finished_s[rows] - workload.arrive_s[rows]
    slowdown = np.maximum(jct_s / np.maximum(workload.run_s[rows], SLOWDOWN_BOUND_S), 1.0)
    return {
        **_distribution("jct", jct_s, "_s", ("mean", "p50", "p95", "p99")),
        **_distribution("slowdown", slowdown, "", ("mean", "p50", "p95", "p99")),
        "jain_slowdown": jain(user_means(slowdown, workload.user[rows])),
    }


_LEVELS: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def _distribution(name: str, values: FloatArray, unit: str, what: tuple[str, ...]) -> dict[str, float]:
    """Return the mean and quantiles of values by metric name; NaN without values."""
    levels = [_LEVELS[each] for each in what[1:]]
    quantiles = np.quantile(values, levels) if len(values) else np.full(len(levels), np.nan)
    figures = [_mean(values), *quantiles.tolist()]
    return {f"{name}_{each}{unit}": figure for each, figure in zip(what, figures, strict=True)}


def _mean(values: FloatArray | BoolArray) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _ratio(amount: float, over: float) -> float:
    return amount / over if over else math.nan


def jain(values: FloatArray) -> float:
    """Return Jain's index (sum x)^2 / (n sum x^2): 1 if all values are equal, 1/n if only one is above 0.

    The index is NaN without values.

    >>> jain(np.array([2.0, 2.0])), jain(np.array([4.0, 0.0]))
    (1.0, 0.5)

    References
    ----------
    Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination for resource allocation (1984).
    """
    squares = len(values) * float(np.square(values).sum())
    return float(values.sum()) ** 2 / squares if squares else math.nan


def user_means(values: FloatArray, users: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the (weighted) mean of the values of each user, in the order of user codes.

    Users whose weights sum to 0 are left out.

    >>> user_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 7]))
    array([2., 5.])
    """
    weights = np.ones(len(values)) if weights is None else weights
    totals = np.bincount(users, weights=weights)
    sums = np.bincount(users, weights=weights * values)
    return np.asarray(sums[totals > 0.0] / totals[totals > 0.0], dtype=np.float64)


def dominant_share_s(schedule: Schedule) -> FloatArray:
    """Return the work of each job (n,): run time at the full request times the job's dominant share of the cluster.

    References
    ----------
    Ghodsi et al.: Dominant resource fairness (NSDI 2011), which defines the dominant share.
    """
    workload, capacity = schedule.workload, np.maximum(capacity_units(schedule), 1)
    return np.asarray((workload.request_units / capacity).max(axis=1) * workload.instances * workload.run_s)
