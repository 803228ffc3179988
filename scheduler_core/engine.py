"""Scheduling of a whole workload, or of one round: the rules of a `Discipline` as numbers, and the state they act on.

The rules are in `kernels`, written once: short runs are run by Python, long ones by compiled code, with equal results.
The same input always gives the same schedule.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler_core.cluster import Cluster as Machinery
from scheduler_core.cluster import Room as Free
from scheduler_core.gangs import ANY_GPU_TYPE, Demand, shape
from scheduler_core.kernels.clock import AIM, DONE, LOG_FULL, advance, aim_at_goal
from scheduler_core.kernels.records import DRF, JOB, NONE
from scheduler_core.kernels.state import (
    KEPT_CHANGES,
    MOST_SHAPES,
    Cluster,
    Goal,
    Log,
    Queue,
    Room,
    Rules,
    State,
    cache_of,
    log_of,
    queue_of,
    room_like,
    scratch_of,
    uncompiled,
    write_back,
)
from scheduler_core.placement import PLACEMENTS
from scheduler_core.queueing import QUEUE_POLICIES, Discipline, Jobs, predicted_or_last
from scheduler_core.target import TargetWorkload, goal_of, kinds_of, sliding_targets, target_of
from scheduler_core.types import IntArray

__all__ = ["begun", "effort_s", "goals_of", "in_arrays", "pays", "run"]


def begun(
    jobs: Jobs,
    cluster: Machinery,
    discipline: Discipline,
    *,
    horizon_s: float,
    target: TargetWorkload | None = None,
) -> State:
    """Return the state before the first arrival; placements by device keep GPUs usable for the workload `target`.

    If GPUs are shared by device, requests of more than one GPU must be whole GPUs.
    """
    queue = _queue(jobs, discipline)
    kinds, kind = kinds_of(tuple(machine.gpu_type for machine in cluster.machines))
    empty = in_arrays(cluster.empty)
    shapes = int(queue.buckets["shape"].max(initial=-1)) + 1
    rows = min(shapes, MOST_SHAPES) if PLACEMENTS[discipline.placement].by_device else 0
    return State(
        rules=_rules(discipline, horizon_s),
        queue=queue,
        cluster=_cluster(cluster, empty, jobs.gpu_types, int(queue.jobs["user"].max(initial=0)) + 1),
        log=_first_log(jobs, empty),
        scratch=scratch_of(len(jobs.arrive_s), len(queue.buckets), empty),
        goal=goal_of(target_of(()) if target is None else target, kinds),
        cache=cache_of(rows, empty, kind, cluster.largest),
    )


def run(state: State, goals: Sequence[tuple[int, Goal]] = (), *, compiled: bool) -> State:
    """Run a state until its horizon, or until nothing more happens; return it. Its log is lengthened as needed.

    `goals` are pairs of a number of arrivals and the target workload from then on, in order.
    """
    tally, left, why = state.queue.tally, list(goals), AIM
    while why != DONE:
        if why == LOG_FULL:
            state = state._replace(log=_grown(state))
        while left and left[0][0] <= tally["arrivals"][0]:
            state = state._replace(goal=left.pop(0)[1])
        tally["aim_at"] = left[0][0] if left else np.iinfo(np.int64).max
        rows = state if compiled else uncompiled(state)
        if why == AIM:
            (aim_at_goal if compiled else aim_at_goal.py_func)(rows)
        why = int((advance if compiled else advance.py_func)(rows))
        if not compiled:
            write_back(rows, state)
    return state


def goals_of(jobs: Jobs, cluster: Machinery, discipline: Discipline) -> list[tuple[int, Goal]]:
    """Return the target workloads that a placement learns from the arrivals, as `run` takes them."""
    kinds, _ = kinds_of(tuple(machine.gpu_type for machine in cluster.machines))
    rows = range(len(jobs.arrive_s))
    possible = [row for row in rows if cluster.could_host(demand_of_row(jobs, row, jobs.request_units, discipline))]
    learnt = sliding_targets(demand_of_row(jobs, row, jobs.granted_units, discipline) for row in possible)
    pairs = zip(possible, learnt, strict=True)
    return [(row + 1, goal_of(target, kinds)) for row, target in pairs if target is not None]


LOADING_S: Final = 1.0
"""Seconds that a process needs to import numba and load compiled rules."""

COMPILING_S: Final = 30.0
"""Seconds of Python that justify a compilation, which takes about a minute and is then cached."""


def effort_s(jobs: int, machines: int, rules: Discipline) -> float:
    """Estimate the seconds that Python needs to schedule so many jobs.

    Placements by device need longer, because they compare devices. Preemption tries jobs again at every quantum: 851
    jobs on 4 machines took 0.3 s by fifo, 7 s by srtf and las.
    """
    per_machine = 25 if rules.placement in PLACEMENTS and PLACEMENTS[rules.placement].by_device else 1
    return jobs * (100 + per_machine * machines) * (40 if rules.preempts() else 1) / 500_000


def pays(python_s: float) -> bool:
    """Return whether loading or compiling the rules takes less than `python_s`, the seconds that Python would need."""
    if advance.is_loaded or python_s >= COMPILING_S:
        return True
    return python_s >= LOADING_S and advance.is_ready


def demand_of_row(jobs: Jobs, row: int, units: IntArray, discipline: Discipline) -> Demand:
    """Return the demand of a job with the given units (n, 3)."""
    cpu, mem, gpu = units[row].tolist()
    code = int(jobs.gpu_type[row]) if discipline.match_gpu_type else ANY_GPU_TYPE
    gpu_type = None if code == ANY_GPU_TYPE else jobs.gpu_types[code]
    return Demand(units=(cpu, mem, gpu), instances=int(jobs.instances[row]), gpu_type=gpu_type)


def distinct(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return a number for each row of a matrix, the same for equal rows, and the first row with each number.

    >>> [part.tolist() for part in distinct(np.array([[5, 1], [7, 1], [5, 1]]))]
    [[0, 1, 0], [0, 1]]
    """
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in range(rows.shape[1]):
        hashes = (hashes ^ rows[:, column].astype(np.uint64)) * MIX
        hashes ^= hashes >> np.uint64(29)
    _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(rows, rows[first][codes]):  # two rows have the same hash
        _, first, codes = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order))
    return numbers[codes.reshape(-1)], first[order].astype(np.int64)


MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def _rules(discipline: Discipline, horizon_s: float) -> Rules:
    return Rules(
        policy=QUEUE_POLICIES[discipline.policy].mode,
        placement=PLACEMENTS[discipline.placement].code,
        seed=int(discipline.seed),
        aging=float(discipline.aging),
        overtakes=NONE if discipline.overtakes is None else int(discipline.overtakes),
        easy=discipline.backfill == "easy",
        depth=int(discipline.backfill_depth),
        preempting=discipline.preempts(),
        restart_cost_s=float(discipline.restart_cost_s),
        quantum_s=float(discipline.quantum_s),
        horizon_s=float(horizon_s),
    )


def _queue(jobs: Jobs, discipline: Discipline) -> Queue:
    """Convert jobs to records, grouped into buckets of equal demand; under DRF a bucket also has only one user."""
    policy, count = QUEUE_POLICIES[discipline.policy], len(jobs.arrive_s)
    users = np.unique(jobs.user, return_inverse=True)[1]
    rows = np.empty((2 * count, 6), dtype=np.int64)
    for part, units in ((rows[:count], jobs.granted_units), (rows[count:], jobs.request_units)):
        part[:, :3] = units
        part[:, 3] = jobs.instances
        part[:, 4] = _named_types(jobs) if discipline.match_gpu_type else ANY_GPU_TYPE
        part[:, 5] = users if policy.mode == DRF else 0
    codes, first = distinct(rows)
    shapes, _ = distinct(rows[first, :5])
    records = np.zeros(count, dtype=JOB)
    for name in ("arrive_s", "run_s", "granted_run_s", "dies", "fails"):
        records[name] = getattr(jobs, name)
    records["left_s"] = jobs.granted_run_s
    records["predicted_s"] = predicted_or_last(jobs.predicted_s)
    records["finished_s"] = np.nan
    records["user"] = users
    records["granted_bucket"], records["full_bucket"] = codes[:count], codes[count:]
    for key, units in (("granted_key", jobs.granted_units), ("full_key", jobs.request_units)):
        records[key] = policy.base(jobs, units[:, 2] * jobs.instances)
    devices = np.array([shape(milli) for milli in rows[first, 2].tolist()], dtype=np.int64).reshape(-1, 2)
    return queue_of(records, rows[first], shapes, devices)


def _named_types(jobs: Jobs) -> IntArray:
    """Return the GPU type code of each job; if `gpu_types` repeats a name, its first index is the code."""
    first = np.array([jobs.gpu_types.index(name) for name in jobs.gpu_types] + [ANY_GPU_TYPE], dtype=np.int64)
    return np.asarray(first[jobs.gpu_type], dtype=np.int64)  # ANY_GPU_TYPE is -1, so it indexes the last entry


def in_arrays(room: Free) -> Room:
    """Return free capacity as arrays of kernels."""
    none = np.zeros((len(room.free), 0), dtype=np.int64)
    return Room(
        free=room.free.copy(),
        freeness=room.freeness(),
        devices=none if room.devices is None else np.ascontiguousarray(room.devices, dtype=np.int64),
        tenants=none.copy() if room.tenants is None else room.tenants.copy(),
    )


def _cluster(cluster: Machinery, empty: Room, gpu_types: tuple[str, ...], users: int) -> Cluster:
    machines = len(cluster.machines)
    of_type = [cluster.of_type(name) for name in gpu_types]
    return Cluster(
        now=room_like(empty),
        empty=empty,
        largest=cluster.largest.astype(np.float64),
        of_type=np.array(of_type, dtype=np.bool_).reshape(len(gpu_types), machines),
        away=np.zeros(machines, dtype=np.int64),
        total_free=empty.free.sum(axis=0),
        total=cluster.total.astype(np.float64),
        held=np.zeros((users, 3), dtype=np.int64),
        changed=np.zeros(KEPT_CHANGES, dtype=np.int64),
        first_on=np.full(machines, NONE, dtype=np.int64),
    )


def _first_log(jobs: Jobs, empty: Room) -> Log:
    """Return an empty log, long enough for two runs of each job that dies and one of every other job.

    Preemptions can add runs; the log is then lengthened.
    """
    twice, hosts = 1 + jobs.dies.astype(np.int64), np.minimum(jobs.instances, len(empty.free))
    return log_of(len(jobs.arrive_s), int(twice.sum()), int((hosts * twice).sum()), empty.devices.shape[1])


def _grown(state: State) -> Log:
    """Return the log at twice its length, or longer if all waiting jobs need more entries to start."""
    log, tally = state.log, state.queue.tally[0]
    runs = max(2 * len(log.runs), int(tally["runs"] + tally["waiting"]))
    hosts = max(2 * len(log.hosts), int(tally["hosts"] + tally["waiting_hosts"]))
    longer = log_of(len(log.expected), runs, hosts, log.devices.shape[1])
    for old, new in zip(log, longer, strict=True):
        new[: len(old)] = old
    return longer
