"""Arrays of compiled scheduling rounds: jobs, buckets of jobs with equal demands, machines, runs and totals.

Used by every kernel of this folder and of the compiled engine.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from scheduler_core import cluster as machinery
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "END",
    "JOB",
    "NONE",
    "PLACEMENT_CODES",
    "RUN",
    "Breaks",
    "Cluster",
    "Log",
    "Queue",
    "Records",
    "Rules",
    "State",
    "buckets_of",
    "cluster_of",
    "scratch_of",
    "tally_of",
]

Records = Any  # an array with one of the dtypes below; mypy cannot check its fields


NONE: Final = -1
"""Code for no job, no bucket or no head of the queue."""

JOB: Final = np.dtype(
    [
        ("arrive_s", "f8"),
        ("run_s", "f8"),
        ("granted_run_s", "f8"),
        ("predicted_s", "f8"),  # infinity if unknown
        ("owed_s", "f8"),  # seconds of the next run that the restart takes, without progress
        ("granted_key", "f8"),  # constant part of the queue key, with the granted amounts
        ("full_key", "f8"),  # constant part of the queue key, with the full request
        ("rank", "f8"),  # queue key while the job waits
        ("left_s", "f8"),  # duration of the next start
        ("attained_s", "f8"),
        ("finished_s", "f8"),
        ("user", "i8"),
        ("granted_bucket", "i8"),
        ("full_bucket", "i8"),
        ("child", "i8"),  # links of the job in its bucket's heap
        ("sibling", "i8"),
        ("spread", "i8"),  # row of `Rules.remaining`
        ("place", "i8"),  # position of the job's run in the heap of ends
        ("full", "?"),
        ("dies", "?"),
        ("fails", "?"),
        ("never_fits", "?"),
    ],
    align=True,
)

BUCKET: Final = np.dtype(
    [
        ("instances", "i8"),
        ("gpu_type", "i8"),
        ("gang_gpus", "i8"),  # milli-GPUs of the whole gang
        ("user", "i8"),  # user of the jobs, if the policy orders by users' shares
        ("shape", "i8"),  # number of the demand, equal for buckets that differ only by user
        ("top", "i8"),  # first job of the bucket's heap
        ("place", "i8"),  # position of the bucket in `Queue.filled`
        ("possible", "?"),  # whether the gang fits the empty cluster
        ("passed", "i1"),  # state of the bucket in the current round
    ],
    align=True,
)

RUN: Final = np.dtype(
    [
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("job", "i8"),
        ("first_host", "i8"),  # index of the run's first machine in `Log.hosts`, up to the next run's index
        ("full", "?"),
        ("ending", "i1"),
    ],
    align=True,
)

END: Final = np.dtype([("end_s", "f8"), ("run", "i8")], align=True)
ENTRY: Final = np.dtype([("value", "f8"), ("tie", "i8"), ("what", "i8")], align=True)

TALLY: Final = np.dtype(
    [
        ("now_s", "f8"),
        ("stranded_gpu_s", "f8"),
        ("waiting", "i8"),
        ("waiting_hosts", "i8"),  # upper bound of the number of machines that all waiting jobs would use
        ("smallest_gpus", "i8"),  # milli-GPUs of the smallest waiting gang with GPUs, 0 if none; NONE: recompute
        ("filled", "i8"),
        ("releases", "i8"),  # number of releases so far
        ("settled", "i8"),  # number of filled buckets known not to fit
        ("running", "i8"),
        ("runs", "i8"),
        ("hosts", "i8"),
        ("arrivals", "i8"),
        ("ups", "i8"),
        ("downs", "i8"),
        ("head", "i8"),
        ("overtaken", "i8"),
        ("offers", "i8"),
        ("aside", "i8"),
        ("heaped", "i8"),  # number of `Scratch.picks` still in the heap
    ],
    align=True,
)


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
    """The queue: a heap of waiting jobs for each bucket; `filled` lists the buckets with waiting jobs, in any order."""

    jobs: Records
    buckets: Records
    units: IntArray  # (buckets, 3) demand per instance
    filled: IntArray
    shut: IntArray  # by shape of bucket: the value of `releases` when it last did not fit
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


class Log(NamedTuple):
    """Runs in order of their starts, their machines, and a heap of the runs by end time."""

    runs: Records
    hosts: IntArray  # machines of all runs, one run after the other
    counts: IntArray  # number of instances on each of `hosts`
    ends: Records


class Breaks(NamedTuple):
    """Outages: their times and machines, ordered by begin (`down`) and ordered by end (`up`)."""

    down_s: FloatArray
    down: IntArray
    up_s: FloatArray
    up: IntArray


class Scratch(NamedTuple):
    """Working memory of a round; no value is kept for the next round."""

    offers: Records  # heap of buckets by the keys of their first jobs
    aside: IntArray  # jobs that stay queued and are not offered again
    passed: IntArray
    chosen: IntArray  # (machines,) indices of the machines chosen for a gang, in filling order
    counts: IntArray  # (machines,) instances on each machine of `chosen`
    slot: IntArray  # (machines,) working values of a placement
    bare: IntArray  # (machines, 3) hypothetical free capacity; so are `spare` and `after`
    spare: IntArray
    after: IntArray
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
    return buckets


def tally_of() -> Records:
    """Create the totals of an empty simulation."""
    tally = np.zeros(1, dtype=TALLY)
    tally["head"] = NONE
    return tally


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
    )


def scratch_of(jobs: int, buckets: int, machines: int) -> Scratch:
    """Allocate the working memory of rounds."""
    return Scratch(
        offers=np.empty(buckets, dtype=ENTRY),
        aside=np.empty(jobs, dtype=np.int64),
        passed=np.empty(buckets, dtype=np.int64),
        chosen=np.empty(machines, dtype=np.int64),
        counts=np.empty(machines, dtype=np.int64),
        slot=np.empty(machines, dtype=np.int64),
        bare=np.empty((machines, 3), dtype=np.int64),
        spare=np.empty((machines, 3), dtype=np.int64),
        after=np.empty((machines, 3), dtype=np.int64),
        bare_room=np.empty(machines),
        after_room=np.empty(machines),
        picks=np.empty(jobs, dtype=ENTRY),
        shed=np.empty(jobs, dtype=np.bool_),
    )
