"""Whether a gang fits free capacity, current or hypothetical, and how allocations change it.

`at` is the index of the gang's bucket, which gives its demand. GPUs that are shared device by device bound the
instances of a machine as `devices.slots` does.
"""

from scheduler_core.kernels.kernel import inlined, kernel
from scheduler_core.kernels.state import NONE, Cluster, Queue, Room
from scheduler_core.types import FloatArray, IntArray

__all__ = ["copied", "missing_in"]

WHOLE = 1000
"""Milli-GPUs of one device."""


@kernel
def copied(room: Room, into: Room) -> None:
    """Copy free capacity, so that a placement may change the copy."""
    for machine in range(len(room.free)):
        copied_on(room, into, machine)


@kernel
def copied_on(room: Room, into: Room, machine: int) -> None:
    """Copy the free capacity of one machine."""
    for resource in range(3):
        into.free[machine, resource] = room.free[machine, resource]
    into.freeness[machine] = room.freeness[machine]
    for device in range(room.devices.shape[1]):
        into.devices[machine, device] = room.devices[machine, device]
    for size in range(room.tenants.shape[1]):
        into.tenants[machine, size] = room.tenants[machine, size]


@inlined
def hosted_pooled(free: IntArray, machine: int, units: IntArray, at: int, instances: int, resources: int) -> int:
    """Return how many instances fit the first `resources` free units of a machine, at most `instances`."""
    count = instances
    for resource in range(resources):
        # Most machines can host all instances: divide only if one cannot.
        if units[at, resource] * count > free[machine, resource]:
            count = free[machine, resource] // units[at, resource]
    return count


@kernel
def hosted_by_device(room: Room, machine: int, queue: Queue, at: int, instances: int) -> int:
    """Return how many instances a machine could host, at most `instances`, if GPUs are shared by device."""
    bucket = queue.buckets[at]
    count = hosted_pooled(room.free, machine, queue.units, at, instances, 2)
    if count == 0 or bucket.count == 0:
        return int(count)
    slots = 0
    for device in range(room.devices.shape[1]):
        slots += room.devices[machine, device] // bucket.milli
        if slots >= count * bucket.count:
            return int(count)
    return int(slots // bucket.count)


@inlined
def hosted(room: Room, machine: int, queue: Queue, at: int, instances: int) -> int:
    """Return how many instances a machine could host, at most `instances`."""
    if room.devices.shape[1] > 0:
        return int(hosted_by_device(room, machine, queue, at, instances))
    if instances == 1:
        return int(takes_one(room.free, machine, queue.units, at))
    return int(hosted_pooled(room.free, machine, queue.units, at, instances, 3))


@kernel
def takes_one(free: IntArray, machine: int, units: IntArray, at: int) -> bool:
    """Return whether a machine with pooled GPUs could host one instance of bucket `at`."""
    return bool(  # GPUs first, which machines lack most often
        units[at, 2] <= free[machine, 2] and units[at, 0] <= free[machine, 0] and units[at, 1] <= free[machine, 1]
    )


@kernel
def open_to(cluster: Cluster, machine: int, gpu_type: int) -> bool:
    """Return whether a machine is up and has the requested GPU type; a negative type allows any machine."""
    return bool(cluster.away[machine] == 0 and (gpu_type < 0 or cluster.of_type[gpu_type, machine]))


@kernel
def missing_in(cluster: Cluster, room: Room, queue: Queue, at: int) -> int:
    """Return how many instances of the gang do not fit `room`, 0 if the whole gang fits."""
    instances, gpu_type = queue.buckets[at].instances, queue.buckets[at].gpu_type
    missing = instances
    for machine in range(len(room.free)):
        if open_to(cluster, machine, gpu_type):
            missing -= hosted(room, machine, queue, at, instances)
            if missing <= 0:
                return 0
    return int(missing)


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
            more += hosted(cluster.now, machine, queue, at, gang.instances)
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
        missing = missing_in(cluster, cluster.now, queue, at)
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
def moved(room: Room, machine: int, queue: Queue, at: int, count: int, taken: IntArray, row: int) -> None:
    """Release `count` instances on a machine, except in its freeness; a negative count allocates them.

    Row `row` of `taken` holds the milli-GPUs that they have of each device.
    """
    for resource in range(3):
        room.free[machine, resource] += queue.units[at, resource] * count
    if room.devices.shape[1] > 0 and queue.buckets[at].count > 0:
        sign = 1 if count > 0 else -1
        for device in range(room.devices.shape[1]):
            room.devices[machine, device] += sign * taken[row, device]
        room.tenants[machine, tenancy(queue, at)] -= count


@kernel
def shift(
    room: Room, largest: FloatArray, machine: int, queue: Queue, at: int, count: int, taken: IntArray, row: int
) -> None:
    """Release `count` instances on a machine; a negative count allocates them; see `moved`."""
    moved(room, machine, queue, at, count, taken, row)
    room.freeness[machine] = share_free(room.free, machine, largest)


@kernel
def tenancy(queue: Queue, at: int) -> int:
    """Return the column of `Room.tenants` for an instance with GPUs."""
    bucket = queue.buckets[at]
    return int(bucket.count if bucket.milli == WHOLE else 0)


@kernel
def tightest(room: Room, machine: int, milli: int) -> int:
    """Return the first device with the least free GPU among those with `milli` free; NONE if none has."""
    best = NONE
    for device in range(room.devices.shape[1]):
        free = room.devices[machine, device]
        if free >= milli and (best == NONE or free < room.devices[machine, best]):
            best = device
    return best
