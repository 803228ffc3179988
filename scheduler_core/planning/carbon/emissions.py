"""What a plan takes and gives off: run time left, grams within the period and in all, mean completion time.

Arithmetic on columns: watts times seconds times intensity; no choices. Called by the allocator's callers, by the
exhaustive optimum, by the simulation of elastic jobs and by tests, which hold the allocator against it.
"""

from typing import Final

import numpy as np

from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from scheduler_core.types import FloatArray

JOULES_PER_KWH: Final = 3.6e6


def remaining_s(jobs: ElasticJobs, plan: CountsAndFrequencies) -> FloatArray:
    """Return the run time left under the plan (J,), steps_left / (thr(n)·perf(f)); infinite without GPUs."""
    rows = np.arange(len(jobs))
    speed = jobs.steps_per_s[rows, plan.gpus] * jobs.perf[rows, plan.step]
    with np.errstate(divide="ignore"):
        return np.asarray(jobs.steps_left / speed, dtype=np.float64)


def drawn_w(jobs: ElasticJobs, plan: CountsAndFrequencies) -> FloatArray:
    """Return the power of each job's GPUs together (J,), P(n, f) = n·watts(f)."""
    return np.asarray(plan.gpus * jobs.watts[np.arange(len(jobs)), plan.step], dtype=np.float64)


def period_emissions_g(
    jobs: ElasticJobs, plan: CountsAndFrequencies, *, intensity_g_per_kwh: float, period_s: float, pue: float = 1.0
) -> FloatArray:
    """Return what each job gives off within the period (J,): I·P_j·PUE·min(T_j, period); their sum is budgeted.

    References
    ----------
    The patent's constraint, with the PUE of the site (ours); busy GPUs only.
    """
    running_s = np.minimum(remaining_s(jobs, plan), period_s)
    return np.asarray(intensity_g_per_kwh * pue * drawn_w(jobs, plan) * running_s / JOULES_PER_KWH, dtype=np.float64)


def job_emissions_g(
    jobs: ElasticJobs, plan: CountsAndFrequencies, *, intensity_g_per_kwh: float, pue: float = 1.0
) -> FloatArray:
    """Return what each job would give off until its end at this intensity (J,): C_j = I·P_j·PUE·T_j; 0 if postponed."""
    running_s = np.where(plan.gpus > 0, remaining_s(jobs, plan), 0.0)
    return np.asarray(intensity_g_per_kwh * pue * drawn_w(jobs, plan) * running_s / JOULES_PER_KWH, dtype=np.float64)


def completion_s(jobs: ElasticJobs, plan: CountsAndFrequencies, *, period_s: float) -> FloatArray:
    """Return the time from submission to the end as the plan foresees it (J,).

    Postponed jobs are taken to start, shortest first, on the GPUs that run now as these come free, but not within this
    period, and to run then as `least_plan_s` has it (ours: the source says nothing). So no GPU is counted twice, and
    where speed grows in proportion to GPUs nothing is gained on paper by putting jobs off. Where fewer GPUs run than
    such a job needs, the others are free with the last of them.
    """
    left_s = remaining_s(jobs, plan)
    running = plan.gpus > 0
    later_s, fewest = least_plan_s(jobs), jobs.allowed.argmax(axis=1)
    free_s = np.repeat(np.maximum(left_s[running], period_s), plan.gpus[running]).tolist()
    for row in sorted(np.flatnonzero(~running), key=lambda row: float(later_s[row])):
        free_s.sort()
        taken = int(fewest[row])
        start_s = free_s[min(taken, len(free_s)) - 1] if free_s else period_s
        left_s[row] = start_s + later_s[row]
        free_s[:taken] = [left_s[row]] * taken
    return np.asarray(jobs.age_s + left_s, dtype=np.float64)


def least_plan_s(jobs: ElasticJobs) -> FloatArray:
    """Return each job's run time left on the fewest GPUs allowed, at its energy-optimal frequency (J,)."""
    rows = np.arange(len(jobs))
    fewest = jobs.allowed.argmax(axis=1)
    return np.asarray(
        jobs.steps_left / (jobs.steps_per_s[rows, fewest] * jobs.perf[rows, jobs.optimal_step]), dtype=np.float64
    )


def mean_completion_s(jobs: ElasticJobs, plan: CountsAndFrequencies, *, period_s: float) -> float:
    """Return the mean of `completion_s`, the mean JCT that plans are compared by; 0 without jobs.

    Examples
    --------
    >>> jobs = ElasticJobs(
    ...     steps_left=np.array([100.0, 100.0]),
    ...     steps_per_s=np.array([[0.0, 1.0], [0.0, 1.0]]),
    ...     perf=np.ones((2, 1)),
    ...     watts=np.full((2, 1), 200.0),
    ...     mhz=np.array([1500.0]),
    ...     age_s=np.array([10.0, 0.0]),
    ...     rigid_gpus=np.array([0, 0]),
    ... )
    >>> one = CountsAndFrequencies(gpus=np.array([1, 0]), step=np.array([0, 0]), postponed=np.array([False, True]))
    >>> mean_completion_s(jobs, one, period_s=60.0)
    155.0
    """
    return float(completion_s(jobs, plan, period_s=period_s).mean()) if len(jobs) else 0.0
