"""Train the linear scorer by the cross-entropy method, which maximises the utility of simulated weeks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.sites.environment import earned_usd, simulated
from pipelines.simulation.sites.weeks import Weeks, part
from scheduler_core.kernels.site_value import FEATURES
from scheduler_core.planning.sites import Policy, policy
from scheduler_core.types import FloatArray

__all__ = ["BEGIN", "Budget", "trained_scorer", "usd_of"]

BEGIN: Final = {"one": -0.5, "gain": 1.0, "lost_by_not_waiting": -1.0, "urgency": 1.3, "wide": 0.5, "cost_now": -0.5}
"""Weights at which the search begins, by feature; settled on training weeks."""
SPREAD: Final = 0.4
MEMORY: Final = 0.3
"""Weight of the earlier mean and spread in an update of the search."""
LEAST_SPREAD: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Size of a search: generations of `tries` candidates, each simulated on `weeks` weeks; `elite` are kept."""

    generations: int = 24
    tries: int = 32
    elite: int = 8
    weeks: int = 4


def usd_of(weeks: Weeks, chosen: Policy) -> FloatArray:
    """Return the utility of each week (B,) under a policy."""
    return np.asarray(earned_usd(weeks, simulated(weeks, chosen)).sum(axis=1), dtype=np.float64)


def trained_scorer(
    weeks: Weeks, tuning: Weeks, seed: int, budget: Budget | None = None, talk: Callable[[str], None] = lambda _: None
) -> Policy:
    """Return the linear scorer found by the cross-entropy method, the best of its generations on the tuning weeks.

    Each generation draws candidates around a mean, the first around `BEGIN`, and simulates all on the same weeks.
    """
    budget = budget or Budget()
    rng = np.random.default_rng(seed)
    mean, spread = np.array([BEGIN.get(name, 0.0) for name in FEATURES]), np.full(len(FEATURES), SPREAD)
    best, most = policy("scorer", mean.tolist()), -np.inf
    for generation in range(budget.generations):
        tried = mean + spread * rng.standard_normal((budget.tries, len(mean)))
        tried[0] = mean
        some = part(weeks, rng.permutation(len(weeks.arrive))[: budget.weeks])
        usd = np.array([usd_of(some, policy("scorer", each.tolist())).sum() for each in tried])
        elite = tried[np.argsort(-usd)[: budget.elite]]
        mean = MEMORY * mean + (1.0 - MEMORY) * elite.mean(axis=0)
        spread = np.maximum(MEMORY * spread + (1.0 - MEMORY) * elite.std(axis=0), LEAST_SPREAD)
        if generation % 4 == 3 or generation == budget.generations - 1:
            made = policy("scorer", mean.tolist())
            found = float(usd_of(tuning, made).sum())
            talk(f"generation {generation + 1}: {found / len(tuning.arrive):.0f} USD a week of the tuning month")
            if found > most:
                best, most = made, found
    return best
