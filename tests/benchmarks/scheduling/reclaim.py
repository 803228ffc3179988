"""Reclaiming timed: one round of reservations and free capacity, and 12 hours of experiment 1 on shared machines.

Called by `tests.benchmarks.scheduling`.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.simulation.advice import oracle_of
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.settings import PAPER_RATE_PER_H
from pipelines.simulation.shared.inputs import load_of
from pipelines.simulation.shared.run import simulate_shared
from pipelines.simulation.simulate import ALL
from pipelines.simulation.workloads import arriving, gangs_of
from pipelines.studies.reclaim.arms import sized
from pipelines.studies.shrinking.arms import sizing
from pipelines.studies.shrinking.runs import TYPES, WITH, drawn, populations, weights_of
from pipelines.synth.pai import synthesise
from scheduler_core.cluster import paper_machines
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import Measurements, ReservePolicy, reserve
from scheduler_core.risk import admits, free_capacity
from scheduler_core.shrink import ShrinkPolicy
from tests.benchmarks.serving.figures import Bar, Row, amount_row

JOBS: Final = 10_000
NEWCOMERS: Final = 100
MACHINES: Final = 1_000
ROUNDS: Final = 5
TASKS: Final = 20_000
ARMS: Final = ("requested", "reclaim", "overcommit_1.5", "oracle", "bound")


def reclaim_rows() -> list[Row]:
    """Time a round of reservations, and each arm of a simulation."""
    what = f"reserve {JOBS} running jobs, free capacity of {MACHINES} machines, admit {NEWCOMERS} newcomers"
    round_s(0)
    taken = [round_s(seed) for seed in range(ROUNDS)]
    rows = [amount_row("g", what, taken, unit="s", bar=Bar(side="under", value=0.3))]
    with tempfile.TemporaryDirectory() as scratch:
        for arm, sharing, seconds in _arms_s(_pool(Path(scratch))):
            name = f"{PAPER_HORIZON_S / 3600.0:g} h of experiment 1 on shared machines, {arm}, {sharing}"
            rows.append(amount_row("g", name, seconds, unit="s", bar=Bar(side="at most", value=2.0)))
    return rows


def round_s(seed: int, running: int = JOBS, machines: int = MACHINES) -> float:
    """Return the seconds of one round over running jobs drawn at random."""
    rng = np.random.default_rng(seed)
    pairs = (running, 2)
    seen = Measurements(
        age_s=rng.uniform(0.0, 7200.0, running),
        silent_s=rng.uniform(0.0, 90.0, running),
        pressed_ago_s=np.full(pairs, np.inf),
        count=rng.integers(0, 120, running).astype(np.float64),
        mean=rng.uniform(0.1, 4.0, pairs),
        squares=rng.uniform(0.0, 40.0, pairs),
        recent=rng.uniform(0.1, 4.0, pairs),
        memory=rng.uniform(0.0, 1.0, pairs),
        held=np.zeros(running, dtype=np.bool_),
    )
    requests, machine = rng.uniform(1.0, 8.0, (running, 3)), rng.integers(0, machines, running)
    newcomers, ones, policy = rng.uniform(1.0, 8.0, (NEWCOMERS, 2)), np.ones(running), ReservePolicy()
    capacity = np.full(machines, 96.0)
    began = time.perf_counter()
    found = reserve(requests, seen, policy)
    for at in range(2):
        mean, spread = found.mean[:, at], found.spread[:, at]
        free = free_capacity(capacity, machine, ones, mean, spread, policy.z)
        variance = np.bincount(machine, weights=spread**2, minlength=machines)
        for newcomer in newcomers[:, at]:
            admits(free, variance, float(newcomer), 0.0, 1, policy.z)
    return time.perf_counter() - began


def _pool(scratch: Path) -> Pool:
    """Return the measured jobs of a synthetic trace."""
    synthesise(scratch / "raw", tasks=TASKS, seed=0)
    ingest("pai", scratch / "raw", scratch / "lake", as_name="pai-synth")
    with Lake(scratch / "lake") as lake:
        jobs, usage = (lake.table(table, "pai-synth").collect() for table in ("jobs", "usage"))
    return job_pool(jobs.filter(pl.col("task_type").is_in(TYPES)), usage)


def _arms_s(pool: Pool) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the arm, how GPUs are counted, and the seconds of simulations; the first, which compiles, is dropped."""
    working = gangs_of(pool.frame)
    gangs = replace(working, fails=np.zeros_like(working.fails))
    load, inputs, policy = load_of(pool.jobs, gangs), sizing(pool, oracle_of(pool), ShrinkPolicy()), ReservePolicy()
    members, mix = populations(pool)[WITH, ALL], weights_of(WITH)
    draws = [drawn(pool, members, mix, PAPER_RATE_PER_H, PAPER_HORIZON_S, seed) for seed in range(ROUNDS)]
    for arm in ARMS:
        size = sized(arm, inputs, gangs, policy)
        for sharing in ("pooled", "devices"):
            seconds = []
            for arrivals in [draws[0], *draws]:
                workload = arriving(gangs, size.starts, arrivals.at_s, arrivals.picks)
                began = time.perf_counter()
                simulate_shared(
                    workload,
                    load.picked(arrivals.picks),
                    paper_machines(),
                    size.reserving,
                    discipline=Discipline(sharing=sharing),  # type: ignore[arg-type] -- one of two names
                    horizon_s=PAPER_HORIZON_S,
                    seed=arrivals.seed,
                )
                seconds.append(time.perf_counter() - began)
            yield arm, sharing, seconds[1:]
