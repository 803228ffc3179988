"""Settings of the cost study: loads, run-time errors, weights, prices and policies of every table.

All values were fixed before any reported seed was simulated; values that ANDREAS gives are used. Called by `study` and
`runs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipelines.studies.cost.arms import AHEAD, GREEDY, STRONGEST, first_principle, preemptive
from pipelines.studies.grids import RecordedHours

EXACT, OFF = "exact run times", "run times off"
WEIGHTS, ELSEWHERE, PREEMPTING = "weights planned with", "other prices", "first principles that preempt"
BOUND: Final = "lower bound"
"""Name of the rows of `bound.least_usd` among those of the policies."""

LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)
AT_LOADS: Final = (0.5, 0.7, 0.9)
"""Moderate to high loads at which claims are tested; single parameters are varied at the middle load."""

OFF_BY: Final = 0.1

WEIGHT_FACTORS: Final = (0.001, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0)
"""Factors on the tardiness weights used in planning; costs are computed with the true weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings of one simulation for the table `study`; `value` is the parameter value that this table varies."""

    study: str
    load: float
    zone: str
    arms: tuple[str, ...]
    value: float = 1.0
    off_by: float = 0.0
    weight_factor: float = 1.0


def settings(loads: Sequence[float], at_loads: Sequence[float], zones: Sequence[str]) -> list[Setting]:
    """Return all settings.

    Most policies are simulated at all `loads`; wrong run times and preemptive policies at `at_loads`. Only at the
    middle of `at_loads`, single parameters are varied, and prices of zones other than the first are used.
    """
    home, middle = zones[0], at_loads[len(at_loads) // 2]
    bases = first_principle()
    usual = Setting(study=EXACT, load=middle, zone=home, arms=(AHEAD,))
    return [
        *(replace(usual, load=load, arms=(AHEAD, GREEDY, *bases, BOUND)) for load in loads),
        *(replace(usual, study=OFF, load=load, arms=(AHEAD, *bases, STRONGEST), off_by=OFF_BY) for load in at_loads),
        *(replace(usual, study=WEIGHTS, value=factor, weight_factor=factor) for factor in WEIGHT_FACTORS),
        *(replace(usual, study=ELSEWHERE, zone=zone, arms=(AHEAD, *bases)) for zone in zones[1:]),
        *(replace(usual, study=PREEMPTING, load=load, arms=tuple(preemptive())) for load in at_loads),
    ]


FLAT: Final = "flat"


def with_flat(grids: Sequence[RecordedHours]) -> Mapping[str, RecordedHours]:
    """Return the zones by name, and one with a constant price at the mean of the first zone."""
    home = grids[0]
    series = replace(home.series, values=np.full(len(home.series), home.series.values.mean()))
    return {**{grid.zone: grid for grid in grids}, FLAT: replace(home, zone=FLAT, series=series)}
