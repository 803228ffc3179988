"""Records of compiled rounds (jobs, buckets of equal demands, machines, runs, totals), and how to make them.

No job is placed here. Read and written by every kernel of this folder and of the compiled engine.
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

Records = Any  # an array of one of the records below, without types in mypy


NONE: Final = -1
"""No job, no bucket, no head."""

JOB: Final = np.dtype(
    [
        ("arrive_s", "f8"),
        ("run_s", "f8"),
        ("granted_run_s", "f8"),
        ("predicted_s", "f8"),  # infinite if unknown
        ("granted_key", "f8"),  # base of the policy's key: with the granted amounts, and with the full request
        ("full_key", "f8"),
        ("rank", "f8"),  # its key while it waits
        ("left_s", "f8"),  # duration of the next start
        ("attained_s", "f8"),
        ("finished_s", "f8"),
        ("user", "i8"),
        ("granted_bucket", "i8"),
        ("full_bucket", "i8"),
        ("child", "i8"),  # links of the heap of its bucket
        ("sibling", "i8"),
        ("place", "i8"),  # position of its run in the heap of ends
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
        ("user", "i8"),  # user of its jobs, where shares are by user
        ("shape", "i8"),  # equal for buckets of all users with the same demand
        ("top", "i8"),  # the first job of its heap
        ("place", "i8"),  # position among the filled buckets
        ("possible", "?"),  # fits the empty cluster
        ("passed", "i1"),  # its state in this round
    ],
    align=True,
)

RUN: Final = np.dtype(
    [
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("job", "i8"),
        ("first_host", "i8"),  # its hosts end where the next run's begin
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
        ("waiting_hosts", "i8"),  # upper bound on machines used by all waiting jobs
        ("smallest_gpus", "i8"),  # smallest gang of waiting jobs with GPUs, 0 without; NONE: recompute
        ("filled", "i8"),
        ("releases", "i8"),  # number of releases
        ("settled", "i8"),  # filled buckets that are known not to fit
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
        ("heaped", "i8"),  # picks still in the heap
    ],
    align=True,
)


class Rules(NamedTuple):
    """A discipline as numbers; `overtakes` is negative where there is no bound."""

    policy: int
    placement: int
    aging: float
    overtakes: int
    easy: bool
    depth: int
    preempting: bool
    checkpoint_s: float
    quantum_s: float
    horizon_s: float


class Queue(NamedTuple):
    """The queue: a heap of waiting jobs per bucket, and the filled buckets in any order."""

    jobs: Records
    buckets: Records
    units: IntArray  # (buckets, 3) per instance
    filled: IntArray
    shut: IntArray  # by shape: the value of `releases` when it last did not fit
    tally: Records  # one record


class Cluster(NamedTuple):
    """Free capacity; a machine that is down has nothing free."""

    capacity: IntArray  # (machines, 3)
    free: IntArray
    room: FloatArray  # (machines,) free as shares of the largest machine, summed
    largest: FloatArray  # (3,)
    of_type: BoolArray  # (types, machines) whether of the type, or of one of several
    away: IntArray  # number of outages at the moment
    total_free: IntArray  # (3,)
    total: FloatArray  # (3,) capacity of all, at least 1
    held: IntArray  # (users, 3)


class Log(NamedTuple):
    """Started runs in order, and the heap of ends."""

    runs: Records
    hosts: IntArray
    counts: IntArray
    ends: Records


class Breaks(NamedTuple):
    """Outages ordered by begin, and ordered by end."""

    down_s: FloatArray
    down: IntArray
    up_s: FloatArray
    up: IntArray


class Scratch(NamedTuple):
    """Working memory of a round; nothing is kept for the next."""

    offers: Records  # a heap of buckets by their first jobs
    aside: IntArray  # jobs that stay queued and are not offered again
    passed: IntArray
    chosen: IntArray  # (machines,) of a gang, in order of use
    counts: IntArray
    slot: IntArray
    bare: IntArray  # (machines, 3) hypothetical rooms
    spare: IntArray
    after: IntArray
    bare_room: FloatArray  # (machines,)
    after_room: FloatArray
    picks: Records  # heap of running jobs by key
    shed: BoolArray


class State(NamedTuple):
    """All records of a simulation."""

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
    """Make empty buckets of distinct rows: units (3), instances, GPU type, user."""
    buckets = np.zeros(len(rows), dtype=BUCKET)
    buckets["instances"], buckets["gpu_type"] = rows[:, 3], rows[:, 4]
    buckets["gang_gpus"] = rows[:, 2] * rows[:, 3]
    buckets["shape"] = shapes
    buckets["top"] = NONE
    return buckets


def tally_of() -> Records:
    """Make the initial tally."""
    tally = np.zeros(1, dtype=TALLY)
    tally["head"] = NONE
    return tally


def cluster_of(machines: machinery.Cluster, gpu_types: tuple[str, ...], users: int) -> Cluster:
    """Convert a cluster in its current state."""
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
