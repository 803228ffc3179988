"""What became of every job of a schedule: whether it started, ended, waits; what it lost; how far it came.

Columns over jobs and runs; sums and quantiles of them are `metrics`' and `fairness`' matter, who call this.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from scheduler_core.types import BoolArray, FloatArray, IntArray

LOSSES: Final = (Ending.KILLED, Ending.INTERRUPTED)
"""Endings after which the work done so far is lost."""

KEPT: Final = -1
"""Stands in `Outcomes.lost_to` for a run whose work was not lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """One row per job (n), in the order of serials, as things stood at the end; `lost_to` is per run (k).

    Attributes
    ----------
    arrived
        It came by the end, and its full request fits the empty cluster; all that follows is of such jobs.
    first_start_s
        NaN where it never started.
    completed, failed, running, waiting
        Of an arrived job exactly one holds.
    killed, preempted, interrupted
        It was at least once.
    retried
        It was started again at its full request after a kill.
    stretch
        Run time in the simulation over `run_s`, waiting excluded: all the time it held machines (a run cut by the end
        counts in full) and the time that is still to come where it waits to run again, or is in a run that will be
        killed; after a kill that is still to come, the full run. NaN where it never started.
    done_frac
        How much of the run it is in, or was preempted in, lay behind it at the end; 1 for completed and failed ones, 0
        for those that never started or lost everything.
    lost_to
        `Ending.KILLED` or `Ending.INTERRUPTED` where the run's work was lost to one, be it by the run's own end or, for
        a preempted one, by that of a later run; `KEPT` elsewhere. A run that the end cut before its kill is lost to it.
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


def outcomes(schedule: Schedule) -> Outcomes:
    """Sort the runs by job, and read off what became of each."""
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
    # What waits on its way to a kill runs in full after it.
    awaited_s += np.where(waiting & workload.dies & ~full_next, workload.run_s, 0.0)
    busy_s = np.bincount(schedule.job, weights=schedule.end_run_s - schedule.start_s, minlength=count)
    return Outcomes(
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
    """Mark the runs (k) that the end cut before the kill they were heading for."""
    going = schedule.ending == Ending.RUNNING
    return np.asarray(going & ~schedule.full & schedule.workload.dies[schedule.job], dtype=np.bool_)


def _ever(schedule: Schedule, of_run: BoolArray) -> BoolArray:
    """Return which jobs have a run of which it holds (n,)."""
    ever = np.zeros(len(schedule.workload), dtype=np.bool_)
    ever[schedule.job[of_run]] = True
    return ever


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lives:
    """Runs grouped by job, a job's runs cut into lives: a kill or an interruption ends one, a preemption does not.

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
