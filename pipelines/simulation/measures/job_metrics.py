"""Columns of a schedule: per job its final state, stretch and progress; per run the resources held and used.

Sums and quantiles of the columns are in `metrics` and `fairness`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.slowdown import KILLED_AFTER_FRAC
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Cluster
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Uses", "job_metrics"]

LOSSES: Final = (Ending.KILLED, Ending.INTERRUPTED)
"""Endings of a run after which the work that the job has done so far is lost."""

KEPT: Final = -1
"""Value of `JobMetrics.lost_to` for a run whose work was not lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetrics:
    """State of each job at the end of the simulation, in the order of serials (n); only `lost_to` is per run (k).

    Attributes
    ----------
    arrived
        Whether the job arrived before the end and its full request fits the empty cluster. The other columns are valid
        for such jobs only.
    first_start_s
        Time of the first start; NaN if the job never started.
    completed, failed, running, waiting
        State at the end; exactly one is true for an arrived job.
    killed, preempted, interrupted
        Whether the job was killed, preempted or interrupted by an outage at least once.
    retried
        Whether the job was started again with its full request after a kill.
    stretch
        Run time in the simulation / `run_s`, waiting excluded; NaN if the job never started. The run time counts all
        time on machines, and the time still needed when the simulation ends: the rest of the current run, the time left
        if the job waits to run again, and the full run after a kill.
    done_frac
        Share of the job's run time that was done at the end: 1 for completed and failed jobs, 0 for jobs that never
        started or lost all work.
    lost_to
        For each run, how its work was lost: `Ending.KILLED` or `Ending.INTERRUPTED`, else `KEPT`. The work of a
        preempted run is lost if a later run of the job is killed or interrupted. A run that was still to be killed at
        the end of the simulation counts as killed.
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
    # A waiting job that will be killed runs a second time, in full.
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
    """Mark the runs (k,) still running at the end of the simulation that would have been killed later."""
    going = schedule.ending == Ending.RUNNING
    return np.asarray(going & ~schedule.full & schedule.workload.dies[schedule.job], dtype=np.bool_)


def _ever(schedule: Schedule, of_run: BoolArray) -> BoolArray:
    """Return whether each job (n,) has at least one run marked in `of_run` (k,)."""
    ever = np.zeros(len(schedule.workload), dtype=np.bool_)
    ever[schedule.job[of_run]] = True
    return ever


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lives:
    """The first and the last run of each started job, and the work lost by each run.

    A life is the series of runs between losses of work: a kill or an interruption ends it, a preemption does not. `job`
    holds the started jobs, and `first` and `last` the indices of their runs. `attained_s` is the run time of a job's
    last life, 0 if its work was lost. `lost_to` is described in `JobMetrics`.
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
    """Average use of jobs at full speed, at most their requests.

    Attributes
    ----------
    mean
        Average use of one instance in milli-cores, MiB and milli-GPUs (`cluster.UNITS`); NaN if unknown. Shape (n, 3).
    speed
        Mean speed of each job's runs (n,) on shared machines, where use is bounded by the request; None if the speed
        follows from the allocation, which then bounds use.
    """

    mean: FloatArray
    speed: FloatArray | None = None


def capacity_units(schedule: Schedule) -> IntArray:
    """Return the total capacity of all machines per resource (3,), including machines that are down."""
    return np.asarray(Cluster(schedule.machines).capacity.sum(axis=0), dtype=np.int64)


def held_s(schedule: Schedule, from_s: float, until_s: float) -> FloatArray:
    """Return the time for which each run (k,) held its machines between `from_s` and `until_s`."""
    held = np.minimum(schedule.end_run_s, until_s)
    held -= np.maximum(schedule.start_s, from_s)
    return np.asarray(np.maximum(held, 0.0, out=held), dtype=np.float64)


def instance_units(schedule: Schedule, resource: int) -> IntArray:
    """Return the units of one resource allocated to one instance of each run (k,)."""
    workload, job = schedule.workload, schedule.job
    granted = workload.granted_units[:, resource][job]
    return np.asarray(np.where(schedule.full, workload.request_units[:, resource][job], granted), dtype=np.int64)


def gang_units(schedule: Schedule, resource: int) -> IntArray:
    """Return the units of one resource allocated to all instances of each run (k,)."""
    units = instance_units(schedule, resource)
    units *= schedule.workload.instances[schedule.job]
    return units


def granted_stretch(workload: Workload) -> FloatArray:
    """Return the factor by which each job (n,) runs slower at its first start than at its full request.

    `granted_run_s` of a job that dies is only the fraction `slowdown.KILLED_AFTER_FRAC` of its whole run.
    """
    whole_s = np.where(workload.dies, workload.granted_run_s / KILLED_AFTER_FRAC, workload.granted_run_s)
    return np.asarray(whole_s / workload.run_s, dtype=np.float64)


def drawn_units(schedule: Schedule, uses: Uses, resource: int) -> FloatArray:
    """Return the average use of one resource by all instances of each run (k,), in units; NaN if unknown.

    The work of a job is constant, so a slower run uses less CPU and GPU per second; its mean memory is unchanged. The
    use is at most the allocation, or on shared machines the request.
    """
    workload, job = schedule.workload, schedule.job
    mean = uses.mean[:, resource][job]
    if uses.speed is not None:
        most = workload.request_units[:, resource][job]
        mean = mean if resource == 1 else mean * uses.speed[job]
    else:
        most = instance_units(schedule, resource)
        if resource != 1:
            mean = np.where(schedule.full, mean, mean / granted_stretch(workload)[job])
    drawn = np.minimum(mean, most)
    drawn *= workload.instances[job]
    return np.asarray(drawn, dtype=np.float64)
