"""A cluster filled up: one shape after the other submitted, placed or dropped; nothing ends.

Called by `inflation`.
"""

from scheduler_core.kernels import kernel
from scheduler_core.kernels.kernel import Compiled
from scheduler_core.kernels.sharing.fragments import refresh
from scheduler_core.kernels.sharing.state import NONE, SOURCES, Goal, Kept, Nodes, Shapes
from scheduler_core.kernels.sharing.taking import chosen, take
from scheduler_core.types import FloatArray, IntArray


def _filling(sources: str) -> Compiled:
    @kernel.kept
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
