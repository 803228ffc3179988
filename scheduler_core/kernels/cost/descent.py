"""A plan taken to where no move lowers its cost, and out of there again: some nodes emptied and filled anew.

Called by `search`.
"""

from typing import Final

from scheduler_core.kernels.cost.displacing import displace_each
from scheduler_core.kernels.cost.moves import best_place, empty_each, move_each
from scheduler_core.kernels.cost.state import (
    NONE,
    Data,
    Plans,
    assign,
    first_completions,
    touch,
)
from scheduler_core.kernels.kernel import kernel
from scheduler_core.types import FloatArray

ROUNDS: Final = 50
"""Most rounds of a descent; each lowers the cost, few need ten."""

MOST_EMPTIED: Final = 3
DRAWS: Final = 1 + MOST_EMPTIED
"""Nodes emptied at once, at most; and numbers drawn for that: how many, and which."""


@kernel
def settle(data: Data, plan: Plans, p: int, spare: int, displacing: bool) -> None:
    """Move jobs until no move lowers the cost; plan `spare` is overwritten."""
    for _ in range(ROUNDS):
        moved = move_each(data, plan, p)
        if not moved:
            moved = empty_each(data, plan, p, spare)
        if not moved and displacing:
            moved = displace_each(data, plan, p)
        if not moved:
            break


@kernel
def refill(data: Data, plan: Plans, p: int, draws: FloatArray, row: int, column: int) -> None:
    """Empty one to three nodes drawn, and place whatever waits anew, beginning with any job."""
    nodes, jobs = len(data.kind), len(data.weight)
    many = draws[row, column] * MOST_EMPTIED
    for pick in range(1 + int(many)):
        node = int(draws[row, column + 1 + pick] * nodes)
        for job in range(jobs):
            if plan.node[p, job] == node:
                assign(data, plan, p, job, NONE, 0)
                touch(plan, p, job, node)
    first_completions(plan, p)
    begin = int((many - int(many)) * jobs)
    for step in range(jobs):
        job = (begin + step) % jobs
        if plan.node[p, job] != NONE:
            continue
        _, node, gpus = best_place(data, plan, p, job, NONE)
        if node != NONE:
            assign(data, plan, p, job, node, gpus)
            first_completions(plan, p)
            touch(plan, p, job, NONE)
