"""What the loop knows at a moment, as records: jobs, buckets of equal demands, machines, runs, and one tally.

Only the layout is here. Filled by `setup`; read and written by every kernel.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from scheduler_core import cluster as machinery
from scheduler_core.types import BoolArray, FloatArray, IntArray

Records = Any  # an array of one of the records below, whose fields mypy does not know


NONE: Final = -1
"""No job, no bucket, no head."""

JOB: Final = np.dtype(
    [
        ("arrive_s", "f8"),
        ("run_s", "f8"),
        ("granted_run_s", "f8"),
        ("predicted_s", "f8"),  # infinite where nothing is known
        ("granted_key", "f8"),  # what the policy's key is made of: with the amounts granted, and with the full request
        ("full_key", "f8"),
        ("rank", "f8"),  # the effective key while it waits
        ("left_s", "f8"),  # what the next start has to run
        ("attained_s", "f8"),
        ("finished_s", "f8"),
        ("user", "i8"),
        ("granted_bucket", "i8"),
        ("full_bucket", "i8"),
        ("child", "i8"),  # links of the heap of its bucket
        ("sibling", "i8"),
        ("place", "i8"),  # where its run is in the heap of ends
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
        ("user", "i8"),  # whose jobs it holds, where shares are by user
        ("shape", "i8"),  # the same for the buckets of all users who ask for the same
        ("top", "i8"),  # the first job of its heap
        ("place", "i8"),  # where it is among the filled ones
        ("possible", "?"),  # fits the empty cluster
        ("passed", "i1"),  # what this round has found out about it
    ],
    align=True,
)

RUN: Final = np.dtype(
    [
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("job", "i8"),
        ("first_host", "i8"),  # the next run's is where its hosts stop
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
        ("waiting_hosts", "i8"),  # the most machines that all waiting jobs could hold
        ("smallest_gpus", "i8"),  # of a waiting gang that asks for any, 0 without; NONE: to be looked up
        ("filled", "i8"),
        ("releases", "i8"),  # how often something was given back
        ("settled", "i8"),  # of the filled buckets, how many are known not to fit
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
        ("heaped", "i8"),  # of the picks, how many are still in the heap
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
    """Who waits: a heap of jobs per bucket, and the filled buckets in no particular order."""

    jobs: Records
    buckets: Records
    units: IntArray  # (buckets, 3) per instance
    filled: IntArray
    shut: IntArray  # by shape: the number of releases at which it was last found not to fit
    tally: Records  # one record


class Cluster(NamedTuple):
    """What is free; a machine that is away has nothing free."""

    capacity: IntArray  # (machines, 3)
    free: IntArray
    room: FloatArray  # (machines,) free as shares of the largest machine, summed
    largest: FloatArray  # (3,)
    of_type: BoolArray  # (types, machines) which are of a type, or of one of the several it names
    away: IntArray  # how many outages hold
    total_free: IntArray  # (3,)
    total: FloatArray  # (3,) capacity of all, at least 1
    held: IntArray  # (users, 3)


class Log(NamedTuple):
    """What has been started, in order, and the ends to come."""

    runs: Records
    hosts: IntArray
    counts: IntArray
    ends: Records


class Breaks(NamedTuple):
    """Outages in the order of their begins, and in the order of their ends."""

    down_s: FloatArray
    down: IntArray
    up_s: FloatArray
    up: IntArray


class Scratch(NamedTuple):
    """What a round writes on; nothing is kept from one to the next."""

    offers: Records  # a heap of buckets by their first jobs
    aside: IntArray  # jobs that wait on, but are not offered again
    passed: IntArray
    chosen: IntArray  # (machines,) where a gang goes, in the order of use
    counts: IntArray
    slot: IntArray
    bare: IntArray  # (machines, 3) rooms other than what is free
    spare: IntArray
    after: IntArray
    bare_room: FloatArray  # (machines,)
    after_room: FloatArray
    picks: Records  # running runs by a number each has at the moment
    shed: BoolArray


class State(NamedTuple):
    """All of it."""

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
    """Lay out the empty buckets of distinct rows: units (3), instances, GPU type, user."""
    buckets = np.zeros(len(rows), dtype=BUCKET)
    buckets["instances"], buckets["gpu_type"] = rows[:, 3], rows[:, 4]
    buckets["gang_gpus"] = rows[:, 2] * rows[:, 3]
    buckets["shape"] = shapes
    buckets["top"] = NONE
    return buckets


def tally_of() -> Records:
    """Make the tally of nothing done yet."""
    tally = np.zeros(1, dtype=TALLY)
    tally["head"] = NONE
    return tally


def cluster_of(machines: machinery.Cluster, gpu_types: tuple[str, ...], users: int) -> Cluster:
    """Lay a cluster out as it is."""
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
    """Make what a round writes on."""
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
