"""What waiting jobs lack: how many of them could not start for want of one resource, were everything else free.

Reads a finished run, simulates nothing. Called by `runs`; what the shares come to is `goal`'s matter.
"""

import numpy as np

from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.trajectory import Ending, Trajectory
from scheduler_core.cluster import Cluster
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray

LOOK_S = SECONDS_PER_HOUR / 2.0
"""How often a run is looked at."""


def lacking(trajectory: Trajectory, *, look_s: float = LOOK_S) -> dict[str, float]:
    """Return, by resource, the share of waiting jobs that lack it, over jobs and moments; NaN where nobody waits.

    A gang lacks a resource if machines have no room for all its instances even were they empty in every other one.
    So a job may lack several, and one that finds each resource on other machines lacks none.
    """
    waited, lacked = 0, np.zeros(len(RESOURCES))
    for now_s in np.arange(look_s, trajectory.end_s, look_s).tolist():
        gangs, waiting = _waiting(trajectory, now_s)
        if len(waiting):
            waited += len(waiting)
            lacked += (_room(_free(trajectory, now_s), gangs) < trajectory.workload.instances[waiting][:, None]).sum(0)
    return dict(zip(RESOURCES, (lacked / waited if waited else lacked * np.nan).tolist(), strict=True))


def _waiting(trajectory: Trajectory, now_s: float) -> tuple[IntArray, IntArray]:
    """Return what an instance of each waiting job would be given (w, 3), and the jobs (w)."""
    workload = trajectory.workload
    waits: BoolArray = (workload.arrive_s <= now_s) & ~trajectory.never_fits & ~(trajectory.finished_s <= now_s)
    waits[trajectory.job[_running(trajectory, now_s)]] = False
    full = np.zeros_like(waits)
    full[trajectory.job[(trajectory.ending == Ending.KILLED) & (trajectory.end_run_s <= now_s)]] = True
    waiting = np.flatnonzero(waits)
    units = np.where(full[waiting, None], workload.request_units[waiting], workload.granted_units[waiting])
    return units, waiting


def _running(trajectory: Trajectory, now_s: float) -> BoolArray:
    return np.asarray((trajectory.start_s <= now_s) & (now_s < trajectory.end_run_s), dtype=np.bool_)


def _free(trajectory: Trajectory, now_s: float) -> IntArray:
    """Return what every machine has left (m, 3)."""
    workload, job = trajectory.workload, trajectory.job
    each = np.where(trajectory.full[:, None], workload.request_units[job], workload.granted_units[job])
    run = np.repeat(np.arange(len(job)), np.diff(trajectory.host_offsets))
    here = _running(trajectory, now_s)[run]
    free = Cluster(trajectory.machines).capacity.astype(np.int64, copy=True)
    np.subtract.at(free, trajectory.hosts[here], each[run[here]] * trajectory.host_counts[here][:, None])
    return free


def _room(free: IntArray, units: IntArray) -> FloatArray:
    """Return how many instances all machines together have room for by each resource alone (w, 3)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fitting = np.floor(free[:, None, :] / units[None, :, :])
    # What is not asked for never lacks.
    room: FloatArray = np.where(units > 0, fitting.sum(axis=0), np.inf)
    return room
