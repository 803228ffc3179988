"""One gang placed on a room that the kernels mirror: what changed since the last one is taken over first.

Called by `sharing_placements`.
"""

from scheduler_core.kernels import kernel
from scheduler_core.kernels.kernel import Compiled
from scheduler_core.kernels.sharing.fragments import refresh
from scheduler_core.kernels.sharing.state import NONE, SOURCES, Goal, Kept, Nodes, Shapes
from scheduler_core.kernels.sharing.taking import chosen, outdate, take
from scheduler_core.types import BoolArray, FloatArray, IntArray


def _mirroring(sources: str) -> Compiled:
    @kernel.kept
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
    @kernel.kept
    def aim(nodes: Nodes, goal: Goal, kept: Kept) -> None:
        """Forget all scores, and what was fragmented, for the sake of another goal."""
        _ = sources  # part of what the compiled code is kept under
        for node in range(len(nodes.cpu)):
            refresh(nodes, node, goal, kept)
            outdate(kept, node)

    return aim


def _placing(sources: str) -> Compiled:
    @kernel.kept
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
