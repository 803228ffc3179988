"""One round without events: an ordered list of gangs placed on what is free, each that fits.

For a real scheduler's round over thousands of pending jobs; the simulator's rounds are in `walk`.
Called by `scheduler_core.offers`.
"""

from collections.abc import Sequence

import numpy as np

from scheduler_core import cluster as machinery
from scheduler_core.demand import ANY_GPU_TYPE
from scheduler_core.errors import BadInput
from scheduler_core.kernels.demands import distinct
from scheduler_core.kernels.fitting import fits_free
from scheduler_core.kernels.kernel import SOURCES, Compiled, kept
from scheduler_core.kernels.placing import placed, shift
from scheduler_core.kernels.room import PLACEMENT_CODES, buckets_of, cluster_of, scratch_of, tally_of
from scheduler_core.kernels.state import NONE, Cluster, Queue, Scratch
from scheduler_core.types import IntArray


def _filling(sources: str) -> Compiled:
    @kept
    def filled(
        placement: int,
        cluster: Cluster,
        queue: Queue,
        scratch: Scratch,
        codes: IntArray,
        offsets: IntArray,
        hosts: IntArray,
        counts: IntArray,
    ) -> None:
        _ = sources  # part of what the compiled code is kept under
        offsets[0] = 0
        for row in range(len(codes)):
            used = 0
            if fits_free(cluster, queue, codes[row]):
                used = placed(placement, cluster, cluster.free, cluster.room, queue, codes[row], scratch)
            for place in range(used):
                hosts[offsets[row] + place] = scratch.chosen[place]
                counts[offsets[row] + place] = scratch.counts[place]
                shift(cluster, scratch.chosen[place], queue.units, codes[row], -scratch.counts[place])
            offsets[row + 1] = offsets[row] + used

    return filled


_filled = _filling(SOURCES)


def place_in_order(
    demands: Sequence[machinery.Demand], cluster: machinery.Cluster, placement: str = "best_fit"
) -> list[machinery.Allocation | None]:
    """Place every gang that fits, in order, passing over those that do not (None); changes nothing.

    Raises
    ------
    BadInput
        If no placement is called so.

    >>> gang = machinery.Demand(units=(6000, 4096, 500), instances=20)
    >>> [a and a.counts for a in place_in_order([gang] * 4, machinery.Cluster(machinery.paper_machines()))]
    [((0, 16), (1, 4)), ((1, 12), (2, 8)), ((2, 8), (3, 12)), None]
    """
    if placement not in PLACEMENT_CODES:
        raise BadInput(f"placement: found {placement!r}, expected one of {', '.join(sorted(PLACEMENT_CODES))}")
    types = tuple(sorted({demand.gpu_type for demand in demands if demand.gpu_type is not None}))
    code = {name: number for number, name in enumerate(types)} | {None: ANY_GPU_TYPE}
    rows = np.array(
        [(*demand.units, demand.instances, code[demand.gpu_type], 0) for demand in demands], dtype=np.int64
    ).reshape(-1, 6)
    codes, first = distinct(rows)
    queue = Queue(
        jobs=np.empty(0),
        buckets=buckets_of(rows[first], np.arange(len(first))),
        units=np.ascontiguousarray(rows[first, :3]),
        filled=np.empty(0, dtype=np.int64),
        shut=np.full(len(first), NONE, dtype=np.int64),
        tally=tally_of(),
    )
    machines = len(cluster.machines)
    most = int(np.minimum(rows[:, 3], machines).sum())
    offsets, hosts, counts = (np.empty(size, dtype=np.int64) for size in (len(rows) + 1, most, most))
    laid_out, scratch = cluster_of(cluster, types, 1), scratch_of(0, 0, machines)
    _filled(PLACEMENT_CODES[placement], laid_out, queue, scratch, codes, offsets, hosts, counts)
    used = list(zip(hosts.tolist(), counts.tolist(), strict=True)) if most else []
    ends = offsets.tolist()
    return [
        machinery.Allocation(demand=demand, counts=tuple(used[ends[row] : ends[row + 1]]))
        if ends[row + 1] > ends[row]
        else None
        for row, demand in enumerate(demands)
    ]
