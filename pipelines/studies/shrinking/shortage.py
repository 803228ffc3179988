"""What waiting jobs lack: how many of them could not start for want of one resource, were everything else free.

Reads a finished run, simulates nothing. Called by `runs`; what the shares come to is `goal`'s matter.
"""

import numpy as np

from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.schedule import Ending, Schedule
from scheduler_core.cluster import Cluster
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray

LOOK_S = SECONDS_PER_HOUR / 2.0
"""How often a run is looked at."""


def lacking(schedule: Schedule, *, look_s: float = LOOK_S) -> dict[str, float]:
    """Return, by resource, the share of waiting jobs that lack it, over jobs and moments; NaN where nobody waits.

    A gang lacks a resource if machines have no room for all its instances even were they empty in every other one.
    So a job may lack several, and one that finds each resource on other machines lacks none.
    """
    waited, lacked = 0, np.zeros(len(RESOURCES))
    for now_s in np.arange(look_s, schedule.end_s, look_s).tolist():
        gangs, waiting = _waiting(schedule, now_s)
        if len(waiting):
            waited += len(waiting)
            lacked += (_room(_free(schedule, now_s), gangs) < schedule.workload.instances[waiting][:, None]).sum(0)
    return dict(zip(RESOURCES, (lacked / waited if waited else lacked * np.nan).tolist(), strict=True))


def _waiting(schedule: Schedule, now_s: float) -> tuple[IntArray, IntArray]:
    """Return what an instance of each waiting job would be given (w, 3), and the jobs (w)."""
    workload = schedule.workload
    waits: BoolArray = (workload.arrive_s <= now_s) & ~schedule.never_fits & ~(schedule.finished_s <= now_s)
    waits[schedule.job[_running(schedule, now_s)]] = False
    full = np.zeros_like(waits)
    full[schedule.job[(schedule.ending == Ending.KILLED) & (schedule.end_run_s <= now_s)]] = True
    waiting = np.flatnonzero(waits)
    units = np.where(full[waiting, None], workload.request_units[waiting], workload.granted_units[waiting])
    return units, waiting


def _running(schedule: Schedule, now_s: float) -> BoolArray:
    return np.asarray((schedule.start_s <= now_s) & (now_s < schedule.end_run_s), dtype=np.bool_)


def _free(schedule: Schedule, now_s: float) -> IntArray:
    """Return what every machine has left (m, 3)."""
    workload, job = schedule.workload, schedule.job
    each = np.where(schedule.full[:, None], workload.request_units[job], workload.granted_units[job])
    run = np.repeat(np.arange(len(job)), np.diff(schedule.host_offsets))
    here = _running(schedule, now_s)[run]
    free = Cluster(schedule.machines).capacity.astype(np.int64, copy=True)
    np.subtract.at(free, schedule.hosts[here], each[run[here]] * schedule.host_counts[here][:, None])
    return free


def _room(free: IntArray, units: IntArray) -> FloatArray:
    """Return how many instances all machines together have room for by each resource alone (w, 3)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fitting = np.floor(free[:, None, :] / units[None, :, :])
    # What is not asked for never lacks.
    room: FloatArray = np.where(units > 0, fitting.sum(axis=0), np.inf)
    return room
