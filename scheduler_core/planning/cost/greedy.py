"""The deterministic greedy, readable: jobs by pressure, each with its cheapest configuration that is in time.

Chance, improvement and relinking are in `randomised` and `relinking`, whose compiled greedy equals this one.
Called by `randomised` for each job's configurations, by the experiments as the plan to beat, and by tests.
"""

import numpy as np

from scheduler_core.planning.cost.objective import JOULES_PER_KWH, Terms
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.types import BoolArray, FloatArray, IntArray


def pressure_s(terms: Terms) -> FloatArray:
    """Return now + best remaining run time - due date of every job (J,): -inf where there is nothing to hurry for."""
    fastest = terms.run_s.min(axis=(1, 2), initial=np.inf)
    return np.where(np.isfinite(fastest), fastest, -np.inf) - terms.slack_s


def by_pressure(terms: Terms) -> IntArray:
    """Return the jobs by falling pressure; equal ones by what tells them apart, not by the order they come in."""
    fastest = terms.run_s.min(axis=(1, 2), initial=np.inf)
    return np.lexsort((fastest, -terms.postponed_usd, -terms.weight, -pressure_s(terms)))


def run_usd(problem: Problem, run_s: FloatArray) -> FloatArray:
    """Return the energy of whole runs (J, K, 1 + most GPUs) in USD, each GPU with its share of a full node.

    At the later price where there is one, for it stands for most of the run, else at the present one.
    """
    price = problem.usd_per_kwh if problem.later_usd_per_kwh is None else problem.later_usd_per_kwh
    watts = np.array([kind.gpu_active_w + kind.idle_w / kind.gpus for kind in problem.nodes.types], np.float64)
    usd: FloatArray = run_s * (watts[:, None] * np.arange(run_s.shape[2]) * (price * problem.pue / JOULES_PER_KWH))
    return usd


def configurations(problem: Problem, terms: Terms) -> tuple[IntArray, IntArray, IntArray]:
    """Return each job's node types and GPU counts (2, J, C) in two orders, and how many there are (J,).

    The greedy's: those in time first, the cheapest leading; then the others, the fastest leading. The other: the
    cheapest leading throughout.
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
    """Decide as the source's greedy does, once and without chance.

    A job takes the first of its configurations that fits: on a node that is on already (best fit; first of all where
    the job runs so now), else on one to be switched on; where none fits, it is postponed.

    References
    ----------
    ANDREAS (arXiv 2105.05080); the order of tries beyond the first one is ours.
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
    """Return the node for a configuration, or `POSTPONED`."""
    fits = (terms.kind == kind) & (free >= gpus)
    stay = int(terms.stay_node[job])
    if stay != POSTPONED and terms.stay_gpus[job] == gpus and fits[stay]:
        return stay
    if (fits & on).any():
        return int(np.argmin(np.where(fits & on, free, np.iinfo(np.int64).max)))
    return int(np.argmax(fits)) if fits.any() else POSTPONED
