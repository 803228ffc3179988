"""Columns over jobs and runs of a schedule: how each job ended, its slowdown and progress; what each run held and drew.

Sums and quantiles are in `metrics` and `fairness`. Called by them, `series`, `event_log` and `energy`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.slowdown import KILLED_AFTER_FRAC
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Cluster
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Uses"]

LOSSES: Final = (Ending.KILLED, Ending.INTERRUPTED)
"""Endings after which the work done so far is lost."""

KEPT: Final = -1
"""Value of `JobMetrics.lost_to` for a run whose work was not lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetrics:
    """State of each job (n), in the order of serials, at the end of the simulation; `lost_to` is per run (k).

    Attributes
    ----------
    arrived
        It arrived by the end, and its full request fits the empty cluster; all further columns concern such jobs.
    first_start_s
        NaN if it never started.
    completed, failed, running, waiting
        Exactly one is true for an arrived job.
    killed, preempted, interrupted
        Whether that happened at least once.
    retried
        Whether it was started again at its full request after a kill.
    stretch
        Run time in the simulation over `run_s`, waiting excluded. It counts all the time that the job held machines (a
        run cut by the end in full), the time left if it waits to run again, and the full run after a kill that lies
        ahead. NaN if it never started.
    done_frac
        Share of its current or preempted run that was done at the end; 1 for completed and failed jobs, 0 for those
        that never started or lost all work.
    lost_to
        `Ending.KILLED` or `Ending.INTERRUPTED` if the run's work was lost to it, by the run's own end or, for a
        preempted run, by that of a later one; else `KEPT`. A run cut by the end before its kill counts as killed.
    """

    arrived: BoolArray
    first_start_s: FloatArray
    completed: BoolArray
    failed: BoolArray
    running: BoolArray
    waiting: BoolArray
    killed: BoolArray
    preempted: BoolArray
    interrupted: BoolArray
    retried: BoolArray
    stretch: FloatArray
    done_frac: FloatArray
    lost_to: IntArray


def job_metrics(schedule: Schedule) -> JobMetrics:
    """Return the state of each job at the end of a schedule."""
    workload, count = schedule.workload, len(schedule.workload)
    doomed = _doomed(schedule)
    lives = _lives(schedule, doomed)
    arrived = (workload.arrive_s <= schedule.end_s) & ~schedule.never_fits
    first_start_s = np.full(count, np.nan)
    first_start_s[lives.job] = schedule.start_s[lives.first]
    last_ending = np.full(count, KEPT)
    last_ending[lives.job] = schedule.ending[lives.last]
    completed, failed, running = (last_ending == ending for ending in (Ending.COMPLETED, Ending.FAILED, Ending.RUNNING))
    waiting = arrived & ~completed & ~failed & ~running

    full_next = np.zeros(count, dtype=np.bool_)
    full_next[lives.job] = schedule.full[lives.last] | (lives.lost_to[lives.last] == Ending.KILLED)
    whole_s = np.where(full_next, workload.run_s, workload.granted_run_s)
    attained_s = np.zeros(count)
    attained_s[lives.job] = lives.attained_s
    to_come = waiting | _ever(schedule, doomed)
    awaited_s = np.where(to_come, np.maximum(whole_s - attained_s, 0.0), 0.0)
    # A waiting job that will be killed runs in full after that.
    awaited_s += np.where(waiting & workload.dies & ~full_next, workload.run_s, 0.0)
    busy_s = np.bincount(schedule.job, weights=schedule.end_run_s - schedule.start_s, minlength=count)
    return JobMetrics(
        arrived=arrived,
        first_start_s=first_start_s,
        completed=completed,
        failed=failed,
        running=running,
        waiting=waiting,
        killed=_ever(schedule, schedule.ending == Ending.KILLED),
        preempted=_ever(schedule, schedule.ending == Ending.PREEMPTED),
        interrupted=_ever(schedule, schedule.ending == Ending.INTERRUPTED),
        retried=_ever(schedule, schedule.full),
        stretch=np.where(np.isnan(first_start_s), np.nan, (busy_s + awaited_s) / workload.run_s),
        done_frac=np.where(completed | failed, 1.0, np.minimum(attained_s / whole_s, 1.0)),
        lost_to=lives.lost_to,
    )


def _doomed(schedule: Schedule) -> BoolArray:
    """Mark the runs (k) that were cut by the end and would have been killed later."""
    going = schedule.ending == Ending.RUNNING
    return np.asarray(going & ~schedule.full & schedule.workload.dies[schedule.job], dtype=np.bool_)


def _ever(schedule: Schedule, of_run: BoolArray) -> BoolArray:
    """Return which jobs have at least one marked run (n,)."""
    ever = np.zeros(len(schedule.workload), dtype=np.bool_)
    ever[schedule.job[of_run]] = True
    return ever


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lives:
    """Runs grouped by job, and a job's runs by life: a kill or an interruption ends a life, a preemption does not.

    `job`, `first`, `last` (rows of runs) and `attained_s` (of the last life, 0 after a loss) are per started job.
    """

    job: IntArray
    first: IntArray
    last: IntArray
    attained_s: FloatArray
    lost_to: IntArray


def _lives(schedule: Schedule, doomed: BoolArray) -> _Lives:
    runs = len(schedule.job)
    order = np.argsort(schedule.job, kind="stable")
    job = schedule.job[order]
    ending = np.where(doomed, Ending.KILLED, schedule.ending)[order]
    lost = np.isin(ending, LOSSES)
    begins_job = np.diff(job, prepend=-1) != 0
    begins_life = begins_job.copy()
    begins_life[1:] |= lost[:-1]

    life_at = np.flatnonzero(begins_life)
    life_last = np.append(life_at[1:], runs)[: len(life_at)] - 1
    life_lost_to = np.where(lost[life_last], ending[life_last], KEPT)
    lost_to = np.empty(runs, dtype=np.int64)
    lost_to[order] = np.repeat(life_lost_to, life_last - life_at + 1)
    ran_s = (np.minimum(schedule.end_run_s, schedule.end_s) - schedule.start_s)[order]
    life_s = np.add.reduceat(ran_s, life_at) if runs else ran_s

    job_at = np.flatnonzero(begins_job)
    job_last = np.append(job_at[1:], runs)[: len(job_at)] - 1
    last_life = np.cumsum(begins_life)[job_last] - 1
    return _Lives(
        job=job[job_at],
        first=order[job_at],
        last=order[job_last],
        attained_s=np.where(life_lost_to[last_life] == KEPT, life_s[last_life], 0.0),
        lost_to=lost_to,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Average draw of jobs at full speed, at most their requests.

    Attributes
    ----------
    mean
        (n, 3) per instance in the units of `cluster.UNITS`: average milli-cores, MiB and milli-GPUs; NaN if unknown.
    """

    mean: FloatArray


def capacity_units(schedule: Schedule) -> IntArray:
    """Return the capacity of all machines (3,), including those that are away."""
    return np.asarray(Cluster(schedule.machines).capacity.sum(axis=0), dtype=np.int64)


def held_s(schedule: Schedule, from_s: float, until_s: float) -> FloatArray:
    """Return how long each run held its machines within a window (k,)."""
    held = np.minimum(schedule.end_run_s, until_s)
    held -= np.maximum(schedule.start_s, from_s)
    return np.asarray(np.maximum(held, 0.0, out=held), dtype=np.float64)


def instance_units(schedule: Schedule, resource: int) -> IntArray:
    """Return the allocation of one instance of each run, for one resource (k,)."""
    workload, job = schedule.workload, schedule.job
    granted = workload.granted_units[:, resource][job]
    return np.asarray(np.where(schedule.full, workload.request_units[:, resource][job], granted), dtype=np.int64)


def gang_units(schedule: Schedule, resource: int) -> IntArray:
    """Return the allocation of all instances of each run, for one resource (k,)."""
    units = instance_units(schedule, resource)
    units *= schedule.workload.instances[schedule.job]
    return units


def granted_stretch(workload: Workload) -> FloatArray:
    """Return the factor by which each job's first start is slower than at the full request (n,).

    A job that dies does so after `slowdown.KILLED_AFTER_FRAC` of its run.
    """
    whole_s = np.where(workload.dies, workload.granted_run_s / KILLED_AFTER_FRAC, workload.granted_run_s)
    return np.asarray(whole_s / workload.run_s, dtype=np.float64)


def drawn_units(schedule: Schedule, uses: Uses, resource: int) -> FloatArray:
    """Return the average draw of all instances of each run, for one resource (k,); NaN if unknown.

    The work is constant, so a slower run draws CPU and GPU at a lower rate. Mean memory is unchanged. The draw is at
    most the allocation.
    """
    workload, job = schedule.workload, schedule.job
    mean = uses.mean[:, resource][job]
    if resource != 1:
        mean = np.where(schedule.full, mean, mean / granted_stretch(workload)[job])
    drawn = np.minimum(mean, instance_units(schedule, resource))
    drawn *= workload.instances[job]
    return np.asarray(drawn, dtype=np.float64)
