"""Columns of a schedule: per job its final state, stretch and progress; per run the resources held and used."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.slowdown import KILLED_AFTER_FRAC
from scheduler_core.cluster import Cluster
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Uses", "job_metrics"]

NEVER: Final = -1
"""Ending of a job that never started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetrics:
    """State of each job at the end of the simulation, in the order of serials (n); only `lost` is per run (k).

    - `arrived`: whether the job arrived before the end and its full request fits the empty cluster. The other columns
      are valid for such jobs only.
    - `first_start_s`: NaN if the job never started.
    - `completed`, `failed`, `running`, `waiting`: state at the end; exactly one is true for an arrived job.
    - `killed`, `preempted`: whether it was killed at least once, and preempted at least once.
    - `retried`: whether it was started again with its full request after a kill.
    - `stretch`: run time in the simulation / `run_s`, waiting excluded; NaN if the job never started. The run time
      counts all time on machines, and the time still needed when the simulation ends: the rest of the current run, the
      time left if the job waits to run again, and the full run after a kill.
    - `done_frac`: share of its run time that was done at the end: 1 for completed and failed jobs, 0 for jobs that
      never started or lost all work.
    - `lost`: whether the work of a run was lost in a kill, of that run or of a later run of the job. A run that was
      still to be killed at the end of the simulation counts as killed.
    """

    arrived: BoolArray
    first_start_s: FloatArray
    completed: BoolArray
    failed: BoolArray
    running: BoolArray
    waiting: BoolArray
    killed: BoolArray
    preempted: BoolArray
    retried: BoolArray
    stretch: FloatArray
    done_frac: FloatArray
    lost: BoolArray


def job_metrics(schedule: Schedule) -> JobMetrics:
    """Return the state of each job at the end of a schedule."""
    workload, count = schedule.workload, len(schedule.workload)
    # Runs still running at the end that would have been killed later.
    doomed = (schedule.ending == Ending.RUNNING) & ~schedule.full & workload.dies[schedule.job]
    lives = _lives(schedule, np.where(doomed, Ending.KILLED, schedule.ending))

    def of_started(values: npt.NDArray[Any], other: float) -> FloatArray:
        column = np.full(count, other, dtype=np.float64)
        column[lives.job] = values
        return column

    def ever(of_run: BoolArray) -> BoolArray:
        marked = np.zeros(count, dtype=np.bool_)
        marked[schedule.job[of_run]] = True
        return marked

    arrived = (workload.arrive_s <= schedule.end_s) & ~schedule.never_fits
    first_start_s = of_started(schedule.start_s[lives.first], np.nan)
    last = of_started(schedule.ending[lives.last], NEVER)
    completed, failed, running = (last == each for each in (Ending.COMPLETED, Ending.FAILED, Ending.RUNNING))
    waiting = arrived & ~completed & ~failed & ~running
    full_next = of_started(schedule.full[lives.last] | lives.lost[lives.last], 0.0) > 0.0
    whole_s, attained_s = np.where(full_next, workload.run_s, workload.granted_run_s), of_started(lives.attained_s, 0.0)
    awaited_s = np.where(waiting | ever(doomed), np.maximum(whole_s - attained_s, 0.0), 0.0)
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
        killed=ever(schedule.ending == Ending.KILLED),
        preempted=ever(schedule.ending == Ending.PREEMPTED),
        retried=ever(schedule.full),
        stretch=np.where(np.isnan(first_start_s), np.nan, (busy_s + awaited_s) / workload.run_s),
        done_frac=np.where(completed | failed, 1.0, np.minimum(attained_s / whole_s, 1.0)),
        lost=lives.lost,
    )


class _Lives(NamedTuple):
    """First and last run of each started job `job`, the run time of its last life (0 if lost), and `lost` by run.

    A life is the series of runs between losses of work: a kill ends it, a preemption does not.
    """

    job: IntArray
    first: IntArray
    last: IntArray
    attained_s: FloatArray
    lost: BoolArray


def _lives(schedule: Schedule, ending: IntArray) -> _Lives:
    runs, order = len(schedule.job), np.argsort(schedule.job, kind="stable")
    job, ending = schedule.job[order], ending[order].astype(np.int64)
    killed = ending == Ending.KILLED
    begins_job = np.diff(job, prepend=-1) != 0
    begins_life = begins_job | np.append(False, killed)[:-1]

    life_at, job_at = np.flatnonzero(begins_life), np.flatnonzero(begins_job)
    life_last, job_last = (np.append(at[1:], runs)[: len(at)] - 1 for at in (life_at, job_at))
    lost = np.empty(runs, dtype=np.bool_)
    lost[order] = np.repeat(killed[life_last], life_last - life_at + 1)
    ran_s = (np.minimum(schedule.end_run_s, schedule.end_s) - schedule.start_s)[order]
    life_s = np.add.reduceat(ran_s, life_at) if runs else ran_s
    last_life = np.cumsum(begins_life)[job_last] - 1
    return _Lives(
        job=job[job_at],
        first=order[job_at],
        last=order[job_last],
        attained_s=np.where(killed[life_last[last_life]], 0.0, life_s[last_life]),
        lost=lost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Average use of jobs at full speed, at most their requests.

    `mean` (n, 3) is that of one instance in milli-cores, MiB and milli-GPUs (`cluster.UNITS`), NaN if unknown. `speed`
    (n,) is the mean speed of each job's runs on shared machines, where use is bounded by the request; None if the speed
    follows from the allocation, which then bounds use.
    """

    mean: FloatArray
    speed: FloatArray | None = None


def capacity_units(schedule: Schedule) -> IntArray:
    """Return the total capacity of all machines per resource (3,)."""
    return np.asarray(Cluster(schedule.machines).capacity.sum(axis=0), dtype=np.int64)


def held_s(schedule: Schedule, from_s: float) -> FloatArray:
    """Return the time for which each run (k,) held its machines from `from_s` on."""
    held = np.minimum(schedule.end_run_s, schedule.end_s) - np.maximum(schedule.start_s, from_s)
    return np.asarray(np.maximum(held, 0.0), dtype=np.float64)


def instance_units(schedule: Schedule, resource: int) -> IntArray:
    """Return the units of one resource allocated to one instance of each run (k,)."""
    workload, job = schedule.workload, schedule.job
    granted = workload.granted_units[:, resource][job]
    return np.asarray(np.where(schedule.full, workload.request_units[:, resource][job], granted), dtype=np.int64)


def gang_units(schedule: Schedule, resource: int) -> IntArray:
    """Return the units of one resource allocated to all instances of each run (k,)."""
    return instance_units(schedule, resource) * schedule.workload.instances[schedule.job]


def drawn_units(schedule: Schedule, uses: Uses, resource: int) -> FloatArray:
    """Return the average use of one resource by all instances of each run (k,), in units; NaN if unknown.

    The work of a job is constant, so a slower run uses less CPU and GPU per second; its mean memory is unchanged. The
    use is at most the allocation, or on shared machines the request.
    """
    workload, job = schedule.workload, schedule.job
    mean, most = uses.mean[:, resource][job], instance_units(schedule, resource)
    if uses.speed is not None:
        most = workload.request_units[:, resource][job]
        mean = mean if resource == 1 else mean * uses.speed[job]
    elif resource != 1:
        # The granted run time of a job that dies is only a fraction of its whole run.
        whole_s = np.where(workload.dies, workload.granted_run_s / KILLED_AFTER_FRAC, workload.granted_run_s)
        mean = np.where(schedule.full, mean, mean / (whole_s / workload.run_s)[job])
    return np.asarray(np.minimum(mean, most) * workload.instances[job], dtype=np.float64)
