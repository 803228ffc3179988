"""The deterministic greedy algorithm of ANDREAS: urgent jobs first, each in its cheapest timely configuration.

A configuration is a node type and a number of GPUs.
"""

import numpy as np

from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["greedy"]


def by_pressure(problem: Problem, run_s: FloatArray) -> IntArray:
    """Return the job indices, most urgent first; weight and run time break ties.

    Urgency is now + shortest remaining run time - due date; -inf without due date or configuration.
    """
    fastest = run_s.min(axis=(1, 2), initial=np.inf)
    pressure_s = np.where(np.isfinite(fastest), fastest, -np.inf) - problem.slack_s
    return np.lexsort((fastest, -problem.jobs.weight_usd_per_s, -pressure_s))


def greedy(problem: Problem) -> Decision:
    """Decide by the greedy algorithm of ANDREAS.

    Jobs choose in order of urgency: of the configurations that meet the due date by cost, then of the others by run
    time, the first that fits. It goes to the job's current node if the job runs there in that configuration, else to a
    node already switched on (best fit), else to a node to be switched on. If none fits, the job is postponed.

    References
    ----------
    ANDREAS (arXiv 2105.05080); the order of a job's configurations after the first is ours.
    """
    run_s = problem.possible_run_s()
    jobs, kinds, counts = run_s.shape
    possible = np.isfinite(run_s).reshape(jobs, kinds * counts)
    usd = problem.run_usd(np.where(np.isfinite(run_s), run_s, 0.0)).reshape(jobs, kinds * counts)
    flat_s = run_s.reshape(jobs, kinds * counts)
    late = flat_s > problem.slack_s[:, None]
    order = np.lexsort((usd, np.where(late, flat_s, usd), late, ~possible), axis=1)
    free, on = problem.nodes.gpus, np.zeros(len(problem.nodes.type_of), np.bool_)
    decision = Decision.nothing(jobs)
    for job in by_pressure(problem, run_s):
        for option in order[job, : possible[job].sum()]:
            kind, gpus = divmod(int(option), counts)
            node = _fitting(problem, job, kind, gpus, free, on)
            if node != POSTPONED:
                decision.node[job], decision.gpus[job] = node, gpus
                free[node] -= gpus
                on[node] = True
                break
    return decision


def _fitting(problem: Problem, job: int, kind: int, gpus: int, free: IntArray, on: BoolArray) -> int:
    """Return the node for a configuration, or `POSTPONED` if no node has enough free GPUs."""
    fits = (problem.nodes.type_of == kind) & (free >= gpus)
    stay = int(problem.standing.node[job])
    if stay != POSTPONED and problem.standing.gpus[job] == gpus and fits[stay]:
        return stay
    if (fits & on).any():
        return int(np.argmin(np.where(fits & on, free, np.iinfo(np.int64).max)))
    return int(np.argmax(fits)) if fits.any() else POSTPONED
