"""Arrays of scheduling rounds: jobs, buckets of jobs with equal demands, machines, runs and totals.

GPUs of a machine are counted as one pool, or device by device. If they are pooled, arrays by device have no column.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.kernels.records import ACTIVE, BUCKET, ENTRY, EXPECTED, FRONT, NONE, RUN, TALLY, Records, Rows
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "KEPT_CHANGES",
    "MOST_SHAPES",
    "NONE",
    "Cluster",
    "Goal",
    "Log",
    "Placed",
    "Queue",
    "Room",
    "Rules",
    "Scratch",
    "State",
    "cache_of",
    "log_of",
    "queue_of",
    "room_like",
    "scratch_of",
    "uncompiled",
    "write_back",
]


class Rules(NamedTuple):
    """The fields of a `Discipline` as numbers; `overtakes` is negative if overtaking is unlimited."""

    policy: int
    placement: int
    seed: int
    aging: float
    overtakes: int
    easy: bool
    depth: int
    preempting: bool
    restart_cost_s: float
    quantum_s: float
    horizon_s: float


class Queue(NamedTuple):
    """The queue: a heap of waiting jobs for each bucket; `filled` lists the buckets with waiting jobs, in any order.

    With backfill, the first jobs in queue order are in `front` instead of the heaps.
    """

    jobs: Records
    buckets: Records
    units: IntArray  # (buckets, 3) demand per instance
    filled: IntArray
    front: Records  # first waiting jobs and their buckets, in queue order
    shut: IntArray  # by shape of bucket: value of `changes` when the shape last did not fit, NONE if not known
    missing: IntArray  # by shape of bucket: a lower bound of the instances that did not fit then
    tally: Records  # (1,) totals, with the dtype `TALLY`


class Room(NamedTuple):
    """Free capacity of machines, current or hypothetical.

    `tenants` counts instances by GPU size: column 0 those with a part of a device, column k those with k devices.
    """

    free: IntArray  # (machines, 3) integer units
    freeness: FloatArray  # (machines,) sum over resources of free / largest
    devices: IntArray  # (machines, devices) free milli-GPUs of each device
    tenants: IntArray  # (machines, devices + 1)


class Cluster(NamedTuple):
    """The machines and their current free capacity `now`; `empty` is that of the cluster without jobs."""

    now: Room
    empty: Room
    largest: FloatArray  # (3,) capacity of the largest machine
    of_type: BoolArray  # (types, machines) whether the machine has the type, or one of its alternatives
    away: IntArray  # (machines,) 1 for machines that take no new job, else 0
    total_free: IntArray  # (3,) sum of free units over machines
    total: FloatArray  # (3,) capacity of all machines, at least 1
    held: IntArray  # (users, 3) units held by running jobs
    changed: IntArray  # machines of the latest `changes`: number n at index n modulo the length
    first_on: IntArray  # (machines,) index in `Log.hosts` of the latest run on a machine, NONE if there is none


class Log(NamedTuple):
    """Runs in order of their starts, and their machines."""

    runs: Records
    hosts: IntArray  # machines of all runs, one run after the other
    counts: IntArray  # number of instances on each of `hosts`
    devices: IntArray  # (hosts, devices) milli-GPUs taken of each device
    owner: IntArray  # index in `active` of the current run of each of `hosts`
    older: IntArray  # index in `hosts` of the next older run on the same machine, NONE for the oldest; so is `newer`
    newer: IntArray
    ends: Records  # heap of the runs by planned end; a run stopped before stays in it until then
    expected: Records  # with backfill: the current runs by expected end
    active: Records  # the current runs, in no particular order, with what their queue keys depend on


class Scratch(NamedTuple):
    """Working memory of a round."""

    offers: Records  # heap of buckets by the keys of their first jobs
    aside: IntArray  # jobs that stay queued and are not offered again
    chosen: IntArray  # (machines,) indices of the machines chosen for a gang, in filling order
    counts: IntArray  # (machines,) instances on each machine of `chosen`
    taken: IntArray  # (machines, devices) milli-GPUs of each device of each machine of `chosen`
    slot: IntArray  # (machines,) working values of a placement
    able: IntArray  # working values of a placement, at least one for each machine and each device of a machine
    bare: Room  # hypothetical free capacity; so are `spare` and `after`
    spare: Room
    after: Room
    reach: IntArray  # (1, 3) hypothetical free capacity of one machine
    picks: Records  # heap of running jobs by queue key
    shed: BoolArray


class Goal(NamedTuple):
    """A target workload: for each machine kind, its GPU shapes that are allowed on such machines.

    `levels` holds the distinct milli-GPUs per device, ascending. `cpu` and `pods` have one entry per machine kind and
    allowed shape; those of kind t and level j have indices first[t, j] to first[t, j + 1] - 1, with ascending `cpu`.
    pods[e, g] counts the pods of these entries up to e that need at most g devices, `total` all pods of the target,
    including those without GPUs. `survey` is working memory of `scores`.
    """

    levels: IntArray
    first: IntArray  # (kinds, levels + 1) positions of entries
    cpu: IntArray
    pods: IntArray  # (entries, most devices of a shape + 1)
    total: int
    survey: IntArray  # (levels, 3)


class Cache(NamedTuple):
    """Cached scores of machines, by shape of demand, and the free capacity to which they belong."""

    score: IntArray  # (shapes, machines)
    taken: IntArray  # (shapes, machines) devices that the shape would take, as bits
    shape: IntArray  # (shapes,) the shape of each row, NONE for none
    fragmented: IntArray  # (machines,) fragmentation, multiplied by the number of the target's pods
    room: Room
    up: BoolArray
    kind: IntArray  # (machines,) number of the machine's GPU type, 0 for none
    most: FloatArray  # (2,) milli-cores and milli-GPUs of the largest machine, at least 1


class Placed(NamedTuple):
    """Jobs to start, and their machines: those of job i at first[i] to first[i + 1] - 1."""

    jobs: IntArray
    first: IntArray  # (jobs + 1,)
    hosts: IntArray
    counts: IntArray  # number of instances on each of `hosts`
    taken: IntArray  # (hosts, devices) milli-GPUs taken of each device


class State(NamedTuple):
    """All data of a simulation."""

    rules: Rules
    queue: Queue
    cluster: Cluster
    log: Log
    scratch: Scratch
    goal: Goal
    cache: Cache


KEPT_CHANGES: Final = 256
"""Number of changes that are remembered; a gang that was last tried before them is tried on all machines."""

STALE: Final = -2
"""Cached score of a machine that changed since the score was computed."""

MOST_DEVICES: Final = 62
"""Maximum number of devices per machine, since sets of devices are bits of a 64-bit integer."""

MOST_SHAPES: Final = 1024
"""Maximum number of distinct demands with cached scores; shape s uses row s modulo this number."""


def queue_of(jobs: Records, rows: IntArray, shapes: IntArray, devices: IntArray) -> Queue:
    """Create a queue in which none of the jobs waits.

    The columns of `rows` (buckets, 6) are units (3), instances, GPU type and user. `devices` (buckets, 2) are the
    devices of an instance and the milli-GPUs of each.
    """
    buckets = np.zeros(len(rows), dtype=BUCKET)
    buckets["instances"], buckets["gpu_type"] = rows[:, 3], rows[:, 4]
    buckets["count"], buckets["milli"] = devices[:, 0], devices[:, 1]
    buckets["shape"], buckets["top"], buckets["stuck_at"] = shapes, NONE, NONE
    kinds, tally = int(shapes.max(initial=NONE)) + 1, np.zeros(1, dtype=TALLY)
    tally["head"] = tally["reserved_for"] = NONE
    return Queue(
        jobs=jobs,
        buckets=buckets,
        units=np.ascontiguousarray(rows[:, :3]),
        filled=np.empty(len(rows), dtype=np.int64),
        front=np.zeros(len(jobs) + 1, dtype=FRONT),
        shut=np.full(kinds, NONE, dtype=np.int64),
        missing=np.zeros(kinds, dtype=np.int64),
        tally=tally,
    )


def room_like(room: Room) -> Room:
    """Return a copy of free capacity."""
    return Room(
        free=room.free.copy(),
        freeness=room.freeness.copy(),
        devices=room.devices.copy(),
        tenants=room.tenants.copy(),
    )


def log_of(jobs: int, runs: int, hosts: int, devices: int) -> Log:
    """Allocate an empty log for a number of runs, which use a number of machines in total."""
    by_host = {name: np.empty(hosts, dtype=np.int64) for name in ("hosts", "counts", "owner", "older", "newer")}
    return Log(
        runs=np.zeros(runs + 1, dtype=RUN),
        ends=np.zeros(runs + 1, dtype=ENTRY),
        expected=np.zeros(jobs, dtype=EXPECTED),
        active=np.zeros(jobs, dtype=ACTIVE),
        devices=np.empty((hosts, devices), dtype=np.int64),
        **by_host,
    )


def scratch_of(jobs: int, buckets: int, room: Room) -> Scratch:
    """Allocate the working memory of rounds on machines with this free capacity."""
    machines = len(room.free)
    chosen, counts, slot = (np.empty(machines, dtype=np.int64) for _ in range(3))
    return Scratch(
        offers=np.zeros(buckets, dtype=ENTRY),
        aside=np.empty(jobs, dtype=np.int64),
        chosen=chosen,
        counts=counts,
        taken=np.zeros_like(room.devices),
        slot=slot,
        able=np.empty(max(machines, room.devices.shape[1]), dtype=np.int64),
        bare=room_like(room),
        spare=room_like(room),
        after=room_like(room),
        reach=np.empty((1, 3), dtype=np.int64),
        picks=np.zeros(jobs, dtype=ENTRY),
        shed=np.empty(jobs, dtype=np.bool_),
    )


def cache_of(rows: int, room: Room, kind: IntArray, largest: IntArray) -> Cache:
    """Create a cache of so many rows in which all scores are stale, of machines without free capacity.

    Raises
    ------
    BadInput
        If a machine has more than `MOST_DEVICES` devices.
    """
    machines, most = room.devices.shape
    if most > MOST_DEVICES:
        raise BadInput(f"machines: found one of {most} GPUs, expected at most {MOST_DEVICES}")
    nothing = room_like(room)
    for each in nothing:
        each[:] = 0
    return Cache(
        score=np.full((rows, machines), STALE, dtype=np.int64),
        taken=np.zeros((rows, machines), dtype=np.int64),
        shape=np.full(rows, NONE, dtype=np.int64),
        fragmented=np.zeros(machines, dtype=np.int64),
        room=nothing,
        up=np.zeros(machines, dtype=np.bool_),
        kind=kind,
        most=np.maximum([largest[0], largest[2]], 1).astype(np.float64),
    )


def uncompiled(state: Any) -> Any:
    """Return a state whose arrays of records are `Rows`, for uncompiled kernels; other arrays are the same ones."""
    if isinstance(state, tuple):
        return type(state)(*(uncompiled(each) for each in state))
    return Rows(state) if isinstance(state, np.ndarray) and state.dtype.names else state


def write_back(rows: Any, state: Any) -> None:
    """Write the `Rows` of an uncompiled state back to the arrays that it was made from."""
    if isinstance(state, tuple):
        for own, array in zip(rows, state, strict=True):
            write_back(own, array)
    elif isinstance(rows, Rows):
        rows.write(state)
