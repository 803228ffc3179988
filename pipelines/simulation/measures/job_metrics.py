"""Columns of a schedule: per job its final state, stretch and progress; per run the resources held and used."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.slowdown import KILLED_AFTER_FRAC
from scheduler_core.cluster import Cluster
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Uses", "job_metrics"]

KEPT: Final = -1
"""Value of `JobMetrics.lost_to` for a run whose work was not lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMetrics:
    """State of each job at the end of the simulation, in the order of serials (n); only `lost_to` is per run (k).

    - `arrived`: whether the job arrived before the end and its full request fits the empty cluster. The other columns
      are valid for such jobs only.
    - `first_start_s`: NaN if the job never started.
    - `completed`, `failed`, `running`, `waiting`: state at the end; exactly one is true for an arrived job.
    - `killed`, `preempted`, `interrupted`: whether it was killed, preempted, interrupted by an outage at least once.
    - `retried`: whether it was started again with its full request after a kill.
    - `stretch`: run time in the simulation / `run_s`, waiting excluded; NaN if the job never started. The run time
      counts all time on machines, and the time still needed when the simulation ends: the rest of the current run, the
      time left if the job waits to run again, and the full run after a kill.
    - `done_frac`: share of its run time that was done at the end: 1 for completed and failed jobs, 0 for jobs that
      never started or lost all work.
    - `lost_to`: how the work of a run was lost: `Ending.KILLED` or `Ending.INTERRUPTED`, else `KEPT`. The work of a
      preempted run is lost if a later run of the job is killed or interrupted. A run that was still to be killed at the
      end of the simulation counts as killed.
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
    workload, runs = schedule.workload, _runs(schedule)
    ending, lost_to = pl.col("ending"), pl.col("lost_to")
    in_last_life = pl.col("life") == pl.col("life").last()
    by_job = runs.group_by("job").agg(
        pl.col("start_s").first(),
        ending.last(),
        pl.col("ran_s").filter(in_last_life & (lost_to == KEPT)).sum().alias("attained_s"),
        (pl.col("end_s") - pl.col("start_s")).sum().alias("busy_s"),
        (pl.col("full").last() | (lost_to.last() == Ending.KILLED)).alias("full_next"),
        pl.col("doomed").any(),
        pl.col("full").any().alias("retried"),
        *((ending == each).any().alias(each.name) for each in (Ending.KILLED, Ending.PREEMPTED, Ending.INTERRUPTED)),
    )
    jobs = pl.DataFrame({"job": np.arange(len(workload))}).join(by_job, on="job", how="left", maintain_order="left")

    def marked(name: str) -> BoolArray:
        return jobs[name].fill_null(value=False).to_numpy()

    arrived = (workload.arrive_s <= schedule.end_s) & ~schedule.never_fits
    last = jobs["ending"].fill_null(KEPT).to_numpy()
    completed, failed, running = (last == each for each in (Ending.COMPLETED, Ending.FAILED, Ending.RUNNING))
    waiting = arrived & ~completed & ~failed & ~running
    first_start_s = jobs["start_s"].fill_null(np.nan).to_numpy()
    attained_s, busy_s = (jobs[name].fill_null(0.0).to_numpy() for name in ("attained_s", "busy_s"))
    full_next = marked("full_next")
    whole_s = np.where(full_next, workload.run_s, workload.granted_run_s)
    awaited_s = np.where(waiting | marked("doomed"), np.maximum(whole_s - attained_s, 0.0), 0.0)
    # A waiting job that will be killed runs a second time, in full.
    awaited_s += np.where(waiting & workload.dies & ~full_next, workload.run_s, 0.0)
    return JobMetrics(
        arrived=arrived,
        first_start_s=first_start_s,
        completed=completed,
        failed=failed,
        running=running,
        waiting=waiting,
        killed=marked(Ending.KILLED.name),
        preempted=marked(Ending.PREEMPTED.name),
        interrupted=marked(Ending.INTERRUPTED.name),
        retried=marked("retried"),
        stretch=np.where(np.isnan(first_start_s), np.nan, (busy_s + awaited_s) / workload.run_s),
        done_frac=np.where(completed | failed, 1.0, np.minimum(attained_s / whole_s, 1.0)),
        lost_to=runs["lost_to"].to_numpy(),
    )


def _runs(schedule: Schedule) -> pl.DataFrame:
    """Return the runs (k) with the life that each belongs to, and how the work of that life was lost.

    A life is the series of a job's runs between losses of work: a kill or an interruption ends it, a preemption does
    not. A run still running at the end of the simulation is `doomed` if it would have been killed later.
    """
    doomed = (schedule.ending == Ending.RUNNING) & ~schedule.full & schedule.workload.dies[schedule.job]
    runs = pl.DataFrame(
        {
            "job": schedule.job,
            "start_s": schedule.start_s,
            "end_s": schedule.end_run_s,
            "ran_s": np.minimum(schedule.end_run_s, schedule.end_s) - schedule.start_s,
            "full": schedule.full,
            "ending": schedule.ending.astype(np.int64),
            "doomed": doomed,
            "loss": np.where(doomed, Ending.KILLED, schedule.ending).astype(np.int64),
        }
    )
    loss = pl.col("loss").is_in([Ending.KILLED, Ending.INTERRUPTED])
    life = runs.with_columns(loss.cast(pl.Int64).shift(1, fill_value=0).cum_sum().over("job").alias("life"))
    lost_to = pl.when(loss).then("loss").otherwise(KEPT)
    return life.with_columns(lost_to.last().over("job", "life").alias("lost_to"))


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
    """Return the total capacity of all machines per resource (3,), including machines that are down."""
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
