"""The whole search: plans made at random, improved, walked towards the best ones known; the best is kept.

Called by `scheduler_core.energy.cost.randomised`.
"""

from typing import Final

from scheduler_core.compiled.kernel import Compiled, kept, kernel
from scheduler_core.energy.compiled.cost.displacing import displace_each
from scheduler_core.energy.compiled.cost.making import make
from scheduler_core.energy.compiled.cost.moves import ROUNDS, empty_each, move_each
from scheduler_core.energy.compiled.cost.state import NONE, SOURCES, Data, Plans, copy, tolerance, total, touch_all
from scheduler_core.energy.compiled.cost.walking import walk
from scheduler_core.types import FloatArray

NOW: Final = 0
BETTER: Final = 1
SPARE: Final = 2
ELITE: Final = 3
"""Places among the plans: the one in hand, the best of a walk, one to go back to, and the elite from here on."""


@kernel
def descend(data: Data, plan: Plans, p: int, displacing: bool) -> None:
    """Improve a plan until no move lowers its cost."""
    touch_all(plan)
    for _ in range(ROUNDS):
        moved = move_each(data, plan, p)
        if not moved:
            moved = empty_each(data, plan, p, SPARE)
        if not moved and displacing:
            moved = displace_each(data, plan, p)
        if not moved:
            break


@kernel
def worst_of(data: Data, plan: Plans, known: int) -> int:
    """Return the dearest elite plan."""
    worst = ELITE
    for p in range(ELITE + 1, ELITE + known):
        if total(data, plan, p) > total(data, plan, worst):
            worst = p
    return worst


@kernel
def best_of(data: Data, plan: Plans, known: int) -> int:
    """Return the cheapest elite plan."""
    best = ELITE
    for p in range(ELITE + 1, ELITE + known):
        if total(data, plan, p) < total(data, plan, best):
            best = p
    return best


@kernel
def admit(data: Data, plan: Plans, p: int, known: int, displacing: bool) -> int:
    """Take a plan into the elite if there is a place or it is cheaper than the dearest; return how many there are.

    What is taken in is improved to the end first. A plan that costs what one there costs is the same to us.
    """
    full = known == plan.node.shape[0] - ELITE
    if full and not total(data, plan, p) < total(data, plan, worst_of(data, plan, known)):
        return known
    if displacing:
        descend(data, plan, p, True)
    for q in range(ELITE, ELITE + known):
        if abs(total(data, plan, p) - total(data, plan, q)) <= tolerance(data, plan, p):
            return known
    copy(plan, p, worst_of(data, plan, known) if full else ELITE + known)
    return known if full else known + 1


def _searching(sources: str) -> Compiled:
    @kept
    def search(
        data: Data,
        plan: Plans,
        draws: FloatArray,
        swapping: float,
        wandering: float,
        moving: bool,
        displacing: bool,
        walking: bool,
        course: FloatArray,
    ) -> int:
        """Make a plan for every row of `draws` (N, J, 2), the first one by the plain greedy; return the best's place.

        `course` (N,) is the least cost known after each. What a row leads to depends on it and on earlier rows alone.
        """
        _ = sources  # part of what the compiled code is kept under
        known = 0
        for row in range(len(draws)):
            if row == 0:
                make(data, plan, NOW, draws, row, 0, 0.0, 0.0)
            else:
                make(data, plan, NOW, draws, row, row % 2, swapping, wandering)
            if moving:
                descend(data, plan, NOW, False)
            known = admit(data, plan, NOW, known, displacing)
            if walking and row > 0:
                guide = ELITE + row % known
                walk(data, plan, NOW, guide, BETTER)
                if moving:
                    descend(data, plan, BETTER, False)
                known = admit(data, plan, BETTER, known, displacing)
            course[row] = total(data, plan, best_of(data, plan, known))
        return best_of(data, plan, known) if known else NONE

    return search


search = _searching(SOURCES)
