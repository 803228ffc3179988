"""Replay the recorded jobs of a trace on one reading of its cluster, under every queue order and source of sizes.

Arrivals and run times are as recorded; no request is shrunk. The orders are in `orders`, metrics in `rows`. Called by
`study`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import LakeError
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.job_pool import submissions
from pipelines.simulation.workloads import recorded_workload
from pipelines.studies.replay.capacity import SECONDS_PER_DAY, Pool, Reading
from pipelines.studies.replay.orders import FIFO, ORDERS, UNSIZED
from pipelines.studies.replay.sizes import Sizes
from scheduler_core.types import BoolArray, FloatArray, IntArray

QUANTUM_S: Final = 600.0
"""Minimum seconds that a started job runs before it may be preempted, if a restart costs little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The jobs to replay in order of submission, each with GPUs and a run time, and notes on the jobs left out."""

    jobs: pl.DataFrame
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measured jobs (n) of one simulation run in one pool.

    Attributes
    ----------
    reading, pool, order, sizes
        The reading and its pool, the name of the queue order, and the source of sizes.
    day
        UTC day of submission, counted from the epoch (n,).
    gpus, run_s
        GPUs of the whole gang, and recorded run time (n,).
    jct_s
        Job completion time: submission to end (n,). NaN for jobs too large for the pool.
    stops
        Number of preemptions (n,).
    offered_gpus
        Mean number of GPUs that the measured jobs need.
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


def replayed(jobs: pl.DataFrame) -> Replayed:
    """Return the jobs that can be replayed: GPU jobs with a run time.

    Their CPU and memory requests are removed, because the CPU and memory of machines are unknown.

    Raises
    ------
    LakeError
        If no job asks for GPUs.
    """
    on_gpus = jobs.filter((pl.col("req_gpus") * pl.col("instances")).fill_null(0.0) > 0.0)
    if on_gpus.is_empty():
        raise LakeError(f"found no job that asks for GPUs among {jobs.height}; expected a GPU trace")
    taken = submissions(on_gpus)
    notes = taken.notes()
    if left := jobs.height - on_gpus.height:
        notes.append(f"left out: {left} jobs without GPUs")
    nothing = pl.lit(None, dtype=pl.Float64)
    bare = taken.jobs.with_columns(req_cpu_cores=nothing, req_mem_gib=nothing)
    return Replayed(jobs=bare, notes=tuple(notes))


def replay(
    jobs: pl.DataFrame,
    sizes: Sizes,
    reading: Reading,
    plan: Mapping[str, Sequence[str]],
    *,
    restart_cost_s: float,
) -> Iterator[Outcome]:
    """Yield the outcome of every queue order and source of sizes in a plan, for every pool of a reading.

    If no job of a pool ever waits under strict FIFO, all orders would have the same outcome: then only FIFO is
    simulated there, and its outcome is returned for all orders.

    Parameters
    ----------
    jobs
        The jobs that `replayed` returns.
    sizes
        Sizes in the order of the jobs. Jobs submitted before `sizes.since` only fill the pool and are not measured.
    plan
        Sources of sizes for each order, as `planned` returns them.
    restart_cost_s
        Seconds that each restart after a preemption costs.
    """
    for pool in reading.pools:
        rows = np.flatnonzero((jobs["vc"] == pool.vc).to_numpy()) if pool.vc is not None else np.arange(jobs.height)
        own = jobs[rows]
        measured = (own["submit_ts"] >= sizes.since).to_numpy()
        if not measured.any():
            continue
        workload = recorded_workload(own, gpus_per_machine=max(machine.gpus for machine in pool.machines))
        queue = _queue(reading, pool, own, workload, measured)
        first = simulate(workload, pool.machines, ORDERS[FIFO].discipline)
        waits = bool((first.start_s > workload.arrive_s[first.job]).any())
        for order, sources in plan.items():
            discipline = ORDERS[order].discipline
            quantum_s = max(QUANTUM_S, ORDERS[order].least_runs * restart_cost_s)
            discipline = replace(discipline, restart_cost_s=restart_cost_s, quantum_s=quantum_s)
            for source in sources:
                run = first
                if waits and order != FIFO:
                    run = simulate(_sized(workload, sizes, source, rows), pool.machines, discipline)
                yield queue.outcome(run, order, source)


def _sized(workload: Workload, sizes: Sizes, source: str, rows: IntArray) -> Workload:
    if source == UNSIZED:
        return workload
    p50_s, p90_s = sizes.predicted_s[source][rows], sizes.predicted_p90_s[source][rows]
    return replace(workload, predicted_s=p50_s, predicted_p90_s=p90_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """One pool, a mask of its measured jobs, and the columns of an outcome that are the same for all runs."""

    reading: Reading
    pool: Pool
    measured: BoolArray
    day: IntArray
    gpus: FloatArray
    run_s: FloatArray
    offered_gpus: float

    def outcome(self, run: Schedule, order: str, sizes: str) -> Outcome:
        """Return the outcome of a run, which has the measured jobs only."""
        preempted = run.job[run.ending == Ending.PREEMPTED]
        return Outcome(
            reading=self.reading,
            pool=self.pool,
            order=order,
            sizes=sizes,
            day=self.day,
            gpus=self.gpus,
            run_s=self.run_s,
            jct_s=(run.finished_s - run.workload.arrive_s)[self.measured],
            stops=np.bincount(preempted, minlength=len(self.measured))[self.measured],
            offered_gpus=self.offered_gpus,
        )


def _queue(reading: Reading, pool: Pool, jobs: pl.DataFrame, workload: Workload, measured: BoolArray) -> _Queue:
    gpus = (jobs["req_gpus"] * jobs["instances"]).to_numpy()[measured]
    arrive_s, run_s = workload.arrive_s[measured], workload.run_s[measured]
    span_s = max(float(arrive_s[-1] - arrive_s[0]), SECONDS_PER_DAY)
    return _Queue(
        reading=reading,
        pool=pool,
        measured=measured,
        day=jobs["submit_ts"].dt.epoch("d").to_numpy().astype(np.int64)[measured],
        gpus=gpus,
        run_s=run_s,
        offered_gpus=float((gpus * run_s).sum()) / span_s,
    )
