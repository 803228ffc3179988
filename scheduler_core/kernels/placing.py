"""Placements: which machines a gang that fits goes to, written in the order of their use. The same as `placement`'s.

Nothing is taken here (`starts` does). Called by `starts`, `backfill` and `ordered`.
"""

import math

from scheduler_core.kernels.fitting import copy_room, hosted, open_to, takes_one
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.state import NONE, Cluster, Queue, Scratch
from scheduler_core.types import FloatArray, IntArray

FIRST_FIT = 0
BEST_FIT = 1
CONSOLIDATE = 2
SPREAD = 3


@kernel
def share_free(free: IntArray, machine: int, largest: FloatArray) -> float:
    """Return what a machine has free, as shares of the largest machine, summed in order as numpy sums three."""
    return float(
        free[machine, 0] / largest[0] + free[machine, 1] / largest[1] + free[machine, 2] / largest[2],
    )


@kernel
def _first_fit(cluster: Cluster, free: IntArray, queue: Queue, at: int, scratch: Scratch) -> int:
    gang = queue.buckets[at]
    left, used = gang.instances, 0
    for machine in range(len(free)):
        if left == 0:
            break
        if not open_to(cluster, machine, gang.gpu_type):
            continue
        count = hosted(free, machine, queue.units, at, left)
        if count > 0:
            scratch.chosen[used] = machine
            scratch.counts[used] = count
            used += 1
            left -= count
    return used


@kernel
def _best_fit(cluster: Cluster, free: IntArray, room: FloatArray, queue: Queue, at: int, scratch: Scratch) -> int:
    """Fill the machine with the least room, then the one with the next least, and so on."""
    gang = queue.buckets[at]
    left, used = gang.instances, 0
    last_room, last = -math.inf, NONE
    while left > 0:
        best = NONE
        for machine in range(len(free)):
            if best != NONE and room[machine] >= room[best]:
                continue
            if room[machine] < last_room or (room[machine] == last_room and machine <= last):
                continue
            if open_to(cluster, machine, gang.gpu_type) and takes_one(free, machine, queue.units, at):
                best = machine
        last_room, last = room[best], best
        scratch.chosen[used] = best
        scratch.counts[used] = hosted(free, best, queue.units, at, left)
        left -= scratch.counts[used]
        used += 1
    return used


@kernel
def _consolidate(cluster: Cluster, free: IntArray, room: FloatArray, queue: Queue, at: int, scratch: Scratch) -> int:
    """Take the fullest machine that hosts the whole gang; without one, fill those that host most of it."""
    gang = queue.buckets[at]
    best = NONE
    for machine in range(len(free)):
        count = hosted(free, machine, queue.units, at, gang.instances)
        scratch.slot[machine] = count if open_to(cluster, machine, gang.gpu_type) else 0
        if scratch.slot[machine] == gang.instances and (best == NONE or room[machine] < room[best]):
            best = machine
    if best != NONE:
        scratch.chosen[0] = best
        scratch.counts[0] = gang.instances
        return 1
    left, used = gang.instances, 0
    while left > 0:
        best = 0
        for machine in range(1, len(free)):
            if scratch.slot[machine] > scratch.slot[best]:
                best = machine
        scratch.chosen[used] = best
        scratch.counts[used] = min(left, scratch.slot[best])
        left -= scratch.counts[used]
        scratch.slot[best] = 0
        used += 1
    return used


@kernel
def _spread(cluster: Cluster, free: IntArray, room: FloatArray, queue: Queue, at: int, scratch: Scratch) -> int:
    """Give each instance to the emptiest machine that takes it, after what the gang itself has taken."""
    gang = queue.buckets[at]
    after, after_room = scratch.after, scratch.after_room
    copy_room(free, after)
    for machine in range(len(free)):
        after_room[machine] = room[machine]
        scratch.slot[machine] = NONE
    used = 0
    for _ in range(gang.instances):
        best = NONE
        for machine in range(len(free)):
            if best != NONE and after_room[machine] <= after_room[best]:
                continue
            if open_to(cluster, machine, gang.gpu_type) and takes_one(after, machine, queue.units, at):
                best = machine
        for resource in range(3):
            after[best, resource] -= queue.units[at, resource]
        after_room[best] = share_free(after, best, cluster.largest)
        if scratch.slot[best] == NONE:
            scratch.slot[best] = used
            scratch.chosen[used] = best
            scratch.counts[used] = 0
            used += 1
        scratch.counts[scratch.slot[best]] += 1
    return used


@kernel
def placed(
    placement: int, cluster: Cluster, free: IntArray, room: FloatArray, queue: Queue, at: int, scratch: Scratch
) -> int:
    """Choose machines for a gang that fits `free`, of which `room` are the shares; return how many machines it uses."""
    if placement == FIRST_FIT:
        return int(_first_fit(cluster, free, queue, at, scratch))
    if placement == BEST_FIT:
        return int(_best_fit(cluster, free, room, queue, at, scratch))
    if placement == CONSOLIDATE:
        return int(_consolidate(cluster, free, room, queue, at, scratch))
    return int(_spread(cluster, free, room, queue, at, scratch))


@kernel
def shift(cluster: Cluster, machine: int, units: IntArray, at: int, count: int) -> None:
    """Give `count` instances' units to what a machine has free; a negative count takes them."""
    for resource in range(3):
        moved = units[at, resource] * count
        cluster.free[machine, resource] += moved
        cluster.total_free[resource] += moved
    cluster.room[machine] = share_free(cluster.free, machine, cluster.largest)
