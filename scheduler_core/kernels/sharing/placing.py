"""Compiled choice of the machine with the best score for each instance, and the update of free capacity.

Among equal scores the first machine wins, or a random one. `scores` computes scores. `sharing_placements` calls
`mirror`, `aim` and `place`; the fragmentation study calls `filled`.
"""

from scheduler_core.kernels.kernel import Compiled, kept, kernel
from scheduler_core.kernels.sharing.scores import evaluate, refresh, shift
from scheduler_core.kernels.sharing.state import NONE, RANDOM, SOURCES, STALE, WHOLE, Goal, Kept, Nodes, Shapes
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["filled"]


@kernel
def chosen(
    policy: int, nodes: Nodes, shapes: Shapes, shape: int, goal: Goal, kept: Kept, draw: float, drawn_ties: bool
) -> int:
    """Return the machine with the best score, NONE if no machine can host the shape.

    With `drawn_ties`, the random number `draw` (0..1) chooses among equal scores.
    """
    best, ties, found = NONE, 0, NONE
    for node in range(len(nodes.cpu)):
        if kept.score[shape, node] == STALE:
            evaluate(policy, nodes, node, shapes, shape, goal, kept)
        score = kept.score[shape, node]
        if score > best:
            best, ties, found = score, 1, node
        elif score == best:
            ties += 1
    if best == NONE or not drawn_ties or ties == 1:
        return found
    skipped = min(int(draw * ties), ties - 1)
    for node in range(found, len(nodes.cpu)):
        if kept.score[shape, node] == best:
            if skipped == 0:
                return node
            skipped -= 1
    return found


@kernel
def _drawn_device(nodes: Nodes, node: int, milli: int, draw: float) -> int:
    fitting = 0
    for device in range(nodes.devices.shape[1]):
        fitting += nodes.devices[node, device] >= milli
    skipped = min(int(draw * fitting), fitting - 1)
    for device in range(nodes.devices.shape[1]):
        if nodes.devices[node, device] >= milli:
            if skipped == 0:
                return device
            skipped -= 1
    return NONE


@kernel
def outdate(kept: Kept, node: int) -> None:
    """Mark the cached scores of a machine as stale."""
    for shape in range(kept.score.shape[0]):
        kept.score[shape, node] = STALE


@kernel
def take(policy: int, nodes: Nodes, node: int, shapes: Shapes, shape: int, goal: Goal, kept: Kept, draw: float) -> int:
    """Place an instance on a machine; return the devices it takes, as bits of an integer."""
    bits, count, milli = kept.taken[shape, node], shapes.gpus[shape], shapes.milli[shape]
    if policy == RANDOM and count == 1 and milli < WHOLE:
        bits = 1 << _drawn_device(nodes, node, milli, draw)
    shift(nodes, node, bits, -milli)
    nodes.cpu[node] -= shapes.cpu[shape]
    nodes.mem[node] -= shapes.mem[shape]
    if count > 0:
        nodes.tenants[node, 0 if milli < WHOLE else count] += 1
    refresh(nodes, node, goal, kept)
    outdate(kept, node)
    return int(bits)


def _mirroring(sources: str) -> Compiled:
    @kept
    def mirror(
        nodes: Nodes, free: IntArray, devices: IntArray, tenants: IntArray, up: BoolArray, goal: Goal, kept: Kept
    ) -> None:
        """Copy the free capacity of machines that differ to `nodes`, and mark their cached scores as stale."""
        _ = sources  # so that the digest is part of the cache key
        for node in range(len(nodes.cpu)):
            same = nodes.cpu[node] == free[node, 0] and nodes.mem[node] == free[node, 1] and nodes.up[node] == up[node]
            for device in range(nodes.devices.shape[1]):
                same &= nodes.devices[node, device] == devices[node, device]
            for held in range(nodes.tenants.shape[1]):
                same &= nodes.tenants[node, held] == tenants[node, held]
            if same:
                continue
            nodes.cpu[node], nodes.mem[node], nodes.up[node] = free[node, 0], free[node, 1], up[node]
            for device in range(nodes.devices.shape[1]):
                nodes.devices[node, device] = devices[node, device]
            for held in range(nodes.tenants.shape[1]):
                nodes.tenants[node, held] = tenants[node, held]
            refresh(nodes, node, goal, kept)
            outdate(kept, node)

    return mirror


def _aiming(sources: str) -> Compiled:
    @kept
    def aim(nodes: Nodes, goal: Goal, kept: Kept) -> None:
        """Recompute all fragmentation for the new target workload `goal`, and mark all scores as stale."""
        _ = sources  # so that the digest is part of the cache key
        for node in range(len(nodes.cpu)):
            refresh(nodes, node, goal, kept)
        for shape in range(kept.score.shape[0]):
            for node in range(kept.score.shape[1]):
                kept.score[shape, node] = STALE

    return aim


def _placing(sources: str) -> Compiled:
    @kept
    def place(
        policy: int,
        nodes: Nodes,
        shapes: Shapes,
        shape: int,
        goal: Goal,
        kept: Kept,
        draws: FloatArray,
        drawn_ties: bool,
        found: IntArray,
        taken: IntArray,
    ) -> bool:
        """Place one instance per row of `draws`, in turn, changing `nodes`; return False if one does not fit.

        Writes each instance's machine to `found` and its devices to `taken`. If the gang does not start, the next call
        of `mirror` restores `nodes`.
        """
        _ = sources  # so that the digest is part of the cache key
        for row in range(len(draws)):
            node = chosen(policy, nodes, shapes, shape, goal, kept, draws[row, 0], drawn_ties)
            if node == NONE:
                return False
            found[row] = node
            taken[row] = take(policy, nodes, node, shapes, shape, goal, kept, draws[row, 1])
        return True

    return place


mirror = _mirroring(SOURCES)
aim = _aiming(SOURCES)
place = _placing(SOURCES)


def _filling(sources: str) -> Compiled:
    @kept
    def filled(
        policy: int,
        nodes: Nodes,
        shapes: Shapes,
        goal: Goal,
        kept: Kept,
        codes: IntArray,
        draws: FloatArray,
        drawn_ties: bool,
        found: IntArray,
        taken: IntArray,
        fragmented: IntArray,
    ) -> None:
        """Place one instance of each shape in `codes` (n,), in order, as the fragmentation study does.

        Writes for each the machine or NONE to `found`, the devices as bits to `taken`, and the cluster's fragmentation
        afterwards to `fragmented`. `draws` (n, 2) are random numbers in 0..1: one breaks ties, one chooses a device.
        """
        _ = sources  # so that the digest is part of the cache key
        total = 0
        for node in range(len(nodes.cpu)):
            refresh(nodes, node, goal, kept)
            total += int(kept.fragmented[node])
        for row in range(len(codes)):
            shape = codes[row]
            node = chosen(policy, nodes, shapes, shape, goal, kept, draws[row, 0], drawn_ties)
            found[row], taken[row] = node, 0
            if node != NONE:
                total -= int(kept.fragmented[node])
                taken[row] = take(policy, nodes, node, shapes, shape, goal, kept, draws[row, 1])
                total += int(kept.fragmented[node])
            fragmented[row] = total

    return filled


filled = _filling(SOURCES)
