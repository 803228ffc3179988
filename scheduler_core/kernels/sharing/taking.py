"""Which machine takes an instance: the best score, ties by the first machine or drawn, and what that changes.

Scores are in `scores`. Called by `filling` and `placing`.
"""

from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.sharing.fragments import refresh
from scheduler_core.kernels.sharing.scores import evaluate, shift
from scheduler_core.kernels.sharing.state import NONE, RANDOM, STALE, WHOLE, Goal, Kept, Nodes, Shapes


@kernel
def chosen(
    policy: int, nodes: Nodes, shapes: Shapes, shape: int, goal: Goal, kept: Kept, draw: float, drawn_ties: bool
) -> int:
    """Return the machine of the best score, NONE if none can take the shape; `draw` (0..1) settles drawn ties."""
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
    """Forget a machine's scores."""
    for shape in range(kept.score.shape[0]):
        kept.score[shape, node] = STALE


@kernel
def take(policy: int, nodes: Nodes, node: int, shapes: Shapes, shape: int, goal: Goal, kept: Kept, draw: float) -> int:
    """Take an instance's share of a machine; return the devices it takes, as bits."""
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
