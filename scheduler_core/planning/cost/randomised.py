"""Many plans made at random, the best one kept: the problem put in order, the compiled search called, the answer back.

Which search is taken with which settings is decided in `decision`. Called by `decision` and the experiments.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.kernels.cost.descent import DRAWS
from scheduler_core.kernels.cost.search import ELITE, search
from scheduler_core.kernels.cost.state import Data, plans
from scheduler_core.planning.cost.greedy import by_pressure, configurations
from scheduler_core.planning.cost.objective import Terms
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How plans are sought; the values are ours.

    `swapping` is the chance that two neighbours of equal weight change places, doubled; a job's r-th configuration is
    tried first with probability falling as `wandering` ** r. `moving` improves every plan by single moves and emptied
    nodes, `displacing` every elite one by exchanges, `walking` relinks paths to the `elite` best plans. `renewing`
    times a plan, one to three nodes of the best one known are emptied and filled anew.
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
    """Return the best decision of so many plans, and the least cost known after each of them (iterations,).

    Jobs and nodes are put in order first: the order they come in changes nothing. More iterations from the same `rng`
    begin with the same ones, and so are never worse.
    """
    if iterations < 1:
        raise BadInput(f"iterations: found {iterations}, expected at least 1")
    terms = Terms.of(problem)
    order = by_pressure(terms)
    nodes = np.argsort(terms.kind, kind="stable")
    data = _in_order(problem, terms, order, nodes)
    plan = plans(ELITE + how.elite, data)
    course = np.zeros(iterations)
    draws = rng.random((iterations, 2 * len(order) + DRAWS * how.renewing))
    steps = (how.moving, how.displacing, how.walking, how.renewing)
    best = search(data, plan, draws, how.swapping, how.wandering, *steps, course)
    decision = Decision.nothing(len(order))
    # The last place is that of no node: it is what a node of -1 finds.
    decision.node[order], decision.gpus[order] = np.append(nodes, POSTPONED)[plan.node[best]], plan.gpus[best]
    return decision, course


def _in_order(problem: Problem, terms: Terms, order: IntArray, nodes: IntArray) -> Data:
    """Return the constants of the compiled search, jobs and nodes in the orders given."""
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
