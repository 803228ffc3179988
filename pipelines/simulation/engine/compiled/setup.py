"""The loop's records as they are before the first moment, made from a workload, machines and a discipline.

Nothing is simulated here. Called by `run`.
"""

import numpy as np

from pipelines.simulation.engine.compiled.keys import BASES, predicted_or_last
from pipelines.simulation.engine.compiled.starts import DRF
from pipelines.simulation.engine.workload import Outages, Workload
from scheduler_core.discipline import Discipline
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.kernels.ordered import distinct
from scheduler_core.kernels.state import (
    END,
    JOB,
    NONE,
    PLACEMENT_CODES,
    RUN,
    Breaks,
    Log,
    Queue,
    Rules,
    buckets_of,
    tally_of,
)
from scheduler_core.preemption import preempts
from scheduler_core.types import IntArray


def rules_of(discipline: Discipline, horizon_s: float) -> Rules:
    """Say a discipline of named policy and placement in numbers."""
    return Rules(
        policy=BASES[str(discipline.policy)][1],
        placement=PLACEMENT_CODES[str(discipline.placement)],
        aging=float(discipline.aging),
        overtakes=NONE if discipline.overtakes is None else int(discipline.overtakes),
        easy=discipline.backfill == "easy",
        depth=int(discipline.backfill_depth),
        preempting=preempts(discipline),
        checkpoint_s=float(discipline.checkpoint_s),
        quantum_s=float(discipline.quantum_s),
        horizon_s=float(horizon_s),
    )


def queue_of(workload: Workload, discipline: Discipline) -> Queue:
    """Lay the jobs out, and number the buckets they can wait in: by demand, under DRF by user and demand."""
    base, mode = BASES[str(discipline.policy)]
    count = len(workload)
    users = np.unique(workload.user, return_inverse=True)[1]
    rows = np.empty((2 * count, 6), dtype=np.int64)
    for part, units in ((rows[:count], workload.granted_units), (rows[count:], workload.request_units)):
        part[:, :3] = units
        part[:, 3] = workload.instances
        part[:, 4] = _named_types(workload) if discipline.match_gpu_type else ANY_GPU_TYPE
        part[:, 5] = users if mode == DRF else 0
    codes, first = distinct(rows)
    shapes, kinds = distinct(rows[first, :5])
    jobs = np.zeros(count, dtype=JOB)
    for name in ("arrive_s", "run_s", "granted_run_s", "dies", "fails"):
        jobs[name] = getattr(workload, name)
    jobs["left_s"] = workload.granted_run_s
    jobs["predicted_s"] = predicted_or_last(workload)
    jobs["finished_s"] = np.nan
    jobs["user"] = users
    jobs["granted_bucket"], jobs["full_bucket"] = codes[:count], codes[count:]
    jobs["granted_key"] = base(workload, workload.granted_units[:, 2] * workload.instances)
    jobs["full_key"] = base(workload, workload.request_units[:, 2] * workload.instances)
    return Queue(
        jobs=jobs,
        buckets=buckets_of(rows[first], shapes),
        units=np.ascontiguousarray(rows[first, :3]),
        filled=np.empty(len(first), dtype=np.int64),
        shut=np.full(len(kinds), NONE, dtype=np.int64),
        tally=tally_of(),
    )


def _named_types(workload: Workload) -> IntArray:
    """Return each gang's GPU type as the first code of that name."""
    first = np.array([workload.gpu_types.index(name) for name in workload.gpu_types] + [ANY_GPU_TYPE], dtype=np.int64)
    return np.asarray(first[workload.gpu_type], dtype=np.int64)  # the code for any, -1, is the last


def log_of(workload: Workload, machines: int) -> Log:
    """Make room for every job to run once, and for those that die to run again; the loop asks for more if need be."""
    twice = 1 + workload.dies.astype(np.int64)
    return Log(
        runs=np.zeros(int(twice.sum()) + 1, dtype=RUN),
        hosts=np.empty(int((np.minimum(workload.instances, machines) * twice).sum()), dtype=np.int64),
        counts=np.empty(int((np.minimum(workload.instances, machines) * twice).sum()), dtype=np.int64),
        ends=np.empty(len(workload), dtype=END),
    )


def breaks_of(outages: Outages) -> Breaks:
    """Put outages in the order of their begins and of their ends."""
    by_up = np.argsort(outages.up_s, kind="stable")
    return Breaks(
        down_s=outages.down_s.astype(np.float64),
        down=outages.machine.astype(np.int64),
        up_s=outages.up_s[by_up].astype(np.float64),
        up=outages.machine[by_up].astype(np.int64),
    )
