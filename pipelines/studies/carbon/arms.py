"""Who plans: taut at a price of energy, the source's two stages, each alone, and the baselines, by name.

What they do is `scheduler_core.planning.carbon`'s. Called by the carbon experiment.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from pipelines.studies.carbon.baselines import fifo_at_max, fixed_at_optimal, greedy_at_max
from pipelines.studies.carbon.simulation import Planner
from scheduler_core.planning.carbon.allocator import Stage, allocate
from scheduler_core.planning.carbon.priced import priced

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
    prices_s_per_kwh: tuple[float, ...] = ()

    def at(self, price_s_per_kwh: float | None) -> Planner:
        """Return the planner, at a price if it takes one."""
        return self.planner if price_s_per_kwh is None else partial(priced, price_s_per_kwh=price_s_per_kwh)


PRICES_S_PER_KWH: Final = (0.0, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
"""From none, which is the allocator without a budget, to a price at which nearly no step is worth it."""

TWO_STAGES: Final = "two_stages"

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

VARIANTS: Final = {
    TWO_STAGES: Arm(planner=allocate),
    "two_stages_banked": Arm(planner=allocate, banks=True),
}
"""The source's two stages under a budget every period; and with what a period leaves of it kept for later (ours)."""

ARMS: Final = {
    TAUT: Arm(planner=priced, prices_s_per_kwh=PRICES_S_PER_KWH, follows_budget=False),
    **VARIANTS,
    **ABLATION,
    **BASELINES,
}
"""taut has a price of energy, the same at all times, in the place of a budget every period (ours)."""
