"""The deterministic greedy algorithm in plain Python: urgent jobs first, each in its cheapest timely configuration.

A configuration is a node type and a number of GPUs. The compiled greedy algorithm in
`scheduler_core.kernels.cost.search` gives the same plans. Called by `decision` and `lookahead` (only `configurations`),
by the cost study as a baseline, and by tests.
"""

import numpy as np

from scheduler_core.planning.cost.objective import Terms
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["greedy"]


def pressure_s(terms: Terms) -> FloatArray:
    """Return urgencies (J,): now + shortest remaining run time - due date; -inf without due date or configuration."""
    fastest = terms.run_s.min(axis=(1, 2), initial=np.inf)
    return np.where(np.isfinite(fastest), fastest, -np.inf) - terms.slack_s


def by_pressure(terms: Terms) -> IntArray:
    """Return the job indices, most urgent first; weight, cost and run time break ties, not the index."""
    fastest = terms.run_s.min(axis=(1, 2), initial=np.inf)
    return np.lexsort((fastest, -terms.postponed_usd, -terms.weight, -pressure_s(terms)))


def run_usd(problem: Problem, run_s: FloatArray) -> FloatArray:
    """Return the energy cost of whole runs in USD (J, K, 1 + most GPUs).

    Each GPU is charged its share of the idle power of a full node. The later price is used if given, because it applies
    to most of the run; otherwise the current price.
    """
    price = problem.usd_per_kwh if problem.later_usd_per_kwh is None else problem.later_usd_per_kwh
    watts = np.array([kind.gpu_active_w + kind.idle_w / kind.gpus for kind in problem.nodes.types], np.float64)
    usd: FloatArray = run_s * (watts[:, None] * np.arange(run_s.shape[2]) * (price * problem.pue / JOULES_PER_KWH))
    return usd


def configurations(problem: Problem, terms: Terms) -> tuple[IntArray, IntArray, IntArray]:
    """Return each job's possible configurations in two orders: node types and GPU counts, both (2, J, C).

    The third array (J,) is each job's number of configurations. Index 0 is the order of the greedy algorithm:
    configurations that meet the due date by cost, then the others by run time. Index 1 is the order by cost.
    """
    jobs, kinds, counts = terms.run_s.shape
    run_s = terms.run_s.reshape(jobs, kinds * counts)
    possible = np.isfinite(run_s)
    usd = run_usd(problem, np.where(possible, run_s, 0.0).reshape(terms.run_s.shape)).reshape(run_s.shape)
    late = run_s > terms.slack_s[:, None]
    greedy = np.lexsort((usd, np.where(late, run_s, usd), late, ~possible), axis=1)
    order = np.stack((greedy, np.lexsort((run_s, usd, ~possible), axis=1)))
    return order // counts, order % counts, possible.sum(axis=1)


def greedy(problem: Problem) -> Decision:
    """Decide by the greedy algorithm of ANDREAS.

    Jobs choose in order of urgency. A job takes its first configuration that fits: on its current node if it runs there
    in that configuration, else on a node already switched on (best fit), else on a node to be switched on. If no
    configuration fits, the job is postponed.

    References
    ----------
    ANDREAS (arXiv 2105.05080); the order of a job's configurations after the first is ours.
    """
    terms = Terms.of(problem)
    kinds, counts, many = configurations(problem, terms)
    free, on = terms.room.copy(), np.zeros(len(terms.kind), np.bool_)
    decision = Decision.nothing(len(terms.weight))
    for job in by_pressure(terms):
        for option in range(many[job]):
            gpus = int(counts[0, job, option])
            node = _fitting(terms, job, int(kinds[0, job, option]), gpus, free, on)
            if node != POSTPONED:
                decision.node[job], decision.gpus[job] = node, gpus
                free[node] -= gpus
                on[node] = True
                break
    return decision


def _fitting(terms: Terms, job: int, kind: int, gpus: int, free: IntArray, on: BoolArray) -> int:
    """Return the node for a configuration, or `POSTPONED` if no node has enough free GPUs."""
    fits = (terms.kind == kind) & (free >= gpus)
    stay = int(terms.stay_node[job])
    if stay != POSTPONED and terms.stay_gpus[job] == gpus and fits[stay]:
        return stay
    if (fits & on).any():
        return int(np.argmin(np.where(fits & on, free, np.iinfo(np.int64).max)))
    return int(np.argmax(fits)) if fits.any() else POSTPONED
