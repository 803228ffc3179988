"""Placer: assign each job's GPUs to nodes, with as few switches and nodes per job as possible.

Only the number of free GPUs of each node is known. Called by `round`, after `allocator` chose the GPU counts.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """GPUs of every job on every node (J, M); `unplaced` (J,) marks jobs that did not fit and got no GPU."""

    gpus: IntArray
    unplaced: BoolArray


def place(
    gpus: IntArray, free_gpus: IntArray, *, before: IntArray | None = None, switches: IntArray | None = None
) -> Placed:
    """Place jobs that need `gpus` (J,) on nodes with `free_gpus` (M,), largest job first, ties in the given order.

    A job that fits on one node goes to the node on which it leaves the fewest GPUs free (best fit), below the switch
    with the fewest free GPUs if several such nodes are equal. A larger job takes all GPUs of the nodes with most free
    GPUs, and its remaining GPUs are placed by best fit. `switches` (M,) is the number of the network switch of each
    node, one for all nodes by default: a larger job stays below one switch if one has enough free GPUs (of these the
    one with the fewest), and otherwise takes those with most (ours in detail, after PowerFlow's network packing).

    `before` (J, M) is the previous placement. Jobs with an unchanged count are placed first and keep their nodes if
    those have enough free GPUs (ours, because moving a job costs a restart). `free_gpus` includes the GPUs that these
    jobs held before.

    Raises
    ------
    BadInput
        If a count is negative, or `before` or `switches` does not have its shape.

    Examples
    --------
    >>> place(np.array([3, 6]), np.array([4, 4, 4])).gpus
    array([[0, 0, 3],
           [4, 2, 0]])
    >>> place(np.array([8]), np.array([8, 4, 4, 4]), switches=np.array([0, 1, 1, 2])).gpus
    array([[8, 0, 0, 0]])
    >>> place(np.array([8]), np.array([7, 4, 4, 4]), switches=np.array([0, 1, 1, 2])).gpus
    array([[0, 4, 4, 0]])
    """
    if (gpus < 0).any() or (free_gpus < 0).any():
        raise BadInput("placer: found a negative number of GPUs, expected 0 or more")
    placed = np.zeros((len(gpus), len(free_gpus)), dtype=np.int64)
    free = free_gpus.astype(np.int64)
    below = np.zeros(len(free), dtype=np.int64) if switches is None else switches
    if below.shape != free.shape or (below < 0).any():
        raise BadInput(f"placer: found switches of shape {below.shape}, expected one of each node, numbered from 0")
    if before is not None:
        if before.shape != placed.shape:
            raise BadInput(f"placer: found places of shape {before.shape}, expected {placed.shape}")
        if (before < 0).any():
            raise BadInput("placer: found a negative number of GPUs in the previous placement, expected 0 or more")
        for row in np.flatnonzero((before.sum(axis=1) == gpus) & (gpus > 0)):
            if (before[row] <= free).all():
                placed[row] = before[row]
                free -= before[row]
    waiting = np.flatnonzero((gpus > 0) & (placed.sum(axis=1) == 0))
    for row in waiting[np.argsort(-gpus[waiting], kind="stable")]:
        placed[row] = _split(int(gpus[row]), free, below)
        free -= placed[row]
    return Placed(gpus=placed, unplaced=placed.sum(axis=1) < gpus)


def _split(wanted: int, free: IntArray, below: IntArray) -> IntArray:
    """Return a job's GPUs on each node (M,); all 0 if the nodes together have fewer than `wanted`."""
    taken = np.zeros_like(free)
    if wanted > free.sum():
        return taken
    while taken.sum() < wanted:
        left = free - taken
        left[below != _switch(wanted - int(taken.sum()), left, below)] = 0
        taken += _on_fewest_nodes(min(wanted - int(taken.sum()), int(left.sum())), left)
    return taken


def _switch(wanted: int, left: IntArray, below: IntArray) -> int:
    """Return the switch with the best node for all `wanted` GPUs, else that with just enough GPUs, else with most."""
    of_switch = np.bincount(below, weights=left)
    holds = np.flatnonzero(left >= wanted)
    if holds.size:
        return int(below[holds[np.lexsort((of_switch[below[holds]], left[holds]))[0]]])
    enough = np.flatnonzero(of_switch >= wanted)
    return int(enough[of_switch[enough].argmin()] if enough.size else of_switch.argmax())


def _on_fewest_nodes(wanted: int, left: IntArray) -> IntArray:
    taken = np.zeros_like(left)
    while wanted > 0:
        holds = np.flatnonzero(left - taken >= wanted)
        # If the rest fits on one node, take the best fit; otherwise take all GPUs of the node with most.
        node = int(holds[left[holds].argmin()]) if holds.size else int((left - taken).argmax())
        part = min(wanted, int(left[node]))
        taken[node] += part
        wanted -= part
    return taken
