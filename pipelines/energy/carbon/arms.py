"""Who plans: the allocator, its stages alone, and what it is measured against, by name.

What they do is `scheduler_core.energy.carbon`'s. Called by the carbon experiment.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from scheduler_core.energy.carbon.allocator import Stage, allocate
from scheduler_core.energy.carbon.baselines import fifo_at_max, fixed_at_optimal, greedy_at_max
from scheduler_core.energy.carbon.simulation import Planner

TAUT: Final = "taut"
COUNTS: Final[tuple[Stage, ...]] = ("counts",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A planner, whether it takes jobs at the counts they ask for, and whether unused budget is kept for later.

    Where neither counts nor frequencies follow the budget, jobs take the same energy under any that lets them end, and
    a tighter one only makes them wait: such an arm has one point of use, that without a budget.
    """

    planner: Planner
    as_requested: bool = False
    banks: bool = False
    follows_budget: bool = True


BASELINES: Final = {
    "greedy_max": Arm(planner=greedy_at_max),
    "fixed_optimal": Arm(planner=fixed_at_optimal, as_requested=True, follows_budget=False),
    "fifo_max": Arm(planner=fifo_at_max, as_requested=True, follows_budget=False),
}
"""Greedy counts at the highest frequency; requested counts, at energy-optimal ones or first in, first out at it."""

ABLATION: Final = {
    "counts_alone": Arm(planner=partial(allocate, stages=COUNTS)),
    "frequency_alone": Arm(planner=allocate, as_requested=True),
}
"""The first stage at energy-optimal frequencies; the second with requested counts, shortest jobs first."""

VARIANTS: Final = {"taut_banked": Arm(planner=allocate, banks=True)}
"""Ours: what a period leaves of its budget, later ones may use."""

ARMS: Final = {TAUT: Arm(planner=allocate), **VARIANTS, **ABLATION, **BASELINES}
