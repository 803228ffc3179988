"""Exact optimum of one decision for few jobs and nodes, by the solver HiGHS through scipy.

The objective is that of `scheduler_core.planning.cost.objective`. Called by `gap` and by tests.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from pipelines.errors import PipelineError
from scheduler_core.planning.cost.objective import Terms, cost
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.types import FloatArray, IntArray

_PER_USD = 1e3
"""Units of the solver's objective per USD. The solver's tolerance is 1e-6 units, far below a cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Columns (C,) of all C choices: a job, its node and GPUs, its run time, and its cost.

    `fixed_usd` is the cost that does not depend on the time of the next decision; `usd_per_s` is the cost per second
    until the next decision.
    """

    job: IntArray
    node: IntArray
    gpus: IntArray
    run_s: FloatArray
    fixed_usd: FloatArray
    usd_per_s: FloatArray

    @classmethod
    def of(cls, terms: Terms) -> "Choices":
        """Return all possible choices of a problem."""
        by_node = terms.run_s[:, terms.kind, :]
        job, node, gpus = np.nonzero(np.isfinite(by_node))
        stays = (terms.stay_node[job] == node) & (terms.stay_gpus[job] == gpus)
        again_s = np.where((terms.stay_node[job] != POSTPONED) & ~stays, terms.restart_s, 0.0)
        run_s, kind = by_node[job, node, gpus] + again_s, terms.kind[node]
        late_usd = terms.weight[job] * np.maximum(run_s - terms.slack_s[job], 0.0)
        return cls(
            job=job,
            node=node,
            gpus=gpus,
            run_s=run_s,
            fixed_usd=late_usd + gpus * run_s * terms.later_usd_per_s[kind],
            usd_per_s=gpus * (terms.gpu_usd_per_s - terms.later_usd_per_s)[kind],
        )


def optimum(problem: Problem) -> Decision:
    """Return a decision with the least cost.

    The time to the next decision is the first completion, at most the period. Both this time and the power until then
    depend on the decision, so the objective is not linear. It is linear for a given time: one integer program is solved
    for each possible time of the first completion, and the cheapest solution is returned. Times whose lower bound on
    the cost is above the best known cost are skipped.
    """
    terms = Terms.of(problem)
    choices = Choices.of(terms)
    best, least = Decision.nothing(len(terms.weight)), cost(problem, Decision.nothing(len(terms.weight))).total
    sooner = np.unique(choices.run_s[choices.run_s < terms.period_s])
    for horizon_s in (terms.period_s, *sooner[::-1]):
        if _bound(terms, choices, horizon_s) >= least:
            continue
        found = _with_horizon(terms, choices, horizon_s)
        if found is not None and (usd := cost(problem, found).total) < least:
            best, least = found, usd
    return best


def _bound(terms: Terms, choices: Choices, horizon_s: float) -> float:
    """Return a lower bound on the cost of any decision that lasts `horizon_s`; limits on GPUs are ignored."""
    usd = terms.postponed_usd + terms.postponed_rest_usd
    later = choices.run_s >= horizon_s
    alone = choices.fixed_usd + horizon_s * choices.usd_per_s
    np.minimum.at(usd, choices.job[later], alone[later])
    return float(usd.sum() + horizon_s * np.minimum(terms.node_usd_per_s[terms.kind], 0.0).sum())


def _with_horizon(terms: Terms, choices: Choices, horizon_s: float) -> Decision | None:
    """Return the optimum for one time to the next decision, or None if no decision is possible.

    Variables: one per choice (1 if taken), then one per node (1 if switched on).
    """
    open_ = np.flatnonzero(choices.run_s >= horizon_s)
    if not len(open_):
        return None
    job, node, gpus = choices.job[open_], choices.node[open_], choices.gpus[open_]
    count, nodes, jobs = len(open_), len(terms.kind), len(terms.weight)
    waiting = terms.postponed_usd + terms.postponed_rest_usd
    usd = choices.fixed_usd[open_] + horizon_s * choices.usd_per_s[open_] - waiting[job]
    objective = np.concatenate((usd, horizon_s * terms.node_usd_per_s[terms.kind])) * _PER_USD
    at, one = np.arange(count), np.ones(count)
    each, on = np.arange(nodes), count + np.arange(nodes)
    width = count + nodes
    rows = [
        LinearConstraint(csr_array((one, (job, at)), shape=(jobs, width)), -np.inf, 1.0),
        # Use at most the GPUs of each node, and none of a node that is off.
        LinearConstraint(_both(gpus, node, at, -terms.room, each, on, (nodes, width)), -np.inf, 0.0),
        # Switch on no node without a job; a negative price would otherwise switch on all nodes.
        LinearConstraint(_both(-one, node, at, np.ones(nodes), each, on, (nodes, width)), -np.inf, 0.0),
    ]
    if horizon_s < terms.period_s:
        first = np.where(choices.run_s[open_] == horizon_s, 1.0, 0.0)
        rows.append(LinearConstraint(csr_array(np.concatenate((first, np.zeros(nodes)))[None, :]), 1.0, np.inf))
    whole = np.ones(width, np.int64)
    # Solve exactly: the default gap of 1e-4 would be cents for large costs.
    found = milp(objective, integrality=whole, bounds=Bounds(0, 1), constraints=rows, options={"mip_rel_gap": 0})
    if found.status == 2:  # infeasible: no choice that ends then fits
        return None
    if not found.success:
        raise PipelineError(f"{jobs} jobs on {nodes} nodes: HiGHS returned {found.message!r}, expected an optimum")
    taken = np.flatnonzero(found.x[:count] > 0.5)
    decision = Decision.nothing(jobs)
    decision.node[job[taken]], decision.gpus[job[taken]] = node[taken], gpus[taken]
    return decision


def _both(
    values: FloatArray | IntArray,
    rows: IntArray,
    columns: IntArray,
    more: FloatArray | IntArray,
    more_rows: IntArray,
    more_columns: IntArray,
    shape: tuple[int, int],
) -> csr_array:
    """Return a sparse matrix with two sets of entries, each given as (values, rows, columns)."""
    places = (np.concatenate((rows, more_rows)), np.concatenate((columns, more_columns)))
    return csr_array((np.concatenate((values, more)).astype(np.float64), places), shape=shape)
