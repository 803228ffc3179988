"""The whole search: make random plans, improve them, path-relink them with the best plans, and refill the best plan.

The best plans found are the elite. The first plan has no random changes; it is that of `planning.cost.greedy`. Called
by `scheduler_core.planning.cost.decision`.
"""

import math
from typing import Final

from scheduler_core.kernels.cost.descent import DRAWS, refill, settle
from scheduler_core.kernels.cost.state import (
    NONE,
    SOURCES,
    Data,
    Plans,
    assign,
    clear,
    copy,
    first_completions,
    tolerance,
    total,
    touch_all,
    touch_none,
)
from scheduler_core.kernels.cost.walking import walk
from scheduler_core.kernels.kernel import Compiled, kept, kernel
from scheduler_core.types import FloatArray

__all__ = ["ELITE", "search"]


@kernel
def shuffle(data: Data, plan: Plans, draws: FloatArray, row: int, swapping: float) -> None:
    """Reset the job order, then swap neighbours at random, more likely if the later job has the higher weight."""
    jobs = len(data.weight)
    for job in range(jobs):
        plan.order[job] = job
    for place in range(jobs - 1):
        here, there = plan.order[place], plan.order[place + 1]
        both = data.weight[here] + data.weight[there]
        share = data.weight[there] / both if both > 0.0 else 0.5
        if draws[row, place] < swapping * share:
            plan.order[place], plan.order[place + 1] = there, here


@kernel
def fitting(data: Data, plan: Plans, p: int, job: int, kind: int, gpus: int) -> int:
    """Return the node for a configuration, or NONE if no node has enough free GPUs.

    The job's current node comes first, then the best fit of the switched-on nodes, then a switched-off node.
    """
    stay: int = data.stay_node[job]
    if stay != NONE and data.kind[stay] == kind and data.stay_gpus[job] == gpus and plan.free[p, stay] >= gpus:
        return stay
    found, off = NONE, NONE
    for node in range(len(data.kind)):
        if data.kind[node] != kind or plan.free[p, node] < gpus:
            continue
        if plan.jobs[p, node] == 0:
            if off == NONE:
                off = node
        elif found == NONE or plan.free[p, node] < plan.free[p, found]:
            found = node
    return off if found == NONE else found


@kernel
def make(
    data: Data, plan: Plans, p: int, draws: FloatArray, row: int, way: int, swapping: float, wandering: float
) -> None:
    """Make plan `p` by the randomised greedy algorithm.

    A job tries its r-th configuration first with probability proportional to `wandering` ** r. `way` is the order of
    configurations: 0 for that of the greedy algorithm, 1 for energy cost alone (ours). Order 1 helps on a full cluster,
    where order 0 gives many GPUs to few jobs and no single move improves the plan.
    """
    clear(data, plan, p)
    shuffle(data, plan, draws, row, swapping)
    jobs = len(data.weight)
    for place in range(jobs):
        job = plan.order[place]
        count = data.options[job]
        if count == 0:
            continue
        first = 0
        if wandering > 0.0:
            first = min(int(math.log(1.0 - draws[row, jobs + place]) / math.log(wandering)), count - 1)
        for step in range(count):
            # The drawn configuration comes first; the others follow in their order.
            option = first if step == 0 else (step - 1 if step <= first else step)
            kind, gpus = data.option_kind[way, job, option], data.option_gpus[way, job, option]
            node = fitting(data, plan, p, job, kind, gpus)
            if node != NONE:
                assign(data, plan, p, job, node, gpus)
                break
    first_completions(plan, p)


NOW: Final = 0
BETTER: Final = 1
SPARE: Final = 2
ELITE: Final = 3
"""Rows of `Plans`: NOW the current plan, BETTER the best plan of a walk, SPARE a backup, ELITE the first elite plan."""

MADE: Final = 0
WALKED: Final = 1
"""Turns of one iteration: MADE makes a plan, WALKED path-relinks it, later turns refill the best plan."""


@kernel
def worst_of(data: Data, plan: Plans, known: int) -> int:
    """Return the index of the elite plan with the highest cost."""
    worst = ELITE
    for p in range(ELITE + 1, ELITE + known):
        if total(data, plan, p) > total(data, plan, worst):
            worst = p
    return worst


@kernel
def best_of(data: Data, plan: Plans, known: int) -> int:
    """Return the index of the elite plan with the lowest cost."""
    best = ELITE
    for p in range(ELITE + 1, ELITE + known):
        if total(data, plan, p) < total(data, plan, best):
            best = p
    return best


@kernel
def wanted(data: Data, plan: Plans, p: int, known: int) -> bool:
    """Return whether a plan may join the elite: the elite is not full, or the plan is cheaper than its worst."""
    full = known == plan.node.shape[0] - ELITE
    return not full or total(data, plan, p) < total(data, plan, worst_of(data, plan, known))


@kernel
def admit(data: Data, plan: Plans, p: int, known: int) -> int:
    """Add a plan to the elite unless an elite plan has the same cost; return the new size of the elite."""
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
        best_usd: FloatArray,
    ) -> int:
        """Make a plan for every row of `draws`, the first without randomness; return the index of the best plan.

        `draws` (N, 2 J + renewing * DRAWS) are uniform random numbers in 0..1. The lowest cost after each row is
        written to `best_usd` (N,); it depends only on this row and earlier rows.
        """
        _ = sources  # part of the cache key of the compiled code
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
                # A single call site: numba would compile `settle` again for each further one.
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
            best_usd[row] = total(data, plan, best_of(data, plan, known))
        return best_of(data, plan, known) if known else NONE

    return search


search = _searching(SOURCES)
