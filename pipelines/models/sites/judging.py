"""Judge policies on the same weeks: utility between no job running (0) and the clairvoyant bound (1), and its parts.

Intervals over weeks are made in the study.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import numpy as np

from modelserve.bundle.routing_policy import RoutingPolicy
from pipelines.simulation.sites.environment import Clairvoyant, begun, clairvoyant, outcome_of, rows_of, simulated
from pipelines.simulation.sites.loop import State, act, prepare
from pipelines.simulation.sites.weeks import Place, Terms, Weeks
from scheduler_core.planning.sites import POLICIES, Policy, Support

__all__ = ["FEASIBLE", "RULES", "bounds_of", "judged", "routing_policy", "rows_of_state"]

FEASIBLE: Final = "feasible"
RULES: Final = tuple(name for name in POLICIES if name != "scorer")

Row = dict[str, object]


def bounds_of(weeks: Weeks, seed: int, talk: Callable[[str], None] = lambda _: None) -> list[Clairvoyant]:
    """Return the clairvoyant bound and best schedule of every week of a batch."""
    found = []
    for b in range(len(weeks.arrive)):
        found.append(clairvoyant(weeks, b, np.random.default_rng([seed, b])))
        talk(
            f"week {b + 1} of {len(weeks.arrive)}: the best schedule reaches {found[-1].usd / found[-1].bound_usd:.3f}"
        )
    return found


def judged(
    places: Sequence[Place], weeks: Weeks, policies: Mapping[str, Policy], bounds: Sequence[Clairvoyant]
) -> Iterator[Row]:
    """Yield a row per week and policy; with bounds also the normalised utility, and rows of the best schedule."""
    for name, each in policies.items():
        yield from rows_of_state(name, places, weeks, simulated(weeks, each), bounds)
    if bounds:
        best = begun(weeks)
        for b, bound in enumerate(bounds):
            best.start[b, : len(bound.start)], best.site[b, : len(bound.site)] = bound.start, bound.site
        yield from rows_of_state(FEASIBLE, places, weeks, best, bounds)


def rows_of_state(
    name: str, places: Sequence[Place], weeks: Weeks, state: State, bounds: Sequence[Clairvoyant]
) -> Iterator[Row]:
    """Yield a row per week of a finished state."""
    for b in range(len(weeks.arrive)):
        row: Row = {"policy": name, "week": b, **asdict(outcome_of(places, weeks, state, b))}
        if bounds:
            row["utility"] = float(str(row["utility_usd"])) / bounds[b].bound_usd
        yield row


def routing_policy(weeks: Weeks, chosen: Policy, terms: Terms) -> RoutingPolicy:
    """Return a policy with its support: the features of all starts that were possible under the greedy rule."""
    state, (mask, rows) = begun(weeks), rows_of(weeks)
    low, high = np.full(rows.shape[-1], np.inf), np.full(rows.shape[-1], -np.inf)
    sites = weeks.capacity.shape[1]
    earned, wait = np.zeros((len(weeks.arrive), sites)), np.int64(sites)
    gain = 1
    while prepare(weeks, state, mask, rows):
        legal = rows[mask[:, :, :sites]]
        if len(legal):
            low, high = np.minimum(low, legal.min(axis=0)), np.maximum(high, legal.max(axis=0))
        gains = np.where(mask[:, :, :sites], rows[..., gain], -np.inf)
        act(weeks, state, np.where(gains.max(axis=2) > 0.0, gains.argmax(axis=2), wait), earned)
    return RoutingPolicy(
        policy=chosen,
        support=Support(low=low, high=high),
        worth_usd_per_gpu_h=terms.worth_usd_per_gpu_h,
        carbon_usd_per_t=terms.carbon_usd_per_t,
        miss_usd=terms.miss_usd,
        egress_usd_per_gb=terms.egress_usd_per_gb,
        kwh_per_gb=terms.kwh_per_gb,
    )
