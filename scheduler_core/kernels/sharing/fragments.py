"""How much of a machine's free GPU a target workload could not use: the same as `fragmentation`, in whole numbers.

Milli-GPUs are weighed by numbers of pods, not by shares, so that what is kept equals what is computed anew.
Called by `scores` and `taking`.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.sharing.state import Goal, Kept, Nodes


@kernel
def fragmented(nodes: Nodes, node: int, cpu: int, goal: Goal) -> int:
    """Return a machine's fragmentation with its devices as they are and `cpu` free, times the target's pods.

    What a shape can use is the devices with enough free for it, where CPU, devices and GPU type suffice; the rest of
    what is free is a fragment to it.
    """
    kind, width = nodes.kind[node], nodes.devices.shape[1]
    free = 0
    for device in range(width):
        free += nodes.devices[node, device]
    usable = 0
    for at in range(len(goal.levels)):
        begin, end = goal.first[kind, at], goal.first[kind, at + 1]
        if begin == end:
            continue
        level = goal.levels[at]
        fitting, within = 0, 0
        for device in range(width):
            if nodes.devices[node, device] >= level:
                fitting += 1
                within += nodes.devices[node, device]
        if fitting == 0:
            break  # the levels ascend
        pods = 0
        for entry in range(begin, end):
            if goal.cpu[entry] <= cpu and goal.gpus[entry] <= fitting:
                pods += goal.pods[entry]
        usable += pods * within
    return free * goal.total - usable


@kernel
def refresh(nodes: Nodes, node: int, goal: Goal, kept: Kept) -> None:
    """Keep a machine's fragmentation as it is now."""
    kept.fragmented[node] = fragmented(nodes, node, nodes.cpu[node], goal)
