"""The simulator under backlog: jobs a CPU second of every order with all metrics, on as many machines as Philly's."""

from functools import partial
from typing import Final

import numpy as np

from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.metrics import summarise
from scheduler_core.cluster import Machine
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.queueing import Discipline
from tests.benchmarks.harness import Bar, Row, amount_row, benchmark, cpu_seconds

ROUNDS: Final = 3
JOBS: Final = 100_000
LOAD: Final = 1.3
PHILLY: Final = tuple(
    Machine(name=f"m{number}", cpu_cores=1.0, mem_gib=1.0, gpus=8 if number < 231 else 2) for number in range(552)
)
"""552 machines with 2490 GPUs, as in Philly's machine list; its jobs ask for GPUs only."""
GPUS: Final = (1, 2, 4, 8, 16, 32)
GPU_SHARES: Final = (0.75, 0.07, 0.08, 0.07, 0.02, 0.01)
"""How many GPUs jobs ask for, roughly as in Philly."""
ORDERS: Final = {
    "fifo": (Discipline(), 100_000.0),
    "sjf": (Discipline(policy="sjf"), None),
    "drf": (Discipline(policy="drf"), None),
    "sjf, EASY": (Discipline(policy="sjf", backfill="easy"), 50_000.0),
    "las, preempting": (Discipline(policy="las"), 50_000.0),
    "srtf, preempting": (Discipline(policy="srtf"), 50_000.0),
}
"""Order, and the jobs a second that it should reach."""


def backlog_rows() -> list[Row]:
    """Time every order under backlog; compiled before."""
    jobs, few = philly_like(JOBS), philly_like(10)
    rows = []
    for name, (discipline, aim) in ORDERS.items():
        _seconds(few, discipline)
        rates = [JOBS / _seconds(jobs, discipline) for _ in range(ROUNDS)]
        bar = None if aim is None else Bar(side="at least", value=aim)
        what = f"{name}, {len(PHILLY)} machines, {JOBS} jobs at load {LOAD}"
        rows.append(amount_row(what, rates, unit="jobs/s of a core", bar=bar))
    return rows


def philly_like(jobs: int) -> Workload:
    """Draw arrivals of GPU gangs at `LOAD`, run times spread over six decades."""
    rng = np.random.default_rng(0)
    gpus, run_s = rng.choice(GPUS, jobs, p=GPU_SHARES), rng.lognormal(7.0, 2.0, jobs)
    each = np.minimum(gpus, 8)
    units = np.zeros((jobs, 3), dtype=np.int64)
    units[:, 2] = each * 1000
    instances, never = -(-gpus // each), np.zeros(jobs, dtype=np.bool_)
    span_s = (units[:, 2] * instances * run_s).sum() / (1000 * sum(machine.gpus for machine in PHILLY)) / LOAD
    return Workload(
        arrive_s=np.sort(rng.uniform(0.0, span_s, jobs)),
        request_units=units,
        granted_units=units,
        instances=instances.astype(np.int64),
        gpu_type=np.full(jobs, ANY_GPU_TYPE, dtype=np.int64),
        user=rng.integers(0, 300, jobs),
        priority=np.zeros(jobs),
        run_s=run_s,
        granted_run_s=run_s,
        dies=never,
        fails=never,
        predicted_s=run_s * rng.lognormal(0.0, 0.7, jobs),
    )


def _seconds(workload: Workload, discipline: Discipline) -> float:
    return cpu_seconds(lambda: summarise(simulate(workload, PHILLY, discipline, engine="compiled")))


main = partial(benchmark, "scheduling", __doc__, {"backlog": backlog_rows})

if __name__ == "__main__":
    main()
