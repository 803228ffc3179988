"""Which machine takes an instance: the best score, ties by the first machine or drawn, and what that changes.

Scores are in `scores`. Called by `filling` and `placing`.
"""

from scheduler_core.kernels.kernel import Compiled, kept, kernel
from scheduler_core.kernels.sharing.scores import evaluate, refresh, shift
from scheduler_core.kernels.sharing.state import NONE, RANDOM, SOURCES, STALE, WHOLE, Goal, Kept, Nodes, Shapes
from scheduler_core.types import BoolArray, FloatArray, IntArray


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


def _mirroring(sources: str) -> Compiled:
    @kept
    def mirror(
        nodes: Nodes, free: IntArray, devices: IntArray, tenants: IntArray, up: BoolArray, goal: Goal, kept: Kept
    ) -> None:
        """Take over the machines of a room that differ from `nodes`, and forget what was kept about them."""
        _ = sources  # part of what the compiled code is kept under
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
        """Forget all scores, and what was fragmented, for the sake of another goal."""
        _ = sources  # part of what the compiled code is kept under
        for node in range(len(nodes.cpu)):
            refresh(nodes, node, goal, kept)
            outdate(kept, node)

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
        """Place as many instances as `draws` has rows, each after the others, on `nodes`; false where one has no room.

        Whether the room becomes so is not known here: the next `mirror` sets right what it does not.
        """
        _ = sources  # part of what the compiled code is kept under
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
        """Submit the shapes of `codes` (n); write the machine of each or NONE, its devices, and what is fragmented.

        `draws` (n, 2) are uniform within 0..1: for ties, and for a device where that is drawn.
        """
        _ = sources  # part of what the compiled code is kept under
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
