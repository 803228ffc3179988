"""Placements: which machines a gang that fits goes to, and which of their GPUs.

A gang may be split over machines, an instance may not. Among equal machines the first one is chosen. The result is
written to `Scratch`: machines to `chosen`, instances to `counts`, milli-GPUs by device to `taken`.

To add a placement, rank machines in `_rank` (by devices: score them in `scores`) and name it in
`scheduler_core.placement.PLACEMENTS`.
"""

import math

from scheduler_core.kernels.kernel import inlined, kernel
from scheduler_core.kernels.rooms import copied_on, hosted, open_to, share_free, tightest
from scheduler_core.kernels.sharing import place_by_device
from scheduler_core.kernels.state import NONE, Cluster, Queue, Room, Scratch, State

__all__ = ["BY_DEVICE", "placed"]

FIRST_FIT = 0
BEST_FIT = 1
CONSOLIDATE = 2
SPREAD = 3
BY_DEVICE = 4
"""From this code on, placements choose machines and devices by a score; see `sharing`."""

MOST_FREENESS = 2.0**40
"""A number above any `Room.freeness` and any number of instances, and small enough for exact sums with them."""


@inlined
def _able(cluster: Cluster, room: Room, queue: Queue, at: int, machine: int) -> int:
    """Return how many instances of a gang a machine can host, at most the size of the gang."""
    gang = queue.buckets[at]
    count = hosted(room, machine, queue, at, gang.instances)
    return count if count > 0 and open_to(cluster, machine, gang.gpu_type) else 0


@kernel
def _rank(placement: int, cluster: Cluster, room: Room, queue: Queue, at: int, scratch: Scratch) -> None:
    """Write to `after.freeness` the rank of each machine in the filling order of a gang: the smallest is filled first.

    `first_fit` fills machines as listed, `best_fit` those with least free capacity (`Room.freeness`), to keep large
    blocks for large jobs. `consolidate` uses the fullest machine that hosts the whole gang, else first the machines
    that host most instances. `spread` puts one instance at a time on the freest machine, which balances load.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 ("sort servers by free resources ascending"). Jeon et al.: Analysis of Large-Scale
    Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019 (locality of gangs); Xiao et al.: Gandiva,
    OSDI 2018 (packing). `LeastAllocated` scoring in Kubernetes and `CR_LLN` in Slurm spread the same way.
    """
    rank, able, instances = scratch.after.freeness, scratch.able, queue.buckets[at].instances
    for machine in range(len(rank)):
        able[machine] = NONE  # counted when it is needed, except to consolidate
        rank[machine] = room.freeness[machine]
    for machine in range(len(rank) if placement != BEST_FIT else 0):
        if placement == FIRST_FIT:
            rank[machine] = machine
        elif placement == SPREAD:
            copied_on(room, scratch.after, machine)
            rank[machine] = -room.freeness[machine]
            scratch.slot[machine] = NONE
        elif placement == CONSOLIDATE:
            able[machine] = _able(cluster, room, queue, at, machine)
            if able[machine] < instances:
                rank[machine] = MOST_FREENESS - able[machine]


@kernel
def _fill(placement: int, cluster: Cluster, room: Room, queue: Queue, at: int, scratch: Scratch) -> int:
    """Choose machines by `_rank` until they host the gang; return how many."""
    after, able, left, used = scratch.after, scratch.able, queue.buckets[at].instances, 0
    rank, machines = after.freeness, len(room.free)
    _rank(placement, cluster, room, queue, at, scratch)
    while left > 0:
        best, least = NONE, math.inf
        for machine in range(machines):
            if rank[machine] < least:
                if able[machine] == NONE:
                    able[machine] = _able(cluster, room, queue, at, machine)
                if able[machine] > 0:
                    best, least = machine, rank[machine]
        place, count = NONE, min(left, able[best])
        if placement == SPREAD:
            place, count = scratch.slot[best], 1
            for resource in range(3):
                after.free[best, resource] -= queue.units[at, resource]
            rank[best] = -share_free(after.free, best, cluster.largest)
        if place == NONE:
            place = used
            scratch.slot[best] = used
            scratch.chosen[used] = best
            scratch.counts[used] = 0
            used += 1
        scratch.counts[place] += count
        left -= count
        able[best] = able[best] - 1 if placement == SPREAD else 0
    return used


@kernel
def _choose_devices(room: Room, queue: Queue, at: int, scratch: Scratch, used: int) -> None:
    """Choose devices on the `used` chosen machines by best fit: the device with the least sufficient free GPU.

    Instances of whole GPUs take the idle devices of lowest index.
    """
    bucket = queue.buckets[at]
    for place in range(used):
        machine = scratch.chosen[place]
        for device in range(room.devices.shape[1]):
            scratch.taken[place, device] = 0
        for _ in range(scratch.counts[place] * bucket.count):
            device = tightest(room, machine, bucket.milli)
            scratch.taken[place, device] += bucket.milli
            room.devices[machine, device] -= bucket.milli
        for device in range(room.devices.shape[1]):
            room.devices[machine, device] += scratch.taken[place, device]  # `shift` takes them


@kernel
def placed(state: State, room: Room, at: int) -> int:
    """Choose machines and devices for a gang that fits `room`; return the number of machines."""
    placement, cluster, queue, scratch = state.rules.placement, state.cluster, state.queue, state.scratch
    if placement >= BY_DEVICE:
        return int(place_by_device(state, room, at))
    used = _fill(placement, cluster, room, queue, at, scratch)
    if room.devices.shape[1] > 0:
        _choose_devices(room, queue, at, scratch, used)
    return int(used)
