"""What a simulation comes to: jobs finished, capacity held and truly used, the harm that was done, and to whom.

Pure functions of a finished schedule; nothing is simulated or printed here.
Called by `pipelines` and by tests.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.fairness import dominant_share_s, finish_time_fairness, jain, user_means
from pipelines.simulation.measures.holding import Uses, capacity_units, drawn_units, gang_units, held_s
from pipelines.simulation.measures.outcomes import Outcomes, outcomes
from scheduler_core.cluster import UNITS
from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray

__all__ = ["SLOWDOWN_BOUND_S", "STRETCHED_ABOVE", "Metrics", "Uses", "summarise"]

STRETCHED_ABOVE: Final = 1.01
"""A started job counts as stretched when its run takes over one per cent longer than recorded."""

SLOWDOWN_BOUND_S: Final = 10.0
"""Run times below this count as this in slowdowns, so that the shortest jobs do not rule the mean."""

_RESOURCES: Final = (("cpu", "core"), ("mem", "gib"), ("gpu", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One simulation in numbers, over the jobs that arrived in the window and the time of the window.

    The window goes from the end of the warm-up to the end. Distributions are NaN where no job counts.

    Attributes
    ----------
    submitted, never_fits
        Jobs that came and can ever fit; those that cannot lie outside it and outside every other figure.
    deployed
        Jobs that started at least once.
    completed, failed, running, waiting
        What submitted jobs were at the end, each one of these; killed, preempted and interrupted ones wait again.
    killed, retried
        Jobs that died at least once for what they were given, and those of them that were started again.
    preempted, interrupted
        Jobs stopped at least once for others, and by an outage.
    complete_rate
        completed / (completed + waiting).
    *_allocated_frac
        Time average of what gangs held, over the capacity of all machines (those away count); NaN without capacity.
    *_used_frac
        The same of what they truly drew: CPU and GPU work slowed by the stretch, mean memory, at most what they held.
        Draws that nobody knows are left out, so it is a lower bound; NaN where none is known.
    *_use_known_frac
        How much of what was held has a known draw: what stands behind `*_used_frac`.
    stranded_gpu_frac
        Time average, from 0 to the end whatever the warm-up, of GPUs that stood free while a job that asked for no more
        of them waited, over capacity.
    makespan_s
        First arrival to last end, failed ones included; NaN while a job runs or waits.
    wait_*_s
        Arrival to first start, of jobs that started.
    wait_at_least_*_s
        The same of all submitted jobs; those that never started count with their wait so far, a lower bound.
    jct_*_s
        Arrival to end, of completed jobs.
    slowdown_*
        Bounded slowdown of completed jobs: max(1, JCT / max(run time at the full request, 10 s)).
    stretch_*, stretched_share
        Run time in the simulation over run time at the full request, waiting excluded, of jobs that started: all time
        held, runs cut by the end in full, and what a killed, preempted or interrupted job has still to run, be its kill
        only ahead. Share above 1.01.
    reclaimed_*_h
        Request minus allocation over the time it was held, in core-hours, GiB-hours and GPU-hours.
    killed_gpu_h, interrupted_gpu_h
        GPU-hours held by runs whose work was lost in a kill, and in an outage; what was preempted before counts in.
    users
        Users who submitted.
    jain_slowdown
        Jain's index over users' mean bounded slowdowns (completed jobs).
    jain_served
        Jain's index over how much of the work a user submitted was done by the end; work is run time times dominant
        share at the full request.
    ftf_*, unfair_share
        Finish-time fairness of completed jobs: JCT over that in a private 1/N share of the cluster; share above 1.

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
    interrupted: int
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
    stranded_gpu_frac: float
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
    interrupted_gpu_h: float
    users: int
    jain_slowdown: float
    jain_served: float
    ftf_mean: float
    ftf_p99: float
    ftf_max: float
    unfair_share: float


def summarise(schedule: Schedule, *, uses: Uses | None = None, warm_up_s: float = 0.0) -> Metrics:
    """Measure a schedule from `warm_up_s` to its end; without `uses` what was truly used is NaN.

    Raises
    ------
    BadInput
        If the warm-up does not lie within the simulation, or `uses` are of other jobs.
    """
    workload = schedule.workload
    if not 0.0 <= warm_up_s < max(schedule.end_s, 1e-9):
        raise BadInput(f"metrics: found a warm-up of {warm_up_s} s, expected 0 or more and below {schedule.end_s} s")
    if uses is not None and uses.mean.shape != workload.request_units.shape:
        raise BadInput(f"metrics: found uses of shape {uses.mean.shape}, expected {workload.request_units.shape}")
    became = outcomes(schedule)
    in_window = workload.arrive_s >= warm_up_s
    counted = became.arrived & in_window
    completed = int((counted & became.completed).sum())
    waiting = int((counted & became.waiting).sum())
    return Metrics(
        submitted=int(counted.sum()),
        never_fits=int((in_window & schedule.never_fits & (workload.arrive_s <= schedule.end_s)).sum()),
        deployed=int((counted & ~np.isnan(became.first_start_s)).sum()),
        completed=completed,
        failed=int((counted & became.failed).sum()),
        running=int((counted & became.running).sum()),
        waiting=waiting,
        killed=int((counted & became.killed).sum()),
        retried=int((counted & became.retried).sum()),
        preempted=int((counted & became.preempted).sum()),
        interrupted=int((counted & became.interrupted).sum()),
        users=int(np.count_nonzero(np.bincount(workload.user[counted]))),
        complete_rate=completed / (completed + waiting) if completed + waiting else math.nan,
        **_held(schedule, uses, warm_up_s),
        **_lost(schedule, became, warm_up_s),
        **_service(schedule, became, counted),
        **_completions(schedule, became, counted),
    )


def _held(schedule: Schedule, uses: Uses | None, warm_up_s: float) -> dict[str, float]:
    """Integrate what was held, drawn and reclaimed over the window, one resource at a time."""
    during_s = held_s(schedule, warm_up_s, schedule.end_s)
    window_s = schedule.end_s - warm_up_s
    figures: dict[str, float] = {}
    for at, ((name, unit), capacity) in enumerate(zip(_RESOURCES, capacity_units(schedule), strict=True)):
        held = gang_units(schedule, at) * during_s
        allocated, over = float(held.sum()), float(capacity) * window_s
        drawn, known = math.nan, math.nan
        if uses is not None:
            draws = drawn_units(schedule, uses, at)
            says = ~np.isnan(draws)
            known = float(held[says].sum())
            drawn = float(draws[says] @ during_s[says]) if says.any() else math.nan
        figures[f"{name}_allocated_frac"] = _ratio(allocated, over)
        figures[f"{name}_used_frac"] = _ratio(drawn, over)
        figures[f"{name}_use_known_frac"] = _ratio(known, allocated)
        less = _requested_beyond(schedule, at)
        figures["_".join(filter(None, ("reclaimed", name, unit, "h")))] = (
            float(less @ during_s) / UNITS[at] / SECONDS_PER_HOUR
        )
    return figures


def _requested_beyond(schedule: Schedule, resource: int) -> FloatArray:
    """Return what the gang of each run asked for beyond what it was given (k,), in units."""
    workload = schedule.workload
    less = (workload.request_units[:, resource] - workload.granted_units[:, resource]) * workload.instances
    return np.where(schedule.full, 0.0, less[schedule.job])


def _lost(schedule: Schedule, became: Outcomes, warm_up_s: float) -> dict[str, float]:
    """Sum the GPU time whose work was lost, and what stood stranded."""
    lost = {"killed_gpu_h": 0.0, "interrupted_gpu_h": 0.0}
    if (became.lost_to >= 0).any():
        gpu_s = gang_units(schedule, 2) * held_s(schedule, warm_up_s, schedule.end_s) / UNITS[2]
        for name, ending in (("killed_gpu_h", Ending.KILLED), ("interrupted_gpu_h", Ending.INTERRUPTED)):
            lost[name] = float(gpu_s[became.lost_to == ending].sum()) / SECONDS_PER_HOUR
    gpus = float(capacity_units(schedule)[2]) / UNITS[2]
    return {**lost, "stranded_gpu_frac": _ratio(schedule.stranded_gpu_s, gpus * schedule.end_s)}


def _service(schedule: Schedule, became: Outcomes, counted: BoolArray) -> dict[str, float]:
    """Describe how long counted jobs waited, how far their runs stretched, and how much of their work was done."""
    workload = schedule.workload
    wait_s = (became.first_start_s - workload.arrive_s)[counted]
    at_least_s = np.where(np.isnan(wait_s), schedule.end_s - workload.arrive_s[counted], wait_s)
    stretches = became.stretch[counted & ~np.isnan(became.first_start_s)]
    work_s = dominant_share_s(schedule)[counted]
    ends_s = schedule.finished_s[counted]
    over = bool(len(ends_s)) and not np.isnan(ends_s).any()
    return {
        **_distribution("wait", wait_s[~np.isnan(wait_s)], "_s", ("mean", "p50", "p95", "p99")),
        **_distribution("wait_at_least", at_least_s, "_s", ("mean", "p99")),
        **_distribution("stretch", stretches, "", ("mean", "p99")),
        "stretched_share": _mean(stretches > STRETCHED_ABOVE),
        "makespan_s": float(ends_s.max() - workload.arrive_s[counted].min()) if over else math.nan,
        "jain_served": jain(user_means(became.done_frac[counted], workload.user[counted], work_s)),
    }


def _completions(schedule: Schedule, became: Outcomes, counted: BoolArray) -> dict[str, float]:
    """Describe JCT, bounded slowdown and finish-time fairness of counted jobs that completed."""
    workload = schedule.workload
    rows = np.flatnonzero(counted & became.completed)
    jct_s = schedule.finished_s[rows] - workload.arrive_s[rows]
    slowdown = np.maximum(jct_s / np.maximum(workload.run_s[rows], SLOWDOWN_BOUND_S), 1.0)
    rho = finish_time_fairness(schedule, rows)
    return {
        **_distribution("jct", jct_s, "_s", ("mean", "p50", "p95", "p99")),
        **_distribution("slowdown", slowdown, "", ("mean", "p50", "p95", "p99")),
        **_distribution("ftf", rho, "", ("mean", "p99", "max")),
        "unfair_share": _mean(rho > 1.0),
        "jain_slowdown": jain(user_means(slowdown, workload.user[rows])),
    }


_LEVELS: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


def _distribution(name: str, values: FloatArray, unit: str, what: tuple[str, ...]) -> dict[str, float]:
    """Return mean and quantiles under their names; NaN of nothing."""
    levels = [_LEVELS[each] for each in what[1:]]
    quantiles = np.quantile(values, levels) if len(values) else np.full(len(levels), np.nan)
    figures = [_mean(values), *quantiles.tolist()]
    return {f"{name}_{each}{unit}": figure for each, figure in zip(what, figures, strict=True)}


def _mean(values: FloatArray | BoolArray) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _ratio(amount: float, over: float) -> float:
    return amount / over if over else math.nan
