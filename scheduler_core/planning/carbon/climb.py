"""Take the best next step, again and again, while GPUs and the period's budget last: both stages of the source.

The heap; what the steps are and how they rank is in `ladders`. Called by `allocator`.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Final, Literal

from scheduler_core.planning.carbon.ladders import FIRST_GPUS, NO_STEP, Ladders
from scheduler_core.types import IntArray

PastBudget = Literal["next", "stop"]
"""Where the best step would pass the budget: take the next best that fits, or end the stage, as the source has it."""

BUDGET_MARGIN: Final = 1e-11
"""Part of the budget left alone, so that sums in another order do not pass it by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """Where a climb ended: each job's choice (J,), and whether a step that pays was left for want of budget or GPUs."""

    choice: IntArray
    short_of_budget: bool
    short_of_gpus: bool


def climb(
    ladders: Ladders, *, gpus: int, budget_g: float, past_budget: PastBudget = "next", least_only: bool = False
) -> Climbed:
    """Climb from the lowest rungs by marginal benefit; ties go to the job listed first.

    A step is taken only if the emissions within the period, which may also fall by a step, are within the budget after
    it, and if there are GPUs for it. First GPUs that do not fit are passed over under either `past_budget`. What was
    passed over is asked again once a step has lowered emissions. `least_only` gives first GPUs and nothing more.
    """
    limit_g = budget_g * (1.0 - BUDGET_MARGIN)
    # Lists: these are read one at a time, where arrays are slow.
    kind, rank = ladders.kind.tolist(), ladders.rank.tolist()
    held, period_g = ladders.gpus.tolist(), ladders.period_g.tolist()
    steps = ladders.kind.shape[1]
    rung = [0] * len(kind)
    free = gpus - int(ladders.gpus[:, 0].sum())
    spent_g = math.fsum(ladders.period_g[:, 0])
    heap = [(kind[row][0], rank[row][0], row) for row in range(len(kind)) if steps and kind[row][0] != NO_STEP]
    heapq.heapify(heap)
    passed: list[tuple[int, float, int]] = []
    short_of_gpus = False
    while heap:
        entry = heapq.heappop(heap)
        what, _, row = entry
        if least_only and what != FIRST_GPUS:
            break
        at = rung[row]
        wanted = held[row][at + 1] - held[row][at]
        change_g = period_g[row][at + 1] - period_g[row][at]
        if wanted > free:
            short_of_gpus = True
        elif spent_g + change_g > limit_g:
            passed.append(entry)
            if past_budget == "stop" and what != FIRST_GPUS:
                break
        else:
            rung[row] = at = at + 1
            free -= wanted
            spent_g += change_g
            if at < steps and kind[row][at] != NO_STEP:
                heapq.heappush(heap, (kind[row][at], rank[row][at], row))
            if change_g < 0.0:
                while passed:
                    heapq.heappush(heap, passed.pop())
    choice = ladders.choice[range(len(rung)), rung]
    return Climbed(choice=choice, short_of_budget=bool(passed), short_of_gpus=short_of_gpus)
