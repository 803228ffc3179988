"""Jobs held back before a simulation: the workload as it reaches the queue, and its result by submission.

When a job is released is decided by `scheduler_core.planning.release`. Called by `pipelines.simulation.paired_runs`.
"""

from dataclasses import replace

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import Workload
from scheduler_core.types import FloatArray, IntArray


def held_back(workload: Workload, release_s: FloatArray) -> tuple[Workload, IntArray]:
    """Return the workload as it reaches the queue, and which job of the workload each of its rows is."""
    order = np.argsort(release_s, kind="stable")
    return _reordered(workload, order, release_s[order]), order


def as_submitted(schedule: Schedule, arrive_s: FloatArray, order: IntArray) -> Schedule:
    """Return what a held-back workload did with jobs in the order of their submission, waiting from then on.

    `arrive_s` are the submissions (n), `order` is `held_back`'s. Time held is time waited in every metric.
    """
    back = np.argsort(order)
    return replace(
        schedule,
        workload=_reordered(schedule.workload, back, arrive_s),
        job=order[schedule.job],
        never_fits=schedule.never_fits[back],
        finished_s=schedule.finished_s[back],
    )


def _reordered(workload: Workload, rows: IntArray, arrive_s: FloatArray) -> Workload:
    return Workload(
        arrive_s=arrive_s,
        request_units=workload.request_units[rows],
        granted_units=workload.granted_units[rows],
        instances=workload.instances[rows],
        gpu_type=workload.gpu_type[rows],
        user=workload.user[rows],
        priority=workload.priority[rows],
        run_s=workload.run_s[rows],
        granted_run_s=workload.granted_run_s[rows],
        dies=workload.dies[rows],
        fails=workload.fails[rows],
        predicted_s=workload.predicted_s[rows],
        gpu_types=workload.gpu_types,
    )
