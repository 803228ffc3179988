"""Fragmentation of a machine, and its score for a shape under each placement: at least 0, larger is better.

A shape is the demand of one instance. Fragmentation is weighted by pod counts, not by shares of pods, so that it is an
exact integer. `sharing_placements` describes the scores; `placing` uses them to choose a machine.
"""

import math

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.sharing.state import (
    BEST_FIT_GPU,
    DOT_PRODUCT,
    FGD,
    FGD_USED_FIRST,
    GPU_CLUSTERING,
    GPU_PACKING,
    NONE,
    WHOLE,
    Goal,
    Kept,
    Nodes,
    Shapes,
)


@kernel
def survey(nodes: Nodes, node: int, cpu: int, goal: Goal) -> None:
    """Write to `goal.survey` what a machine offers each level of the target if `cpu` milli-cores were free.

    The columns are: the last entry of the level with enough CPU or NONE, the devices with enough free GPU for one
    device of the level, and their free GPU. Levels after the first without such devices are not written.
    """
    kind = nodes.kind[node]
    for at in range(len(goal.levels)):
        fitting, within = 0, 0
        for device in range(nodes.devices.shape[1]):
            if nodes.devices[node, device] >= goal.levels[at]:
                fitting += 1
                within += nodes.devices[node, device]
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
def refresh(nodes: Nodes, node: int, goal: Goal, kept: Kept) -> None:
    """Recompute the cached fragmentation of a machine."""
    survey(nodes, node, nodes.cpu[node], goal)
    kept.fragmented[node] = unusable(free_gpu(nodes, node), goal, 0, 0, 0)


@kernel
def hosts(nodes: Nodes, node: int, shapes: Shapes, shape: int) -> bool:
    """Return whether a machine is up and could host one instance, by GPU type, CPU, memory and devices."""
    if not (nodes.up[node] and shapes.open[shape, nodes.kind[node]]):
        return False
    if nodes.cpu[node] < shapes.cpu[shape] or nodes.mem[node] < shapes.mem[shape]:
        return False
    missing = shapes.gpus[shape]
    for device in range(nodes.devices.shape[1]):
        if missing > 0 and nodes.devices[node, device] >= shapes.milli[shape]:
            missing -= 1
    return bool(missing <= 0)


@kernel
def free_gpu(nodes: Nodes, node: int) -> int:
    """Return a machine's free milli-GPUs."""
    free = 0
    for device in range(nodes.devices.shape[1]):
        free += nodes.devices[node, device]
    return free


@kernel
def idle_gpus(nodes: Nodes, node: int) -> int:
    """Return the number of idle devices of a machine."""
    idle = 0
    for device in range(nodes.devices.shape[1]):
        idle += nodes.devices[node, device] == WHOLE
    return idle


@kernel
def classes_on(nodes: Nodes, node: int) -> int:
    """Return how many GPU sizes the instances on a machine have (part of a GPU, one GPU, two GPUs ...)."""
    classes = 0
    for size in range(nodes.tenants.shape[1]):
        classes += nodes.tenants[node, size] > 0
    return classes


@kernel
def tightest(nodes: Nodes, node: int, milli: int) -> int:
    """Return the first device with the least free GPU among those with `milli` free; NONE if none has."""
    best = NONE
    for device in range(nodes.devices.shape[1]):
        free = nodes.devices[node, device]
        if free >= milli and (best == NONE or free < nodes.devices[node, best]):
            best = device
    return best


@kernel
def fitted(nodes: Nodes, node: int, count: int, milli: int) -> int:
    """Return the devices of one instance as bits: the tightest for a part of a GPU, else the first idle ones."""
    if count == 0:
        return 0
    if milli < WHOLE:
        return int(1 << tightest(nodes, node, milli))
    bits, left = 0, count
    for device in range(nodes.devices.shape[1]):
        if left > 0 and nodes.devices[node, device] == WHOLE:
            bits |= 1 << device
            left -= 1
    return bits


@kernel
def shift(nodes: Nodes, node: int, bits: int, milli: int) -> None:
    """Add `milli` to the free milli-GPUs of the devices in `bits`; a negative amount takes them."""
    for device in range(nodes.devices.shape[1]):
        if bits >> device & 1:
            nodes.devices[node, device] += milli


@kernel
def _gradient(policy: int, nodes: Nodes, node: int, count: int, old: int, milli: int, goal: Goal, kept: Kept) -> int:
    """Return a score of 0 to 100 that rises with the decrease of the surveyed machine's fragmentation.

    The instance would take `milli` of each of `count` devices with `old` milli-GPUs free. Under `FGD_USED_FIRST` the
    score is doubled, plus 1 if a GPU of the machine is in use.
    """
    after = unusable(free_gpu(nodes, node) - count * milli, goal, count, old, old - milli)
    less = kept.fragmented[node] - after
    score = int(1.0 / (1.0 + math.exp(-less / max(goal.total, 1) / 1000.0)) * 100.0)
    if policy == FGD_USED_FIRST:
        return 2 * score + int(classes_on(nodes, node) > 0)
    return score


@kernel
def _descent(policy: int, nodes: Nodes, node: int, shapes: Shapes, shape: int, goal: Goal, kept: Kept) -> int:
    """Return the best score by `_gradient` over devices; a part of a GPU goes to the first device with that score."""
    count, milli = shapes.gpus[shape], shapes.milli[shape]
    survey(nodes, node, nodes.cpu[node] - shapes.cpu[shape], goal)
    if count != 1 or milli == WHOLE:
        return int(_gradient(policy, nodes, node, count, WHOLE, milli, goal, kept))
    best = NONE
    for device in range(nodes.devices.shape[1]):
        free = nodes.devices[node, device]
        if free < milli:
            continue
        seen = False
        for other in range(device):
            seen |= nodes.devices[node, other] == free
        if seen:
            continue  # an earlier device with equal free GPU has the same score
        score = _gradient(policy, nodes, node, 1, free, milli, goal, kept)
        if score > best:
            best = score
            kept.taken[shape, node] = 1 << device
    return best


@kernel
def _dot_product(nodes: Nodes, node: int, shapes: Shapes, shape: int) -> int:
    cpu, gpu = nodes.most_cpu, nodes.most_gpu
    requested = shapes.gpus[shape] * shapes.milli[shape]
    product = nodes.cpu[node] / cpu * (shapes.cpu[shape] / cpu) + free_gpu(nodes, node) / gpu * (requested / gpu)
    return int(100.0 * (1.0 - product / 2.0))


@kernel
def _best_fit(nodes: Nodes, node: int, shapes: Shapes, shape: int) -> int:
    requested = shapes.gpus[shape] * shapes.milli[shape]
    left = (nodes.cpu[node] - shapes.cpu[shape]) / nodes.most_cpu * 0.5
    left += (free_gpu(nodes, node) - requested) / nodes.most_gpu * 0.5
    return int((1.0 - left) * 100.0)


@kernel
def _packing(nodes: Nodes, node: int, shapes: Shapes, shape: int) -> int:
    count, milli = shapes.gpus[shape], shapes.milli[shape]
    if count == 0:
        return 0
    if classes_on(nodes, node) == 0:
        idle = idle_gpus(nodes, node)
        return int(max(33 - idle, idle))
    if milli == WHOLE:
        return int(max(50 - count, 33))
    free = nodes.devices[node, tightest(nodes, node, milli)]
    return 49 if free == WHOLE else int(max(100 - free * 100 // WHOLE // 10, 50))


@kernel
def _clustering(nodes: Nodes, node: int, shapes: Shapes, shape: int) -> int:
    count, milli = shapes.gpus[shape], shapes.milli[shape]
    if count == 0:
        return 0
    classes, quarters = classes_on(nodes, node), 0
    if nodes.tenants[node, 0 if milli < WHOLE else count] > 0:
        quarters = 3 if classes == 1 else 2
    elif classes == 0:
        quarters = 1
    most = int(nodes.most_gpu)
    return int(25 * (most - free_gpu(nodes, node)) // most + 25 * quarters)


@kernel
def evaluate(policy: int, nodes: Nodes, node: int, shapes: Shapes, shape: int, goal: Goal, kept: Kept) -> None:
    """Compute and cache a machine's score for a shape, and the devices that the instance would take."""
    if not hosts(nodes, node, shapes, shape):
        kept.score[shape, node] = NONE
        return
    kept.taken[shape, node] = fitted(nodes, node, shapes.gpus[shape], shapes.milli[shape])
    if policy in (FGD, FGD_USED_FIRST):
        score = _descent(policy, nodes, node, shapes, shape, goal, kept)
    elif policy == DOT_PRODUCT:
        score = _dot_product(nodes, node, shapes, shape)
    elif policy == BEST_FIT_GPU:
        score = _best_fit(nodes, node, shapes, shape)
    elif policy == GPU_PACKING:
        score = _packing(nodes, node, shapes, shape)
    elif policy == GPU_CLUSTERING:
        score = _clustering(nodes, node, shapes, shape)
    else:
        score = 0
    kept.score[shape, node] = score
