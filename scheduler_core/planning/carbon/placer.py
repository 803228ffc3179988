"""The placer: GPU counts to nodes, each job on as few nodes as can be.

Nodes are GPU counts; how many GPUs a job gets is `allocator`'s matter. Called after it at every round.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """GPUs of every job on every node (J, M), and which jobs (J,) did not fit whole: they have none anywhere."""

    gpus: IntArray
    unplaced: BoolArray


def place(gpus: IntArray, free_gpus: IntArray, *, before: IntArray | None = None) -> Placed:
    """Put `gpus` (J,) of every job on nodes with `free_gpus` (M,), the largest jobs first, equal ones as listed.

    A job that fits on one node goes to the one with least left after it. One that does not takes the nodes with most
    free GPUs, which are the fewest, and its last part goes where least is left. `before` (J, M) is where jobs were: one
    whose count has not changed stays there if there is room, before all others (ours: moving costs a restart);
    `free_gpus` includes what they held.

    Raises
    ------
    BadInput
        If a count is negative, or `before` is not of these jobs and nodes.

    Examples
    --------
    >>> place(np.array([3, 6]), np.array([4, 4, 4])).gpus
    array([[0, 0, 3],
           [4, 2, 0]])
    """
    if (gpus < 0).any() or (free_gpus < 0).any():
        raise BadInput("placer: found a negative number of GPUs, expected 0 or more")
    placed = np.zeros((len(gpus), len(free_gpus)), dtype=np.int64)
    free = free_gpus.astype(np.int64)
    if before is not None:
        if before.shape != placed.shape:
            raise BadInput(f"placer: found places of shape {before.shape}, expected {placed.shape}")
        if (before < 0).any():
            raise BadInput("placer: found a job that was on a negative number of GPUs, expected 0 or more")
        for row in np.flatnonzero((before.sum(axis=1) == gpus) & (gpus > 0)):
            if (before[row] <= free).all():
                placed[row] = before[row]
                free -= before[row]
    waiting = np.flatnonzero((gpus > 0) & (placed.sum(axis=1) == 0))
    for row in waiting[np.argsort(-gpus[waiting], kind="stable")]:
        placed[row] = _split(int(gpus[row]), free)
        free -= placed[row]
    return Placed(gpus=placed, unplaced=placed.sum(axis=1) < gpus)


def _split(wanted: int, free: IntArray) -> IntArray:
    """Return a job's GPUs by node (M,); none where all nodes together have too few."""
    taken = np.zeros_like(free)
    if wanted > free.sum():
        return taken
    left = free.copy()
    while wanted > 0:
        holds = np.flatnonzero(left >= wanted)
        # Best fit where the rest fits on one node, else all of the node with most.
        node = int(holds[left[holds].argmin()]) if holds.size else int(left.argmax())
        part = min(wanted, int(left[node]))
        taken[node] += part
        left[node] -= part
        wanted -= part
    return taken
