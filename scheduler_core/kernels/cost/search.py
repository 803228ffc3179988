"""The whole search: plans made at random, improved, walked towards the best ones known; the best one refilled.

Called by `scheduler_core.planning.cost.randomised`.
"""

from typing import Final

from scheduler_core.kernels.cost.descent import DRAWS, refill, settle
from scheduler_core.kernels.cost.making import make
from scheduler_core.kernels.cost.state import (
    NONE,
    SOURCES,
    Data,
    Plans,
    copy,
    tolerance,
    total,
    touch_all,
    touch_none,
)
from scheduler_core.kernels.cost.walking import walk
from scheduler_core.kernels.kernel import Compiled, kept, kernel
from scheduler_core.types import FloatArray

NOW: Final = 0
BETTER: Final = 1
SPARE: Final = 2
ELITE: Final = 3
"""Places among the plans: the one in hand, the best of a walk, one to go back to, and the elite from here on."""

MADE: Final = 0
WALKED: Final = 1
"""What a turn does: a plan made, one walked to; in turns after these the best one known is refilled."""


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
def wanted(data: Data, plan: Plans, p: int, known: int) -> bool:
    """Return whether a plan is to be improved to the end: there is a place among the elite, or it is cheaper."""
    full = known == plan.node.shape[0] - ELITE
    return not full or total(data, plan, p) < total(data, plan, worst_of(data, plan, known))


@kernel
def admit(data: Data, plan: Plans, p: int, known: int) -> int:
    """Take a wanted plan into the elite, and return how many there are; one that costs the same is the same to us."""
    for q in range(ELITE, ELITE + known):
        if abs(total(data, plan, p) - total(data, plan, q)) <= tolerance(data, plan, p):
            return known
    full = known == plan.node.shape[0] - ELITE
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
        renewing: int,
        course: FloatArray,
    ) -> int:
        """Make a plan for every row of `draws`, the first one by the plain greedy; return the best's place.

        `draws` (N, 2 J + renewing * DRAWS) are uniform within 0..1. `course` (N,) is the least cost known after each.
        What a row leads to depends on it and on earlier rows alone.
        """
        _ = sources  # part of what the compiled code is kept under
        known, turns = 0, 2 + (renewing if len(data.kind) else 0)
        for row in range(len(draws)):
            for turn in range(turns):
                p = BETTER if turn == WALKED else NOW
                if turn == MADE:
                    chance = 1.0 if row > 0 else 0.0
                    make(data, plan, p, draws, row, row % 2, swapping * chance, wandering * chance)
                elif turn == WALKED:
                    if not walking or row == 0:
                        continue
                    walk(data, plan, NOW, ELITE + row % known, p)
                else:
                    copy(plan, best_of(data, plan, known), p)
                    touch_none(plan)
                    refill(data, plan, p, draws, row, 2 * len(data.weight) + (turn - 2) * DRAWS)
                if turn <= WALKED:
                    touch_all(plan)
                # One call for all: each would be compiled, with all it calls, once more.
                for deep in range(2):
                    thorough = displacing and (deep == 1 or turn > WALKED)
                    if (
                        moving
                        and deep == int(thorough)
                        and (turn > WALKED or deep == 0 or wanted(data, plan, p, known))
                    ):
                        settle(data, plan, p, SPARE, thorough)
                best = best_of(data, plan, known)
                if turn <= WALKED:
                    if wanted(data, plan, p, known):
                        known = admit(data, plan, p, known)
                elif total(data, plan, p) < total(data, plan, best) - tolerance(data, plan, best):
                    copy(plan, p, best)
            course[row] = total(data, plan, best_of(data, plan, known))
        return best_of(data, plan, known) if known else NONE

    return search


search = _searching(SOURCES)
