"""Arrays that compiled rounds read: machines, buckets of equal demands, and the room for one round's work.

No job is placed here. Called by `kernels.ordered` and by the compiled engine of `pipelines.simulation`.
"""

from typing import Final

import numpy as np

from scheduler_core import cluster as machinery
from scheduler_core.kernels.placing import BEST_FIT, CONSOLIDATE, FIRST_FIT, SPREAD
from scheduler_core.kernels.state import (
    BUCKET,
    ENTRY,
    NONE,
    TALLY,
    Cluster,
    Records,
    Scratch,
)
from scheduler_core.types import IntArray

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
