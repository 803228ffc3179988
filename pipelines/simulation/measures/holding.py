"""What every run of a schedule held and truly drew, for how long, in the integer units of the cluster.

One column over runs at a time, so that a million of them fit beside the schedule.
Called by `metrics`, `series`, `log` and `fairness`.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.truth import KILLED_AFTER_FRAC
from pipelines.simulation.engine.workload import Workload
from scheduler_core.cluster import Cluster
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """What jobs draw when they run at full speed, bounded by what they ask for.

    Attributes
    ----------
    mean
        (n, 3) per instance in the units of `cluster.UNITS`: average milli-cores, MiB and milli-GPUs; NaN where unknown.
    """

    mean: FloatArray


def capacity_units(schedule: Schedule) -> IntArray:
    """Return what all machines hold together (3,); a machine that is away counts."""
    return np.asarray(Cluster(schedule.machines).capacity.sum(axis=0), dtype=np.int64)


def held_s(schedule: Schedule, from_s: float, until_s: float) -> FloatArray:
    """Return how long each run held its machines within a window (k,)."""
    held = np.minimum(schedule.end_run_s, until_s)
    held -= np.maximum(schedule.start_s, from_s)
    return np.asarray(np.maximum(held, 0.0, out=held), dtype=np.float64)


def instance_units(schedule: Schedule, resource: int) -> IntArray:
    """Return what one instance of each run holds of a resource (k,)."""
    workload, job = schedule.workload, schedule.job
    granted = workload.granted_units[:, resource][job]
    return np.asarray(np.where(schedule.full, workload.request_units[:, resource][job], granted), dtype=np.int64)


def gang_units(schedule: Schedule, resource: int) -> IntArray:
    """Return what all instances of each run hold of a resource together (k,)."""
    units = instance_units(schedule, resource)
    units *= schedule.workload.instances[schedule.job]
    return units


def granted_stretch(workload: Workload) -> FloatArray:
    """Return how much slower than at the full request each job's work proceeds on what it is given at first (n,).

    A job that dies does so `truth.KILLED_AFTER_FRAC` into the run it would have had.
    """
    whole_s = np.where(workload.dies, workload.granted_run_s / KILLED_AFTER_FRAC, workload.granted_run_s)
    return np.asarray(whole_s / workload.run_s, dtype=np.float64)


def drawn_units(schedule: Schedule, uses: Uses, resource: int) -> FloatArray:
    """Return what all instances of each run truly draw of a resource together (k,); NaN where unknown.

    Work is what it is: CPU and GPU are drawn slower by the stretch of the run. Mean memory stays. Nothing is drawn
    beyond what is held.
    """
    workload, job = schedule.workload, schedule.job
    mean = uses.mean[:, resource][job]
    if resource != 1:
        mean = np.where(schedule.full, mean, mean / granted_stretch(workload)[job])
    drawn = np.minimum(mean, instance_units(schedule, resource))
    drawn *= workload.instances[job]
    return np.asarray(drawn, dtype=np.float64)
