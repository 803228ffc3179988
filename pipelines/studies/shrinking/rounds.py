"""Equation 13 of Yang, Hong and Tang: the jobs that one round of Algorithm 2 places, and a bound on them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_diag, hstack, identity, vstack

from pipelines.simulation.advice import Advice
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import one_instance_each
from pipelines.simulation.paired_runs import paired_runs
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.compare import ARM
from pipelines.studies.intervals import mean, ratio
from pipelines.studies.shrinking.runs import Plan
from pipelines.studies.study import Row
from scheduler_core.cluster import Machine
from scheduler_core.types import FloatArray

QUEUE_H: Final = 2.0
"""Hours of arrivals that wait in the round, which starts on empty machines."""

START_S: Final = 1e-3
"""Seconds for which the round is simulated: only its starts count."""


def most_placed(demands: FloatArray, machines: Sequence[Machine]) -> float:
    """Return an upper bound of the sum of x_ij of equation 13: the optimum with jobs that may be split, rounded down.

    `demands` (n, 3) are the requests of single-instance jobs; every p_j is 1. A job is placed once at most, and no
    machine gives more than it has.
    """
    capacity = np.array([[each.cpu_cores, each.mem_gib, each.gpus] for each in machines], dtype=np.float64).ravel()
    once = hstack([identity(len(demands), format="csr")] * len(machines))
    taken = vstack([block_diag([demands.T] * len(machines)), once], format="csr")
    limits = np.concatenate([capacity, np.ones(len(demands))])
    gain = -np.ones(len(demands) * len(machines))
    found = linprog(gain, A_ub=taken, b_ub=limits, bounds=(0.0, 1.0), method="highs")
    return float(np.floor(1e-6 - np.asarray(found.fun, dtype=np.float64)))


def round_rows(plan: Plan, advice: Advice, seeds: Sequence[int]) -> list[Row]:
    """Return for each arm the jobs that a greedy round (FIFO, best fit) places, and the bound of equation 13.

    `of_bound` is their ratio with its interval over seeds; the share of the optimum is at least as large.
    """
    pool, machines = one_instance_each(plan.pool), plan.settings.cluster.machines
    gangs, began = gangs_of(pool.frame), replace(plan.settings, horizon_s=START_S)
    queued = replace(plan, settings=replace(plan.settings, horizon_s=QUEUE_H * SECONDS_PER_HOUR))
    placed: dict[str, list[float]] = {arm: [] for arm in advice}
    best: dict[str, list[float]] = {arm: [] for arm in advice}
    waiting: list[int] = []
    for arrivals in (arrivals for seed in seeds for _, _, arrivals in queued.cases(seed)):
        waiting.append(len(arrivals.picks))
        at_once = replace(arrivals, at_s=np.zeros(len(arrivals.picks)))
        for run in paired_runs(pool, gangs, advice, ("unchanged",), [at_once], began):
            if run.arm in advice:
                placed[run.arm].append(run.metrics.deployed)
                demands = np.array([advice[run.arm][row].target.row() for row in arrivals.picks.tolist()])
                best[run.arm].append(most_placed(demands, machines))
    rows: list[Row] = []
    for arm, bounds in best.items():
        row: Row = {ARM: arm, "waiting": float(np.mean(waiting)), **mean(placed[arm]).columns("placed")}
        rows.append(row | mean(bounds).columns("bound") | ratio(placed[arm], bounds).columns("of_bound"))
    return rows
