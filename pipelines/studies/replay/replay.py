"""Replay the recorded jobs of a trace on one reading of its cluster, under queue orders and sources of sizes.

Arrivals and run times are as recorded; no request is shrunk.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage, LakeError
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.job_pool import submissions
from pipelines.simulation.workloads import recorded_workload
from pipelines.studies.replay.capacity import SECONDS_PER_DAY, Pool, Reading
from pipelines.studies.replay.sizes import ORACLE, PREDICTED, Sizes
from scheduler_core.queueing import Discipline
from scheduler_core.types import BoolArray, FloatArray, IntArray

QUANTUM_S: Final = 600.0
"""Minimum seconds that a started job runs before it may be preempted, if a restart costs little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A queue order, and whether it uses sizes (run-time estimates).

    If `compared`, it is replayed with sizes from history too, and not only with predicted sizes and the oracle's.
    `least_runs` is the minimum run time before a preemption, as a multiple of the restart cost.
    """

    discipline: Discipline
    sized: bool = True
    compared: bool = False
    least_runs: float = 6.0


STRICT: Final = Discipline(overtakes=0)

ORDERS: Final[dict[str, Order]] = {
    "fifo": Order(discipline=STRICT, sized=False),
    "fifo+easy": Order(discipline=Discipline(backfill="easy")),
    "sjf": Order(discipline=replace(STRICT, policy="sjf"), compared=True),
    "sjf+easy": Order(discipline=Discipline(policy="sjf", backfill="easy"), compared=True),
    "srtf": Order(discipline=Discipline(policy="srtf"), compared=True),
    "las": Order(discipline=Discipline(policy="las"), sized=False),
    "las_time": Order(discipline=Discipline(policy="las_time"), sized=False),
    "mlfq": Order(discipline=Discipline(policy="mlfq")),
    "gittins": Order(discipline=Discipline(policy="gittins"), least_runs=2.0),
}
"""Queue orders by name.

Without a suffix, no job starts before a job ahead of it that does not fit (except under the preemptive orders). With
`+easy`, a job may start if by the predictions it does not delay the first job that does not fit (EASY backfilling).
`las` sorts by attained GPU time, `las_time` by attained run time. `mlfq` and `gittins` use sizes and attained run
time. `least_runs` was chosen on Philly's jobs of October 2017: if restarts cost much, `las` and `las_time` gain from
long runs, while `gittins` spares running jobs by itself.
"""

FIFO: Final = "fifo"


def orders_for(names: Sequence[str]) -> dict[str, Order]:
    """Return the queue orders of these names; by default all."""
    if unknown := sorted(set(names) - set(ORDERS)):
        raise BadUsage(f"no order {', '.join(unknown)}; there are {', '.join(ORDERS)}")
    return {name: order for name, order in ORDERS.items() if not names or name in names}


UNSIZED: Final = "none"
"""Name of the source of sizes for orders that use no sizes."""


def planned(orders: Mapping[str, Order], sources: Sequence[str], *, everywhere: bool) -> dict[str, list[str]]:
    """Return the sources of sizes with which each order is replayed.

    FIFO is always replayed, and every order that uses sizes is replayed with the oracle's. Sizes from history are used
    for orders with `compared` only, or with `everywhere` for all.
    """
    plan: dict[str, list[str]] = {FIFO: [UNSIZED]}
    for name, order in orders.items():
        own = [s for s in sources if everywhere or order.compared or s in (PREDICTED, ORACLE)]
        plan[name] = [*dict.fromkeys([*own, ORACLE])] if order.sized else [UNSIZED]
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measured jobs (n) of one queue order and source of sizes in one pool.

    `day` is the UTC day of submission, counted from the epoch (n,); `gpus` and `run_s` are GPUs of the whole gang and
    recorded run time (n,). `jct_s` is the time from submission to end (n,), NaN for jobs too large for the pool;
    `stops` is the number of preemptions (n,). `offered_gpus` is the mean number of GPUs that the measured jobs need.
    """

    reading: Reading
    pool: Pool
    order: str
    sizes: str
    day: IntArray
    gpus: FloatArray
    run_s: FloatArray
    jct_s: FloatArray
    stops: IntArray
    offered_gpus: float


def replayed(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the jobs that can be replayed, GPU jobs with a run time, by submission, and notes on those left out.

    Their CPU and memory requests are removed, because the CPU and memory of machines are unknown.
    """
    on_gpus = jobs.filter((pl.col("req_gpus") * pl.col("instances")).fill_null(0.0) > 0.0)
    if on_gpus.is_empty():
        raise LakeError(f"found no job that asks for GPUs among {jobs.height}; expected a GPU trace")
    taken = submissions(on_gpus)
    left = jobs.height - on_gpus.height
    notes = [*taken.notes(), *([f"left out: {left} jobs without GPUs"] if left else [])]
    nothing = pl.lit(None, dtype=pl.Float64)
    return taken.jobs.with_columns(req_cpu_cores=nothing, req_mem_gib=nothing), notes


def replay(
    jobs: pl.DataFrame,
    sizes: Sizes,
    reading: Reading,
    plan: Mapping[str, Sequence[str]],
    *,
    restart_cost_s: float,
) -> Iterator[Outcome]:
    """Yield the outcome of every queue order and source of sizes in a plan, for every pool of a reading.

    Jobs are as `replayed` returns them, with sizes in their order; those submitted before `sizes.since` only fill the
    pool and are not measured. If no job of a pool ever waits under strict FIFO, all orders have its outcome. Each
    restart after a preemption costs `restart_cost_s`.
    """
    for pool in reading.pools:
        rows = np.flatnonzero((jobs["vc"] == pool.vc).to_numpy()) if pool.vc is not None else np.arange(jobs.height)
        own = jobs[rows]
        measured = (own["submit_ts"] >= sizes.since).to_numpy()
        if not measured.any():
            continue
        workload = recorded_workload(own, gpus_per_machine=max(machine.gpus for machine in pool.machines))
        first = simulate(workload, pool.machines, ORDERS[FIFO].discipline)
        waits = bool((first.start_s > workload.arrive_s[first.job]).any())
        for order, sources in plan.items():
            discipline = ORDERS[order].discipline
            quantum_s = max(QUANTUM_S, ORDERS[order].least_runs * restart_cost_s)
            discipline = replace(discipline, restart_cost_s=restart_cost_s, quantum_s=quantum_s)
            for source in sources:
                run = first
                if waits and order != FIFO:
                    own_sizes = workload
                    if source != UNSIZED:
                        p50_s, p90_s = sizes.predicted_s[source][rows], sizes.predicted_p90_s[source][rows]
                        own_sizes = replace(workload, predicted_s=p50_s, predicted_p90_s=p90_s)
                    run = simulate(own_sizes, pool.machines, discipline)
                yield _outcome(own, run, measured, reading, pool, order, source)


def _outcome(
    jobs: pl.DataFrame, run: Schedule, measured: BoolArray, reading: Reading, pool: Pool, order: str, sizes: str
) -> Outcome:
    workload = run.workload
    gpus = (jobs["req_gpus"] * jobs["instances"]).to_numpy()[measured]
    arrive_s, run_s = workload.arrive_s[measured], workload.run_s[measured]
    preempted = run.job[run.ending == Ending.PREEMPTED]
    return Outcome(
        reading=reading,
        pool=pool,
        order=order,
        sizes=sizes,
        day=jobs["submit_ts"].dt.epoch("d").to_numpy().astype(np.int64)[measured],
        gpus=gpus,
        run_s=run_s,
        jct_s=(run.finished_s - workload.arrive_s)[measured],
        stops=np.bincount(preempted, minlength=len(measured))[measured],
        offered_gpus=float((gpus * run_s).sum()) / max(float(arrive_s[-1] - arrive_s[0]), SECONDS_PER_DAY),
    )
