"""Run one simulation with the compiled loop: convert the workload to records, run the loop, return the schedule.

The schedule is bit-identical to the one by `plain`; `plain` and `scheduler_core.rounds` explain the rules. Called by
`simulator`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from pipelines.simulation.engine.compiled.loop import advance
from pipelines.simulation.engine.compiled.starts import DRF, FIXED, GITTINS, LAS, LAS_TIME, MLFQ, SRTF
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import Outages, Workload
from scheduler_core.cluster import MILLI, Machine
from scheduler_core.cluster import Cluster as Machinery
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.kernels import gittins
from scheduler_core.kernels.ordered import distinct
from scheduler_core.kernels.state import (
    JOB,
    NONE,
    PLACEMENT_CODES,
    Breaks,
    Log,
    Queue,
    Rules,
    State,
    cluster_of,
    empty_queue,
    log_of,
    scratch_of,
)
from scheduler_core.queueing import Discipline
from scheduler_core.types import FloatArray, IntArray

Base = Callable[[Workload, IntArray], FloatArray]
"""A function of a workload and the allocated milli-GPUs of each job (n,) that returns a sort key per job (n,)."""


def predicted_or_last(workload: Workload) -> FloatArray:
    """Return predicted run times (n,); unknown ones are infinite, so that their jobs sort last."""
    return np.where(np.isfinite(workload.predicted_s), workload.predicted_s, np.inf)


def _fifo(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # all bases have the same signature
    return workload.arrive_s


def _predicted(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # all bases have the same signature
    return predicted_or_last(workload)


def _qssf(workload: Workload, gpus: IntArray) -> FloatArray:
    known = np.isfinite(workload.predicted_s)
    return np.where(known, np.where(known, workload.predicted_s, 0.0) * (gpus / MILLI), np.inf)


def _weight(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # all bases have the same signature
    return np.maximum(gpus, 1).astype(np.float64)


def _level(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # all bases have the same signature
    known = np.where(np.isfinite(workload.predicted_s), workload.predicted_s, 0.0)
    return np.array([gittins.level_of(predicted_s) for predicted_s in known.tolist()], dtype=np.float64)


def _priority(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # all bases have the same signature
    return -workload.priority


def _none(workload: Workload, gpus: IntArray) -> FloatArray:  # noqa: ARG001  # all bases have the same signature
    return np.zeros(len(workload))


BASES: Final[dict[str, tuple[Base, int]]] = {
    "fifo": (_fifo, FIXED),
    "sjf": (_predicted, FIXED),
    "srtf": (_predicted, SRTF),
    "qssf": (_qssf, FIXED),
    "las": (_weight, LAS),
    "las_time": (_none, LAS_TIME),
    "mlfq": (_level, MLFQ),
    "gittins": (_predicted, GITTINS),
    "priority": (_priority, FIXED),
    "drf": (_none, DRF),
}
"""For each policy: the function that computes its initial sort keys, and the code for how the loop updates them."""


def rules_of(discipline: Discipline, horizon_s: float) -> Rules:
    """Convert a discipline, whose policy and placement are names, to the numbers that the loop reads."""
    return Rules(
        policy=BASES[str(discipline.policy)][1],
        placement=PLACEMENT_CODES[str(discipline.placement)],
        aging=float(discipline.aging),
        overtakes=NONE if discipline.overtakes is None else int(discipline.overtakes),
        easy=discipline.backfill == "easy",
        depth=int(discipline.backfill_depth),
        preempting=discipline.preempts(),
        restart_cost_s=float(discipline.restart_cost_s),
        quantum_s=float(discipline.quantum_s),
        horizon_s=float(horizon_s),
        remaining=gittins.remaining_table(),
        ages=gittins.AGES,
    )


def queue_of(workload: Workload, discipline: Discipline) -> Queue:
    """Convert the jobs to records, grouped into buckets of equal demand; under DRF a bucket also has only one user."""
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
    shapes, _ = distinct(rows[first, :5])
    jobs = np.zeros(count, dtype=JOB)
    for name in ("arrive_s", "run_s", "granted_run_s", "dies", "fails"):
        jobs[name] = getattr(workload, name)
    jobs["left_s"] = workload.granted_run_s
    jobs["predicted_s"] = predicted_or_last(workload)
    jobs["spread"] = gittins.spreads_of(workload.predicted_s, workload.predicted_p90_s)
    jobs["finished_s"] = np.nan
    jobs["user"] = users
    jobs["granted_bucket"], jobs["full_bucket"] = codes[:count], codes[count:]
    jobs["granted_key"] = base(workload, workload.granted_units[:, 2] * workload.instances)
    jobs["full_key"] = base(workload, workload.request_units[:, 2] * workload.instances)
    return empty_queue(jobs, rows[first], shapes)


def _named_types(workload: Workload) -> IntArray:
    """Return the GPU type code of each job; if `gpu_types` repeats a name, its first index is the code."""
    first = np.array([workload.gpu_types.index(name) for name in workload.gpu_types] + [ANY_GPU_TYPE], dtype=np.int64)
    return np.asarray(first[workload.gpu_type], dtype=np.int64)  # ANY_GPU_TYPE is -1, so it indexes the last entry


def first_log(workload: Workload, machines: int) -> Log:
    """Return an empty log, long enough for two runs of each job that dies and one of every other job.

    Preemptions and outages can add runs; the log is then lengthened.
    """
    twice = 1 + workload.dies.astype(np.int64)
    return log_of(len(workload), int(twice.sum()), int((np.minimum(workload.instances, machines) * twice).sum()))


def breaks_of(outages: Outages) -> Breaks:
    """Return the outages as two lists: one sorted by start, one sorted by end."""
    by_up = np.argsort(outages.up_s, kind="stable")
    return Breaks(
        down_s=outages.down_s.astype(np.float64),
        down=outages.machine.astype(np.int64),
        up_s=outages.up_s[by_up].astype(np.float64),
        up=outages.machine[by_up].astype(np.int64),
    )


def run_compiled(
    workload: Workload,
    machines: Sequence[Machine],
    discipline: Discipline,
    horizon_s: float,
    outages: Outages,
) -> Schedule:
    """Simulate a workload under a discipline whose policy and placement are names.

    The arguments are not checked here, but in `simulator.simulate`.
    """
    state = _begun(workload, Machinery(machines), discipline, horizon_s, outages)
    while not advance(state):
        state = state._replace(log=_grown(state))
    tally, jobs, log = state.queue.tally[0], state.queue.jobs, state.log
    runs = log.runs[: tally["runs"] + 1]
    hosts = int(tally["hosts"])
    return Schedule(
        workload=workload,
        machines=tuple(machines),
        end_s=float(horizon_s if math.isfinite(horizon_s) else tally["now_s"]),
        job=runs["job"][:-1].copy(),
        start_s=runs["start_s"][:-1].copy(),
        end_run_s=runs["end_s"][:-1].copy(),
        full=runs["full"][:-1].copy(),
        ending=runs["ending"][:-1].copy(),
        host_offsets=runs["first_host"].copy(),
        hosts=log.hosts[:hosts].copy(),
        host_counts=log.counts[:hosts].copy(),
        never_fits=jobs["never_fits"].copy(),
        finished_s=jobs["finished_s"].copy(),
        stranded_gpu_s=float(tally["stranded_gpu_s"]),
    )


def _begun(
    workload: Workload,
    cluster: Machinery,
    discipline: Discipline,
    horizon_s: float,
    outages: Outages,
) -> State:
    queue = queue_of(workload, discipline)
    machines = len(cluster.machines)
    users = int(queue.jobs["user"].max(initial=0)) + 1
    return State(
        rules=rules_of(discipline, horizon_s),
        queue=queue,
        cluster=cluster_of(cluster, workload.gpu_types, users),
        log=first_log(workload, machines),
        breaks=breaks_of(outages),
        scratch=scratch_of(len(workload), len(queue.buckets), machines),
    )


def _grown(state: State) -> Log:
    """Return the log at twice its length, or longer if all waiting jobs need more entries to start."""
    log, tally = state.log, state.queue.tally[0]
    runs = max(2 * len(log.runs), int(tally["runs"] + tally["waiting"]))
    hosts = max(2 * len(log.hosts), int(tally["hosts"] + tally["waiting_hosts"]))
    longer = log_of(len(log.ends), runs, hosts)
    for old, new in zip(log, longer, strict=True):
        new[: len(old)] = old
    return longer
