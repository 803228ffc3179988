"""Compiled placement of a list of gangs, in order, on a cluster's free capacity; and the numbering of distinct rows.

Called by `scheduler_core.queue` for rounds with thousands of waiting jobs; the compiled engine calls `distinct`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler_core import cluster as machinery
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.kernels.kernel import SOURCES, Compiled, kept, kernel
from scheduler_core.kernels.placing import fits_free, placed, shift
from scheduler_core.kernels.state import (
    NONE,
    PLACEMENT_CODES,
    Cluster,
    Queue,
    Scratch,
    cluster_of,
    empty_queue,
    scratch_of,
)
from scheduler_core.types import IntArray

__all__ = ["distinct", "place_in_order"]

MIX = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)
FEWEST_SLOTS: Final = 1024
"""Initial number of slots of the hash table of distinct rows, a power of two."""


@kernel
def _hashed(rows: IntArray, row: int) -> np.uint64:
    """Return the hash of one row of a matrix."""
    value = np.uint64(0)
    for column in range(rows.shape[1]):
        value = (value ^ np.uint64(rows[row, column])) * MIX
        value ^= value >> SHIFT
    return value


@kernel
def _equal(rows: IntArray, one: int, other: int) -> bool:
    equal = True
    for column in range(rows.shape[1]):
        equal &= rows[one, column] == rows[other, column]
    return equal


def _numbering(sources: str) -> Compiled:
    @kept
    def numbered(rows: IntArray, table: IntArray, codes: IntArray, first: IntArray) -> int:
        """Write each row's number to `codes`; return the count of distinct rows, NONE if `table` is too small.

        `table` is the hash table. The index of the first row with each number is written to `first`.
        """
        _ = sources  # part of the cache key
        size, count = len(table), 0
        for row in range(len(rows)):
            slot = np.int64(_hashed(rows, row) & np.uint64(size - 1))
            while table[slot] >= 0 and not _equal(rows, first[table[slot]], row):
                slot = (slot + 1) & (size - 1)
            if table[slot] < 0:
                if 2 * count == size:
                    return NONE
                table[slot] = count
                first[count] = row
                count += 1
            codes[row] = table[slot]
        return count

    return numbered


_numbered = _numbering(SOURCES)


def distinct(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the number of each row of a matrix, equal for equal rows, and the first row of each number.

    >>> [part.tolist() for part in distinct(np.array([[5, 1], [7, 1], [5, 1]]))]
    [[0, 1, 0], [0, 1]]
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    codes, first = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    slots, count = FEWEST_SLOTS, NONE
    while count == NONE:
        count = _numbered(rows, np.full(slots, NONE, dtype=np.int64), codes, first)
        slots *= 8
    return codes, first[:count].copy()


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
        _ = sources  # part of the cache key
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
    """Place gangs one after another, None for each that does not fit; `cluster` is not changed.

    Raises
    ------
    BadInput
        If no compiled placement has the name `placement`.

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
    queue = empty_queue(np.empty(0), rows[first], np.arange(len(first)))
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
