"""A long replay accounted for, and its jobs held within a day's slack: 100 000 runs on 552 machines over 110 days.

Called by `tests.benchmarks.energy`.
"""

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from pipelines.simulation.energy.account import account
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.job_metrics import Uses
from scheduler_core.cluster import Machine
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.planning.release import released_s
from tests.benchmarks.serving.figures import Bar, Row, amount_row

RUNS: Final = 100_000
MACHINES: Final = 552
DAY_S: Final = 86_400.0
TAKES: Final = 5
BAR: Final = Bar(side="under", value=5.0)
"""Seconds: a replay itself takes longer."""


def accounting_rows() -> list[Row]:
    """Time both, in CPU seconds of the one thread, the median of some takes."""
    ran, grid = _schedule(np.random.default_rng(0)), _grid(np.random.default_rng(1))
    node = NodePower(name="n", cpu_idle_w=40.0, cpu_full_w=330.0, gpu_idle_w=30.0, gpu_full_w=300.0)
    uses, jobs = Uses(mean=np.full((RUNS, 3), np.nan)), ran.workload
    assumed = Assumed(cpu_frac=0.26, gpu_frac=0.52)
    slack_s = np.full(RUNS, DAY_S)
    timed: dict[str, Callable[[], object]] = {
        "account": lambda: account(ran, uses, [node] * MACHINES, grid, 0.0, assumed=assumed),
        "slack of 24 h": lambda: released_s(jobs.arrive_s, slack_s, jobs.run_s, _carbon(grid), 0.0),
    }
    return [
        amount_row("accounting", f"{what}, {RUNS} runs, {MACHINES} machines", [_seconds(do)], unit="s", bar=BAR)
        for what, do in timed.items()
    ]


def _seconds(do: Callable[[], object]) -> float:
    taken: list[float] = []
    for _ in range(TAKES):
        begin = time.process_time()
        do()
        taken.append(time.process_time() - begin)
    return float(np.median(taken))


def _carbon(grid: Grid) -> HourlySeries:
    assert grid.carbon is not None
    return grid.carbon


def _grid(rng: np.random.Generator) -> Grid:
    hours = int(365 * DAY_S / HOUR_S)
    carbon = HourlySeries(start_s=0.0, values=rng.uniform(20.0, 700.0, hours), unit="g/kWh", wrap=True)
    price = HourlySeries(start_s=0.0, values=rng.normal(0.05, 0.1, hours), unit="USD/kWh", wrap=True)
    return Grid(zone="made up", carbon=carbon, price=price, pue=1.2)


def _schedule(rng: np.random.Generator) -> Schedule:
    start_s, run_s = np.sort(rng.uniform(0.0, 100 * DAY_S, RUNS)), rng.exponential(10 * HOUR_S, RUNS)
    never, units = np.zeros(RUNS, dtype=np.bool_), np.tile(np.array([0, 0, 1000]), (RUNS, 1))
    workload = Workload(
        arrive_s=start_s,
        request_units=units,
        granted_units=units,
        instances=np.ones(RUNS, dtype=np.int64),
        gpu_type=np.full(RUNS, ANY_GPU_TYPE),
        user=np.zeros(RUNS, dtype=np.int64),
        priority=np.zeros(RUNS),
        run_s=run_s,
        granted_run_s=run_s,
        dies=never,
        fails=never,
        predicted_s=run_s,
    )
    return Schedule(
        workload=workload,
        machines=tuple(Machine(name=f"m{i}", cpu_cores=0.0, mem_gib=0.0, gpus=8) for i in range(MACHINES)),
        end_s=110 * DAY_S,
        job=np.arange(RUNS),
        start_s=start_s,
        end_run_s=start_s + run_s,
        full=never,
        ending=np.full(RUNS, Ending.COMPLETED, dtype=np.int8),
        host_offsets=np.arange(RUNS + 1),
        hosts=rng.integers(0, MACHINES, RUNS),
        host_counts=np.ones(RUNS, dtype=np.int64),
        never_fits=never,
        finished_s=start_s + run_s,
        stranded_gpu_s=0.0,
    )
