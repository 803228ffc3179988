"""The deterministic greedy in plain Python: jobs by pressure, each with its cheapest configuration that is in time.

The compiled greedy in `scheduler_core.kernels.cost.search` equals this one. Called by `decision` and `lookahead` for
the jobs' configurations, by the cost study as the plan to beat, and by tests.
"""

import numpy as np

from scheduler_core.planning.cost.objective import Terms
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["greedy"]


def pressure_s(terms: Terms) -> FloatArray:
    """Return now + shortest remaining run time - due date of every job (J,); -inf without a due date or a node."""
    fastest = terms.run_s.min(axis=(1, 2), initial=np.inf)
    return np.where(np.isfinite(fastest), fastest, -np.inf) - terms.slack_s


def by_pressure(terms: Terms) -> IntArray:
    """Return the jobs by falling pressure; ties are broken by the jobs' numbers, not by their given order."""
    fastest = terms.run_s.min(axis=(1, 2), initial=np.inf)
    return np.lexsort((fastest, -terms.postponed_usd, -terms.weight, -pressure_s(terms)))


def run_usd(problem: Problem, run_s: FloatArray) -> FloatArray:
    """Return the energy cost of whole runs (J, K, 1 + most GPUs) in USD, each GPU with its share of a full node.

    The later price is used if there is one, because it holds for most of the run; otherwise the current price.
    """
    price = problem.usd_per_kwh if problem.later_usd_per_kwh is None else problem.later_usd_per_kwh
    watts = np.array([kind.gpu_active_w + kind.idle_w / kind.gpus for kind in problem.nodes.types], np.float64)
    usd: FloatArray = run_s * (watts[:, None] * np.arange(run_s.shape[2]) * (price * problem.pue / JOULES_PER_KWH))
    return usd


def configurations(problem: Problem, terms: Terms) -> tuple[IntArray, IntArray, IntArray]:
    """Return each job's node types and GPU counts, both (2, J, C), in two orders, and their number (J,).

    Order 0 is the greedy's: configurations in time by cost, then late ones by run time. Order 1: all by cost.
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
    """Decide as the source's greedy does.

    A job takes the first of its configurations that fits: where it runs now with that configuration, else on a node
    already switched on (best fit), else on a node to be switched on. If none fits, the job is postponed.

    References
    ----------
    ANDREAS (arXiv 2105.05080); the order of configurations after the first is ours.
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
    """Return the node for a configuration, or `POSTPONED` if none has room."""
    fits = (terms.kind == kind) & (free >= gpus)
    stay = int(terms.stay_node[job])
    if stay != POSTPONED and terms.stay_gpus[job] == gpus and fits[stay]:
        return stay
    if (fits & on).any():
        return int(np.argmin(np.where(fits & on, free, np.iinfo(np.int64).max)))
    return int(np.argmax(fits)) if fits.any() else POSTPONED
