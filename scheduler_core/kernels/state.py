"""Arrays of compiled scheduling rounds: jobs, buckets of jobs with equal demands, machines, runs and totals.

Used by every kernel of this folder and of the compiled engine.
"""

from typing import Final, NamedTuple

import numpy as np

from scheduler_core import cluster as machinery
from scheduler_core.kernels.records import ACTIVE, BUCKET, END, ENTRY, FRONT, JOB, NONE, RUN, TALLY, Records
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "JOB",
    "NONE",
    "PLACEMENT_CODES",
    "Breaks",
    "Cluster",
    "Log",
    "Queue",
    "Records",
    "Rules",
    "State",
    "buckets_of",
    "cluster_of",
    "empty_queue",
    "log_of",
    "scratch_of",
    "tally_of",
]


class Rules(NamedTuple):
    """The fields of a `Discipline` as numbers; `overtakes` is negative if overtaking is unlimited."""

    policy: int
    placement: int
    aging: float
    overtakes: int
    easy: bool
    depth: int
    preempting: bool
    restart_cost_s: float
    quantum_s: float
    horizon_s: float
    remaining: FloatArray  # (spreads, ages) table of `gittins.remaining_table`
    ages: FloatArray


class Queue(NamedTuple):
    """The queue: a heap of waiting jobs for each bucket; `filled` lists the buckets with waiting jobs, in any order.

    With backfill, the first jobs in queue order are in `front` instead of the heaps.
    """

    jobs: Records
    buckets: Records
    units: IntArray  # (buckets, 3) demand per instance
    filled: IntArray
    front: Records  # first waiting jobs and their buckets, in queue order
    shut: IntArray  # by shape of bucket: the value of `changes` when it last did not fit, NONE if not known
    missing: IntArray  # by shape of bucket: a lower bound of the instances that did not fit then
    tally: Records  # (1,) totals, with the dtype `TALLY`


class Cluster(NamedTuple):
    """Capacity and free capacity of machines; a machine that is down has nothing free."""

    capacity: IntArray  # (machines, 3) integer units
    free: IntArray  # (machines, 3) integer units
    room: FloatArray  # (machines,) sum over resources of free / largest
    largest: FloatArray  # (3,) capacity of the largest machine
    of_type: BoolArray  # (types, machines) whether the machine has the type, or one of its alternatives
    away: IntArray  # (machines,) number of current outages
    total_free: IntArray  # (3,) sum of `free` over machines
    total: FloatArray  # (3,) capacity of all machines, at least 1
    held: IntArray  # (users, 3) units held by running jobs
    changed: IntArray  # machines of the latest `changes`: number n at index n modulo the length
    first_on: IntArray  # (machines,) index in `Log.hosts` of the latest run on a machine, NONE if there is none


class Log(NamedTuple):
    """Runs in order of their starts, their machines, and a heap of the runs by end time."""

    runs: Records
    hosts: IntArray  # machines of all runs, one run after the other
    counts: IntArray  # number of instances on each of `hosts`
    owner: IntArray  # index in `active` of the current run of each of `hosts`
    older: IntArray  # index in `hosts` of the next older run on the same machine, NONE for the oldest; so is `newer`
    newer: IntArray
    ends: Records
    expected: Records  # with backfill: the current runs by expected end
    active: Records  # the current runs, in no particular order, with what their queue keys depend on


class Breaks(NamedTuple):
    """Outages: their times and machines, ordered by begin (`down`) and ordered by end (`up`)."""

    down_s: FloatArray
    down: IntArray
    up_s: FloatArray
    up: IntArray


class Scratch(NamedTuple):
    """Working memory of a round; only `hosted` is kept for later rounds."""

    offers: Records  # heap of buckets by the keys of their first jobs
    aside: IntArray  # jobs that stay queued and are not offered again
    chosen: IntArray  # (machines,) indices of the machines chosen for a gang, in filling order
    counts: IntArray  # (machines,) instances on each machine of `chosen`
    slot: IntArray  # (machines,) working values of a placement
    bare: IntArray  # (machines, 3) hypothetical free capacity; so are `spare` and `after`
    spare: IntArray
    after: IntArray
    reach: IntArray  # (1, 3) hypothetical free capacity of one machine
    hosted: IntArray  # (STUCK_ROWS, machines) instances that each machine hosts at most, for stuck buckets
    hosted_for: IntArray  # (STUCK_ROWS,) bucket of each row of `hosted`, NONE if there is none
    bare_room: FloatArray  # (machines,) as `Cluster.room`, for `bare` and for `after`
    after_room: FloatArray
    picks: Records  # heap of running jobs by queue key
    shed: BoolArray


class State(NamedTuple):
    """All data of a simulation."""

    rules: Rules
    queue: Queue
    cluster: Cluster
    log: Log
    breaks: Breaks
    scratch: Scratch


KEPT_CHANGES: Final = 256
"""Number of changes that are remembered; a gang that was last tried before them is tried on all machines."""

STUCK_ROWS: Final = 64
"""Number of rows of `Scratch.hosted`; bucket b uses row b modulo this number."""

FIRST_FIT: Final = 0
BEST_FIT: Final = 1
CONSOLIDATE: Final = 2
SPREAD: Final = 3
PLACEMENT_CODES: Final[dict[str, int]] = {
    "first_fit": FIRST_FIT,
    "best_fit": BEST_FIT,
    "consolidate": CONSOLIDATE,
    "spread": SPREAD,
}


def buckets_of(rows: IntArray, shapes: IntArray) -> Records:
    """Create empty buckets, one per row; the columns are units (3), instances, GPU type and user."""
    buckets = np.zeros(len(rows), dtype=BUCKET)
    buckets["instances"], buckets["gpu_type"] = rows[:, 3], rows[:, 4]
    buckets["gang_gpus"] = rows[:, 2] * rows[:, 3]
    buckets["shape"] = shapes
    buckets["top"] = NONE
    buckets["stuck_at"] = NONE
    return buckets


def tally_of() -> Records:
    """Create the totals of an empty simulation."""
    tally = np.zeros(1, dtype=TALLY)
    tally["head"] = NONE
    tally["reserved_for"] = NONE
    return tally


def empty_queue(jobs: Records, rows: IntArray, shapes: IntArray) -> Queue:
    """Create a queue in which none of the jobs waits; `rows` and `shapes` of the buckets are as in `buckets_of`."""
    kinds = int(shapes.max(initial=NONE)) + 1
    return Queue(
        jobs=jobs,
        buckets=buckets_of(rows, shapes),
        units=np.ascontiguousarray(rows[:, :3]),
        filled=np.empty(len(rows), dtype=np.int64),
        front=np.empty(len(jobs), dtype=FRONT),
        shut=np.full(kinds, NONE, dtype=np.int64),
        missing=np.zeros(kinds, dtype=np.int64),
        tally=tally_of(),
    )


def cluster_of(machines: machinery.Cluster, gpu_types: tuple[str, ...], users: int) -> Cluster:
    """Convert a cluster in its current state to the arrays of the kernels."""
    room = machines.room()
    of_type = [machines.of_type(name) for name in gpu_types]
    return Cluster(
        capacity=machines.capacity.copy(),
        free=room.free.copy(),
        room=room.freeness(),
        largest=machines.largest.astype(np.float64),
        of_type=np.array(of_type, dtype=np.bool_).reshape(len(gpu_types), len(machines.machines)),
        away=(~room.up).astype(np.int64),
        total_free=room.free.sum(axis=0),
        total=np.maximum(machines.capacity.sum(axis=0), 1).astype(np.float64),
        held=np.zeros((users, machines.capacity.shape[1]), dtype=np.int64),
        changed=np.zeros(KEPT_CHANGES, dtype=np.int64),
        first_on=np.full(len(machines.machines), NONE, dtype=np.int64),
    )


BY_HOST: Final = ("hosts", "counts", "owner", "older", "newer")
"""The columns of the log that have an entry for each machine of each run."""


def log_of(jobs: int, runs: int, hosts: int) -> Log:
    """Allocate an empty log for a number of runs, which use a number of machines in total."""
    return Log(
        runs=np.zeros(runs + 1, dtype=RUN),
        ends=np.empty(jobs, dtype=END),
        expected=np.empty(jobs, dtype=END),
        active=np.empty(jobs, dtype=ACTIVE),
        **{name: np.empty(hosts, dtype=np.int64) for name in BY_HOST},
    )


def scratch_of(jobs: int, buckets: int, machines: int) -> Scratch:
    """Allocate the working memory of rounds."""
    return Scratch(
        offers=np.empty(buckets, dtype=ENTRY),
        aside=np.empty(jobs, dtype=np.int64),
        chosen=np.empty(machines, dtype=np.int64),
        counts=np.empty(machines, dtype=np.int64),
        slot=np.empty(machines, dtype=np.int64),
        bare=np.empty((machines, 3), dtype=np.int64),
        spare=np.empty((machines, 3), dtype=np.int64),
        after=np.empty((machines, 3), dtype=np.int64),
        reach=np.empty((1, 3), dtype=np.int64),
        hosted=np.zeros((STUCK_ROWS, machines), dtype=np.int64),
        hosted_for=np.full(STUCK_ROWS, NONE, dtype=np.int64),
        bare_room=np.empty(machines),
        after_room=np.empty(machines),
        picks=np.empty(jobs, dtype=ENTRY),
        shed=np.empty(jobs, dtype=np.bool_),
    )
