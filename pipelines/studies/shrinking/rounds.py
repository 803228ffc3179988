"""Equation 13 of Yang, Hong and Tang: the jobs that one round of Algorithm 2 places, and the most that it could."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import block_diag, hstack, identity

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

LIMIT_S: Final = 10.0
"""Seconds for the solver; after them its best proven bound counts as the optimum."""


def optimum(demands: FloatArray, machines: Sequence[Machine]) -> tuple[float, bool]:
    """Return the maximum of the sum of x_ij, and whether it was reached; else a bound above it.

    `demands` (n, 3) are the requests of single-instance jobs; every p_j is 1. A job has at most one machine, and no
    machine gives more than it has.
    """
    count, rows = len(demands), demands.T
    capacity = np.array([[each.cpu_cores, each.mem_gib, each.gpus] for each in machines], dtype=np.float64).ravel()
    on_machines = LinearConstraint(block_diag([rows] * len(machines), format="csr"), ub=capacity + 1e-9)
    once = LinearConstraint(hstack([identity(count, format="csr")] * len(machines), format="csr"), ub=1.0)
    width = count * len(machines)
    found = milp(
        -np.ones(width),
        integrality=np.ones(width, dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=[on_machines, once],
        options={"time_limit": LIMIT_S},
    )
    bound = count if found.mip_dual_bound is None else 1e-6 - found.mip_dual_bound
    return float(np.floor(bound)), found.status == 0


def round_rows(plan: Plan, advice: Advice, seeds: Sequence[int]) -> list[Row]:
    """Return for each arm the jobs that a greedy round (FIFO, best fit) places, and the optimum of equation 13.

    `of_optimum` is their ratio with its interval over seeds; `proven` counts the seeds whose optimum was reached.
    """
    pool, machines = one_instance_each(plan.pool), plan.settings.cluster.machines
    gangs, began = gangs_of(pool.frame), replace(plan.settings, horizon_s=START_S)
    queued = replace(plan, settings=replace(plan.settings, horizon_s=QUEUE_H * SECONDS_PER_HOUR))
    placed: dict[str, list[float]] = {arm: [] for arm in advice}
    best: dict[str, list[tuple[float, bool]]] = {arm: [] for arm in advice}
    waiting: list[int] = []
    for arrivals in (arrivals for seed in seeds for _, _, arrivals in queued.cases(seed)):
        waiting.append(len(arrivals.picks))
        at_once = replace(arrivals, at_s=np.zeros(len(arrivals.picks)))
        for run in paired_runs(pool, gangs, advice, ("unchanged",), [at_once], began):
            if run.arm in advice:
                placed[run.arm].append(run.metrics.deployed)
                demands = np.array([advice[run.arm][row].target.row() for row in arrivals.picks.tolist()])
                best[run.arm].append(optimum(demands, machines))
    rows: list[Row] = []
    for arm, solved in best.items():
        most = np.array([bound for bound, _ in solved])
        rows.append(
            {ARM: arm, "waiting": float(np.mean(waiting)), **mean(placed[arm]).columns("placed")}
            | {**mean(most).columns("optimum"), **ratio(placed[arm], most).columns("of_optimum")}
            | {"proven": sum(reached for _, reached in solved), "seeds": len(solved)}
        )
    return rows
