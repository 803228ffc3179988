"""Placements: which machines a gang that fits goes to, and which of their GPUs.

A gang may be split over machines, an instance may not. Among equal machines the first one is chosen. The result is
written to `Scratch`: machines to `chosen`, instances to `counts`, milli-GPUs by device to `taken`.

To add a placement, write its function here (by devices: in `scores`), call it in `placed`, and name it in
`scheduler_core.placement.PLACEMENTS` and in `modelserve.contract.placements`.
"""

import math

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.rooms import hosted, open_to, share_free, tightest
from scheduler_core.kernels.sharing import place_by_device
from scheduler_core.kernels.state import NONE, Cluster, Queue, Room, Scratch, State

__all__ = ["placed"]

FIRST_FIT = 0
BEST_FIT = 1
CONSOLIDATE = 2
SPREAD = 3
BY_DEVICE = 4
"""From this code on, placements choose machines and devices by a score; see `sharing`."""


@kernel
def _first_fit(cluster: Cluster, room: Room, queue: Queue, at: int, scratch: Scratch) -> int:
    """Fill machines in the order in which the cluster lists them."""
    gang = queue.buckets[at]
    left, used = gang.instances, 0
    for machine in range(len(room.free)):
        if left == 0:
            break
        if not open_to(cluster, machine, gang.gpu_type):
            continue
        count = hosted(room, machine, queue, at, left)
        if count > 0:
            scratch.chosen[used] = machine
            scratch.counts[used] = count
            used += 1
            left -= count
    return used


@kernel
def _best_fit(cluster: Cluster, room: Room, queue: Queue, at: int, scratch: Scratch) -> int:
    """Fill the machines with the least free capacity (`Room.freeness`) first, to keep large blocks for large jobs.

    References
    ----------
    Yang, Hong, Tang: Algorithm 2 ("sort servers by free resources ascending").
    """
    gang, freeness = queue.buckets[at], room.freeness
    left, used = gang.instances, 0
    last_freeness, last = -math.inf, NONE
    while left > 0:
        best, least = NONE, math.inf
        for machine in range(len(room.free)):
            if freeness[machine] >= least:
                continue
            if freeness[machine] < last_freeness or (freeness[machine] == last_freeness and machine <= last):
                continue
            if hosted(room, machine, queue, at, 1) > 0 and open_to(cluster, machine, gang.gpu_type):
                best, least = machine, freeness[machine]
        last_freeness, last = least, best
        scratch.chosen[used] = best
        scratch.counts[used] = hosted(room, best, queue, at, left)
        left -= scratch.counts[used]
        used += 1
    return used


@kernel
def _consolidate(cluster: Cluster, room: Room, queue: Queue, at: int, scratch: Scratch) -> int:
    """Use the fullest machine that hosts the whole gang, else fill first the machines that host most instances.

    References
    ----------
    Jeon et al.: Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019
    (locality of gangs); Xiao et al.: Gandiva, OSDI 2018 (packing).
    """
    gang = queue.buckets[at]
    best = NONE
    for machine in range(len(room.free)):
        scratch.able[machine] = 0
        if open_to(cluster, machine, gang.gpu_type):
            scratch.able[machine] = hosted(room, machine, queue, at, gang.instances)
        whole = scratch.able[machine] == gang.instances
        if whole and (best == NONE or room.freeness[machine] < room.freeness[best]):
            best = machine
    if best != NONE:
        scratch.chosen[0] = best
        scratch.counts[0] = gang.instances
        return 1
    left, used = gang.instances, 0
    while left > 0:
        best = 0
        for machine in range(1, len(room.free)):
            if scratch.able[machine] > scratch.able[best]:
                best = machine
        scratch.chosen[used] = best
        scratch.counts[used] = min(left, scratch.able[best])
        left -= scratch.counts[used]
        scratch.able[best] = 0
        used += 1
    return used


@kernel
def _spread(cluster: Cluster, room: Room, queue: Queue, at: int, scratch: Scratch) -> int:
    """Put each instance in turn on the freest machine that can host it, which balances the load of machines.

    References
    ----------
    `LeastAllocated` scoring in Kubernetes and `CR_LLN` (least loaded node) in Slurm place the same way.
    """
    gang, after = queue.buckets[at], scratch.after
    for machine in range(len(room.free)):
        for resource in range(3):
            after.free[machine, resource] = room.free[machine, resource]
        after.freeness[machine] = room.freeness[machine]
        scratch.slot[machine] = NONE
        scratch.able[machine] = 0
        if open_to(cluster, machine, gang.gpu_type):
            scratch.able[machine] = hosted(room, machine, queue, at, gang.instances)
    used = 0
    for _ in range(gang.instances):
        best = NONE
        for machine in range(len(room.free)):
            if scratch.able[machine] > 0 and (best == NONE or after.freeness[machine] > after.freeness[best]):
                best = machine
        for resource in range(3):
            after.free[best, resource] -= queue.units[at, resource]
        after.freeness[best] = share_free(after.free, best, cluster.largest)
        scratch.able[best] -= 1
        if scratch.slot[best] == NONE:
            scratch.slot[best] = used
            scratch.chosen[used] = best
            scratch.counts[used] = 0
            used += 1
        scratch.counts[scratch.slot[best]] += 1
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
    if placement == FIRST_FIT:
        used = _first_fit(cluster, room, queue, at, scratch)
    elif placement == BEST_FIT:
        used = _best_fit(cluster, room, queue, at, scratch)
    elif placement == CONSOLIDATE:
        used = _consolidate(cluster, room, queue, at, scratch)
    else:
        used = _spread(cluster, room, queue, at, scratch)
    if room.devices.shape[1] > 0:
        _choose_devices(room, queue, at, scratch, used)
    return int(used)
