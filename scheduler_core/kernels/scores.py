"""Fragmentation of a machine, and its score for a shape under each placement: at least 0, larger is better.

A shape is the demand of one instance. Fragmentation is weighted by pod counts, not by shares of pods, so that it is an
exact integer. `scheduler_core.placement` describes the scores.
"""

import math

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.records import NONE
from scheduler_core.kernels.rooms import WHOLE, hosted, tightest
from scheduler_core.kernels.state import Cache, Goal, Queue

FGD = 4
DOT_PRODUCT = 5
BEST_FIT_GPU = 6
GPU_PACKING = 7
GPU_CLUSTERING = 8
RANDOM = 9


@kernel
def survey(cache: Cache, node: int, cpu: int, goal: Goal) -> None:
    """Write to `goal.survey` the devices that a machine offers each level of the target if `cpu` milli-cores are free.

    The columns are: the last entry of the level with enough CPU or NONE, the devices with enough free GPU for one
    device of the level, and their free GPU. Levels after the first without such devices are not written.
    """
    kind = cache.kind[node]
    for at in range(len(goal.levels)):
        fitting, within = 0, 0
        for device in range(cache.room.devices.shape[1]):
            if cache.room.devices[node, device] >= goal.levels[at]:
                fitting += 1
                within += cache.room.devices[node, device]
        goal.survey[at, 1] = fitting
        goal.survey[at, 2] = within
        if fitting == 0:
            return  # levels are in ascending order
        begin = goal.first[kind, at]
        low, high = begin, goal.first[kind, at + 1]
        while low < high:
            middle = (low + high) // 2
            if goal.cpu[middle] <= cpu:
                low = middle + 1
            else:
                high = middle
        goal.survey[at, 0] = low - 1 if low > begin else NONE


@kernel
def unusable(free: int, goal: Goal, count: int, old: int, new: int) -> int:
    """Return the surveyed machine's fragmentation if `count` devices had `new` instead of `old` milli-GPUs free.

    It is multiplied by the number of the target's pods. `free` is the machine's free milli-GPUs afterwards. If CPU,
    devices and GPU type suffice for a shape of the target, its fragmented GPU is that of devices with too little free
    GPU for it, otherwise all free GPU.
    """
    usable, most = 0, goal.pods.shape[1] - 1
    for at in range(len(goal.levels)):
        if goal.survey[at, 1] == 0:
            break
        if goal.survey[at, 0] != NONE:
            level, fitting, within = goal.levels[at], goal.survey[at, 1], goal.survey[at, 2]
            if old >= level:
                fitting -= count
                within -= count * old
            if new >= level:
                fitting += count
                within += count * new
            usable += goal.pods[goal.survey[at, 0], min(fitting, most)] * within
    return free * goal.total - usable


@kernel
def refresh(cache: Cache, node: int, goal: Goal) -> None:
    """Recompute the cached fragmentation of a machine."""
    survey(cache, node, cache.room.free[node, 0], goal)
    cache.fragmented[node] = unusable(free_gpu(cache, node), goal, 0, 0, 0)


@kernel
def free_gpu(cache: Cache, node: int) -> int:
    """Return a machine's free milli-GPUs."""
    free = 0
    for device in range(cache.room.devices.shape[1]):
        free += cache.room.devices[node, device]
    return free


@kernel
def idle_gpus(cache: Cache, node: int) -> int:
    """Return the number of idle devices of a machine."""
    idle = 0
    for device in range(cache.room.devices.shape[1]):
        idle += cache.room.devices[node, device] == WHOLE
    return idle


@kernel
def classes_on(cache: Cache, node: int) -> int:
    """Return how many GPU sizes the instances on a machine have (part of a GPU, one GPU, two GPUs ...)."""
    classes = 0
    for size in range(cache.room.tenants.shape[1]):
        classes += cache.room.tenants[node, size] > 0
    return classes


@kernel
def fitted(cache: Cache, node: int, count: int, milli: int) -> int:
    """Return the devices of one instance as bits: the tightest for a part of a GPU, else the first idle ones."""
    if count == 0:
        return 0
    if milli < WHOLE:
        return int(1 << tightest(cache.room, node, milli))
    bits, left = 0, count
    for device in range(cache.room.devices.shape[1]):
        if left > 0 and cache.room.devices[node, device] == WHOLE:
            bits |= 1 << device
            left -= 1
    return bits


@kernel
def _gradient(cache: Cache, node: int, count: int, old: int, milli: int, goal: Goal) -> int:
    """Return a score of 0 to 100 that rises with the decrease of the surveyed machine's fragmentation.

    The instance would take `milli` of each of `count` devices with `old` milli-GPUs free.
    """
    after = unusable(free_gpu(cache, node) - count * milli, goal, count, old, old - milli)
    less = cache.fragmented[node] - after
    return int(1.0 / (1.0 + math.exp(-less / max(goal.total, 1) / 1000.0)) * 100.0)


@kernel
def _descent(cache: Cache, node: int, queue: Queue, at: int, row: int, goal: Goal) -> int:
    """Return the best score by `_gradient` over devices; a part of a GPU goes to the first device with that score."""
    count, milli = queue.buckets[at].count, queue.buckets[at].milli
    survey(cache, node, cache.room.free[node, 0] - queue.units[at, 0], goal)
    if count != 1 or milli == WHOLE:
        return int(_gradient(cache, node, count, WHOLE, milli, goal))
    best = NONE
    for device in range(cache.room.devices.shape[1]):
        free = cache.room.devices[node, device]
        if free < milli:
            continue
        seen = False
        for other in range(device):
            seen |= cache.room.devices[node, other] == free
        if seen:
            continue  # an earlier device with equal free GPU has the same score
        score = _gradient(cache, node, 1, free, milli, goal)
        if score > best:
            best = score
            cache.taken[row, node] = 1 << device
    return best


@kernel
def _dot_product(cache: Cache, node: int, queue: Queue, at: int) -> int:
    cpu, gpu = cache.most[0], cache.most[1]
    requested = queue.units[at, 2]
    product = cache.room.free[node, 0] / cpu * (queue.units[at, 0] / cpu) + free_gpu(cache, node) / gpu * (
        requested / gpu
    )
    return int(100.0 * (1.0 - product / 2.0))


@kernel
def _best_fit(cache: Cache, node: int, queue: Queue, at: int) -> int:
    requested = queue.units[at, 2]
    left = (cache.room.free[node, 0] - queue.units[at, 0]) / cache.most[0] * 0.5
    left += (free_gpu(cache, node) - requested) / cache.most[1] * 0.5
    return int((1.0 - left) * 100.0)


@kernel
def _packing(cache: Cache, node: int, queue: Queue, at: int) -> int:
    count, milli = queue.buckets[at].count, queue.buckets[at].milli
    if count == 0:
        return 0
    if classes_on(cache, node) == 0:
        idle = idle_gpus(cache, node)
        return int(max(33 - idle, idle))
    if milli == WHOLE:
        return int(max(50 - count, 33))
    free = cache.room.devices[node, tightest(cache.room, node, milli)]
    return 49 if free == WHOLE else int(max(100 - free * 100 // WHOLE // 10, 50))


@kernel
def _clustering(cache: Cache, node: int, queue: Queue, at: int) -> int:
    count, milli = queue.buckets[at].count, queue.buckets[at].milli
    if count == 0:
        return 0
    classes, quarters = classes_on(cache, node), 0
    if cache.room.tenants[node, 0 if milli < WHOLE else count] > 0:
        quarters = 3 if classes == 1 else 2
    elif classes == 0:
        quarters = 1
    most = int(cache.most[1])
    return int(25 * (most - free_gpu(cache, node)) // most + 25 * quarters)


@kernel
def evaluate(policy: int, cache: Cache, node: int, queue: Queue, at: int, row: int, goal: Goal) -> None:
    """Write a machine's score for an instance of bucket `at`, and the devices it would take, to row `row` of the cache.

    The score is NONE if the machine cannot host the instance.
    """
    if hosted(cache.room, node, queue, at, 1) == 0:
        cache.score[row, node] = NONE
        return
    cache.taken[row, node] = fitted(cache, node, queue.buckets[at].count, queue.buckets[at].milli)
    if policy == FGD:
        score = _descent(cache, node, queue, at, row, goal)
    elif policy == DOT_PRODUCT:
        score = _dot_product(cache, node, queue, at)
    elif policy == BEST_FIT_GPU:
        score = _best_fit(cache, node, queue, at)
    elif policy == GPU_PACKING:
        score = _packing(cache, node, queue, at)
    elif policy == GPU_CLUSTERING:
        score = _clustering(cache, node, queue, at)
    else:
        score = 0
    cache.score[row, node] = score
