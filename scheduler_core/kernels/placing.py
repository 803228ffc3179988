"""Compiled placement of a gang: whether it fits, and which machines it goes to, as in `placement`.

`room` and `free` (machines, 3) are free units of machines, current or hypothetical. `at` is the index of the gang's
bucket, which gives its demand. Only `shift` changes the cluster. Called by `ordered` and by the compiled engine of
`pipelines.simulation`.
"""

import math

from scheduler_core.kernels.kernel import inlined, kernel
from scheduler_core.kernels.state import BEST_FIT, CONSOLIDATE, FIRST_FIT, NONE, Cluster, Queue, Scratch
from scheduler_core.types import FloatArray, IntArray

__all__ = [
    "copy_room",
    "fits",
    "fits_free",
    "hosted",
    "hosted_in_all",
    "note_change",
    "open_to",
    "placed",
    "share_free",
    "shift",
]


@kernel
def copy_room(room: IntArray, copied: IntArray) -> None:
    """Copy free units (machines, 3) into another array, so that a placement may change the copy."""
    for machine in range(len(room)):
        for resource in range(3):
            copied[machine, resource] = room[machine, resource]


@kernel
def takes_one(room: IntArray, machine: int, units: IntArray, at: int) -> bool:
    """Return whether a machine could host one instance of bucket `at`."""
    return bool(  # GPUs first, which machines lack most often
        units[at, 2] <= room[machine, 2] and units[at, 0] <= room[machine, 0] and units[at, 1] <= room[machine, 1]
    )


@inlined
def hosted(room: IntArray, machine: int, units: IntArray, at: int, instances: int) -> int:
    """Return how many instances a machine could host, at most `instances`."""
    if instances == 1:
        return int(takes_one(room, machine, units, at))
    count = instances
    for resource in range(3):
        # Most machines can host all instances: divide only if one cannot.
        if units[at, resource] * count > room[machine, resource]:
            count = room[machine, resource] // units[at, resource]
    return count


@kernel
def open_to(cluster: Cluster, machine: int, gpu_type: int) -> bool:
    """Return whether a machine is up and has the requested GPU type; a negative type allows any machine."""
    return bool(cluster.away[machine] == 0 and (gpu_type < 0 or cluster.of_type[gpu_type, machine]))


@kernel
def hosted_in_all(cluster: Cluster, room: IntArray, queue: Queue, at: int) -> int:
    """Return the sum over machines of the instances each could host, each at most the size of the gang."""
    instances, gpu_type = queue.buckets[at].instances, queue.buckets[at].gpu_type
    count = 0
    for machine in range(len(room)):
        if open_to(cluster, machine, gpu_type):
            count += hosted(room, machine, queue.units, at, instances)
    return count


@kernel
def missing_in(cluster: Cluster, room: IntArray, queue: Queue, at: int) -> int:
    """Return how many instances of the gang do not fit the free units `room`, 0 if the whole gang fits."""
    instances, gpu_type = queue.buckets[at].instances, queue.buckets[at].gpu_type
    missing = instances
    for machine in range(len(room)):
        if open_to(cluster, machine, gpu_type):
            missing -= hosted(room, machine, queue.units, at, instances)
            if missing <= 0:
                return 0
    return int(missing)


@kernel
def fits(cluster: Cluster, room: IntArray, queue: Queue, at: int) -> bool:
    """Return whether the whole gang fits the free units `room`."""
    return bool(missing_in(cluster, room, queue, at) == 0)


@kernel
def note_change(cluster: Cluster, queue: Queue, machine: int) -> None:
    """Record that a machine may host more, so that gangs that did not fit are tried there again."""
    tally = queue.tally[0]
    cluster.changed[tally.changes % len(cluster.changed)] = machine
    tally.changes += 1


@kernel
def _hosted_since(cluster: Cluster, queue: Queue, at: int) -> int:
    """Return how many instances fit on the machines changed since the gang last did not fit.

    A machine that changed twice counts twice. Machines that did not change host no more than they did.
    """
    gang, more = queue.buckets[at], 0
    for change in range(queue.shut[gang.shape], queue.tally[0].changes):
        machine = cluster.changed[change % len(cluster.changed)]
        if open_to(cluster, machine, gang.gpu_type):
            more += hosted(cluster.free, machine, queue.units, at, gang.instances)
            if more >= queue.missing[gang.shape]:
                break
    return more


@kernel
def fits_free(cluster: Cluster, queue: Queue, at: int) -> bool:
    """Return whether the whole gang fits the current free capacity.

    A gang that did not fit since the last change of a machine is rejected at once. The total free units reject most
    others, and the changed machines most of the rest.
    """
    bucket, changes = queue.buckets[at], queue.tally[0].changes
    shut = queue.shut[bucket.shape]
    if shut == changes:
        return False
    for resource in range(3):
        if queue.units[at, resource] * bucket.instances > cluster.total_free[resource]:
            return False
    missing = 0
    if shut != NONE and changes - shut <= len(cluster.changed):
        missing = queue.missing[bucket.shape] - _hosted_since(cluster, queue, at)
    if missing <= 0:
        missing = missing_in(cluster, cluster.free, queue, at)
    if missing > 0:
        queue.shut[bucket.shape] = changes
        queue.missing[bucket.shape] = missing
    return bool(missing <= 0)


@kernel
def share_free(free: IntArray, machine: int, largest: FloatArray) -> float:
    """Return the sum over resources of a machine's free units / `largest`; in numpy's order, for equal rounding."""
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
    """Fill machines in ascending order of free capacity (`room`); return the number of machines used."""
    gang = queue.buckets[at]
    left, used = gang.instances, 0
    last_room, last = -math.inf, NONE
    while left > 0:
        best, best_room = NONE, math.inf
        for machine in range(len(free)):
            if room[machine] >= best_room:
                continue
            if room[machine] < last_room or (room[machine] == last_room and machine <= last):
                continue
            if takes_one(free, machine, queue.units, at) and open_to(cluster, machine, gang.gpu_type):
                best, best_room = machine, room[machine]
        last_room, last = best_room, best
        scratch.chosen[used] = best
        scratch.counts[used] = hosted(free, best, queue.units, at, left)
        left -= scratch.counts[used]
        used += 1
    return used


@kernel
def _consolidate(cluster: Cluster, free: IntArray, room: FloatArray, queue: Queue, at: int, scratch: Scratch) -> int:
    """Use the fullest machine that hosts the whole gang, else fill first the machines that host most instances."""
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
    """Put each instance in turn on the machine with most free capacity that still hosts it."""
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
    """Choose machines for a gang that fits `free`; return how many.

    Writes machines to `scratch.chosen`, instances to `scratch.counts`. `room` (machines,) is the `share_free` of each.
    """
    if placement == FIRST_FIT:
        return int(_first_fit(cluster, free, queue, at, scratch))
    if placement == BEST_FIT:
        return int(_best_fit(cluster, free, room, queue, at, scratch))
    if placement == CONSOLIDATE:
        return int(_consolidate(cluster, free, room, queue, at, scratch))
    return int(_spread(cluster, free, room, queue, at, scratch))


@kernel
def shift(cluster: Cluster, machine: int, units: IntArray, at: int, count: int) -> None:
    """Release `count` instances on a machine of the cluster; a negative count allocates instances."""
    for resource in range(3):
        moved = units[at, resource] * count
        cluster.free[machine, resource] += moved
        cluster.total_free[resource] += moved
    cluster.room[machine] = share_free(cluster.free, machine, cluster.largest)
