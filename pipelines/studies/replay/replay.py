"""Replay the recorded jobs of a trace on one reading of its cluster, under every queue order and source of sizes.

Arrivals and run times are as recorded; no request is shrunk. Metrics are computed in `rows`. Called by `study`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage, LakeError
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.job_pool import submissions
from pipelines.simulation.workloads import recorded_workload
from pipelines.studies.replay.capacity import SECONDS_PER_DAY, Pool, Reading
from pipelines.studies.replay.sizes import ORACLE, PREDICTED
from scheduler_core.queueing import Discipline
from scheduler_core.types import BoolArray, FloatArray, IntArray

AGING: Final = 0.1
"""Seconds subtracted from a job's predicted run time for each second it has waited: ten hours of waiting count like one
hour less run time. A round number, not tuned on these traces."""

AGING_GPU_S: Final = 1.0
"""GPU-seconds subtracted for each second waited under `qssf`, which sorts by predicted GPU-seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A queue order.

    Attributes
    ----------
    discipline
        The rules of the queue.
    sized
        Whether it uses sizes (run-time estimates).
    compared
        Whether it is replayed with sizes from history too, and not only with predicted sizes and the oracle's. If the
        user names sources of sizes, every order is replayed with all of them.
    needs
        Column of the jobs table without which the order is not replayed.
    """

    discipline: Discipline
    sized: bool = True
    compared: bool = False
    needs: str | None = None


STRICT: Final = Discipline(overtakes=0)

ORDERS: Final[dict[str, Order]] = {
    "fifo": Order(discipline=STRICT, sized=False),
    "fifo+skip": Order(discipline=Discipline(), sized=False),
    "fifo+easy": Order(discipline=Discipline(backfill="easy")),
    "sjf": Order(discipline=replace(STRICT, policy="sjf"), compared=True),
    "sjf+skip": Order(discipline=Discipline(policy="sjf")),
    "sjf+easy": Order(discipline=Discipline(policy="sjf", backfill="easy"), compared=True),
    "sjf+aging": Order(discipline=replace(STRICT, policy="sjf", aging=AGING)),
    "sjf+aging+easy": Order(discipline=Discipline(policy="sjf", aging=AGING, backfill="easy")),
    "qssf": Order(discipline=replace(STRICT, policy="qssf"), compared=True),
    "qssf+easy": Order(discipline=Discipline(policy="qssf", backfill="easy")),
    "qssf+aging": Order(discipline=replace(STRICT, policy="qssf", aging=AGING_GPU_S)),
    "srtf": Order(discipline=Discipline(policy="srtf"), compared=True),
    "srtf+aging": Order(discipline=Discipline(policy="srtf", aging=AGING)),
    "sjf+preempt": Order(discipline=Discipline(policy="sjf", preempt=True)),
    "las": Order(discipline=Discipline(policy="las"), sized=False),
    "drf": Order(discipline=Discipline(policy="drf"), sized=False, needs="user"),
    "drf+easy": Order(discipline=Discipline(policy="drf", backfill="easy"), needs="user"),
    "priority": Order(discipline=replace(STRICT, policy="priority"), sized=False, needs="priority"),
}
"""Queue orders by name.

Without a suffix, no job starts before a job ahead of it that does not fit (except under `drf` and the preemptive
orders). With `+skip`, any job that fits may start. With `+easy`, a job may start if by the predictions it does not
delay the first job that does not fit (EASY backfilling). `sjf+preempt` is SRTF with the total predicted run time in
place of the remaining one.
"""

FIFO: Final = "fifo"


def orders_for(jobs: pl.DataFrame, names: Sequence[str] | None = None) -> dict[str, Order]:
    """Return the queue orders of these names; by default all whose needed column the jobs have.

    Raises
    ------
    BadUsage
        If a name is unknown, or needs data that the trace lacks.
    """
    told = {n: o for n, o in ORDERS.items() if o.needs is None or jobs[o.needs].null_count() < jobs.height}
    if unknown := sorted(set(names or ()) - set(told)):
        raise BadUsage(f"no order {', '.join(unknown)} for these jobs; there are {', '.join(told)}")
    return {n: o for n, o in told.items() if not names or n in names}


UNSIZED = "none"
"""Name of the source of sizes for orders that use no sizes."""


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
    predicted_s: Mapping[str, FloatArray],
    reading: Reading,
    plan: Mapping[str, Sequence[str]],
    *,
    since: datetime,
    checkpoint_s: float,
) -> Iterator[Outcome]:
    """Yield the outcome of every queue order and source of sizes in a plan, for every pool of a reading.

    If no job of a pool ever waits under strict FIFO, all orders would have the same outcome: then only FIFO is
    simulated there, and its outcome is returned for all orders.

    Parameters
    ----------
    jobs
        The jobs that `replayed` returns.
    predicted_s
        Sizes in seconds by source, in the order of the jobs.
    plan
        Sources of sizes for each order, as `planned` returns them.
    since
        Jobs submitted before this time only fill the pool and are not measured.
    checkpoint_s
        Seconds that each restart after a preemption costs.
    """
    for pool in reading.pools:
        rows = np.flatnonzero((jobs["vc"] == pool.vc).to_numpy()) if pool.vc is not None else np.arange(jobs.height)
        own = jobs[rows]
        measured = (own["submit_ts"] >= since).to_numpy()
        if not measured.any():
            continue
        workload = recorded_workload(own, gpus_per_machine=max(machine.gpus for machine in pool.machines))
        queue = _queue(reading, pool, own, workload, measured)
        first = simulate(workload, pool.machines, ORDERS[FIFO].discipline)
        waits = bool((first.start_s > workload.arrive_s[first.job]).any())
        for order, sources in plan.items():
            discipline = replace(ORDERS[order].discipline, checkpoint_s=checkpoint_s)
            for source in sources:
                run = first
                if waits and order != FIFO:
                    known_s = predicted_s[source][rows] if source != UNSIZED else workload.predicted_s
                    run = simulate(replace(workload, predicted_s=known_s), pool.machines, discipline)
                yield queue.outcome(run, order, source)


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
