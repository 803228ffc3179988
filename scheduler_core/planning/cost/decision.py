"""Take one decision for all jobs: by a greedy algorithm, by the best of random plans, or by path relinking of plans.

The cost to minimise is in `objective`, the compiled search in `scheduler_core.kernels.cost`. Called by the cost study
and the benchmarks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.kernels.cost.descent import DRAWS
from scheduler_core.kernels.cost.search import ELITE, search
from scheduler_core.kernels.cost.state import Data, plans
from scheduler_core.planning.cost.greedy import by_pressure, configurations, greedy
from scheduler_core.planning.cost.objective import Terms
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.types import FloatArray, IntArray

__all__ = ["METHODS", "Method", "Search", "decide", "sought"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Settings of the search; the default values are ours.

    - `swapping`: randomness of the job order; two neighbours of equal weight swap with probability `swapping` / 2.
    - `wandering`: randomness of configurations; a job's r-th one is tried first with probability proportional to
      `wandering` ** r.
    - `elite`: number of best plans kept.
    - `moving`: whether every plan is improved by moving single jobs and by emptying nodes.
    - `displacing`: whether every plan that may join the best ones is improved by exchanging two jobs.
    - `walking`: whether every plan is path-relinked with one of the best plans.
    - `renewing`: how often per plan one to three nodes of the best plan are emptied and filled again.
    """

    swapping: float = 0.9
    wandering: float = 0.4
    elite: int = 3
    moving: bool = True
    displacing: bool = True
    walking: bool = True
    renewing: int = 2

    def __post_init__(self) -> None:
        if not (0.0 <= self.swapping <= 1.0 and 0.0 <= self.wandering < 1.0 and self.elite >= 1 and self.renewing >= 0):
            found = f"swapping={self.swapping}, wandering={self.wandering}, elite={self.elite}"
            raise BadInput(f"search: found {found}, expected 0..1, 0 up to below 1, and at least 1")


def sought(problem: Problem, rng: np.random.Generator, iterations: int, how: Search) -> tuple[Decision, FloatArray]:
    """Return the best decision of `iterations` plans, and the lowest cost after each plan (iterations,).

    Jobs and nodes are sorted first, so their given order has no effect. A search with more iterations from the same
    `rng` state begins with the same plans, so its result is never worse.
    """
    if iterations < 1:
        raise BadInput(f"iterations: found {iterations}, expected at least 1")
    terms = Terms.of(problem)
    order = by_pressure(terms)
    nodes = np.argsort(terms.kind, kind="stable")
    data = _in_order(problem, terms, order, nodes)
    plan = plans(ELITE + how.elite, data)
    best_usd = np.zeros(iterations)
    draws = rng.random((iterations, 2 * len(order) + DRAWS * how.renewing))
    steps = (how.moving, how.displacing, how.walking, how.renewing)
    best = search(data, plan, draws, how.swapping, how.wandering, *steps, best_usd)
    decision = Decision.nothing(len(order))
    # A node of -1 (postponed) indexes the appended last element.
    decision.node[order], decision.gpus[order] = np.append(nodes, POSTPONED)[plan.node[best]], plan.gpus[best]
    return decision, best_usd


def _in_order(problem: Problem, terms: Terms, order: IntArray, nodes: IntArray) -> Data:
    """Return the constants for the compiled search, with jobs in the order `order` and nodes in the order `nodes`."""
    kinds, counts, many = configurations(problem, terms)
    return Data(
        run_s=np.ascontiguousarray(terms.run_s[order]),
        slack_s=terms.slack_s[order],
        weight=terms.weight[order],
        stay_node=np.append(np.argsort(nodes), POSTPONED)[terms.stay_node[order]],
        stay_gpus=terms.stay_gpus[order],
        restart_s=float(terms.restart_s),
        period_s=float(terms.period_s),
        kind=np.ascontiguousarray(terms.kind[nodes], np.int64),
        room=terms.room[nodes],
        node_rate=terms.node_usd_per_s,
        gpu_rate=terms.gpu_usd_per_s - terms.later_usd_per_s,
        later=terms.later_usd_per_s,
        postponed=(terms.postponed_usd + terms.postponed_rest_usd)[order],
        option_kind=np.ascontiguousarray(kinds[:, order]),
        option_gpus=np.ascontiguousarray(counts[:, order]),
        options=many[order],
    )


ITERATIONS: Final = 10
"""Default number of plans per decision: about a second for 100 nodes and 450 jobs."""

Method = Callable[[Problem, np.random.Generator, int], Decision]
"""Function that takes a problem, a random generator and a number of plans, and returns a decision."""


def plain(problem: Problem, rng: np.random.Generator, iterations: int) -> Decision:
    """Decide by the deterministic greedy algorithm."""
    _ = rng, iterations  # all methods have the same signature
    return greedy(problem)


def randomised(problem: Problem, rng: np.random.Generator, iterations: int) -> Decision:
    """Decide by the cheapest of many randomised greedy plans, as ANDREAS does."""
    return sought(problem, rng, iterations, Search(moving=False, displacing=False, walking=False, renewing=0))[0]


def relinked(problem: Problem, rng: np.random.Generator, iterations: int) -> Decision:
    """Decide by the full search: random plans, improved (ours) and path-relinked, and the best one refilled (ours)."""
    return sought(problem, rng, iterations, Search())[0]


METHODS: Final[dict[str, Method]] = {"greedy": plain, "randomised": randomised, "relinked": relinked}


def decide(
    problem: Problem, rng: np.random.Generator, iterations: int = ITERATIONS, method: str | Method = "relinked"
) -> Decision:
    """Return the node and GPU count of every job until the next decision.

    The same problem, `rng` state and number of iterations give the same decision. More iterations from the same state
    never give a more expensive decision.

    Raises
    ------
    BadInput
        If the method is unknown, or `iterations` is below 1.

    References
    ----------
    ANDREAS (arXiv 2105.05080): randomised greedy. Path relinking is from its authors' code and a later paper.
    """
    if isinstance(method, str) and method not in METHODS:
        raise BadInput(f"method: found {method!r}, expected one of {', '.join(METHODS)}")
    return (METHODS[method] if isinstance(method, str) else method)(problem, rng, iterations)
