"""Replays: the recorded jobs of a trace through one reading of its cluster, order by order, size by size.

Arrivals and run times are as recorded; no request is shrunk. Figures are made in `rows`. Called by `study`.
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
from scheduler_core.discipline import Discipline
from scheduler_core.types import BoolArray, FloatArray, IntArray

AGING: Final = 0.1
"""Seconds subtracted from a predicted run time per second waited: ten hours of waiting weigh one hour of size.
Chosen as a round number, not tuned on these traces."""

AGING_GPU_S: Final = 1.0
"""The same for `qssf`, whose keys are GPU-seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A discipline, whether it orders by sizes, and the column of the jobs that it needs.

    `compared` ones are replayed over the sizes from history too; the others over predicted and oracle ones, unless
    sizes are named.
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
"""A plain name is strict: no job passes the first one that does not fit (`drf` and the preemptive orders pass over it).
With `skip` any job may pass, with `easy` only jobs that by prediction do not delay it. `sjf+preempt` is SRTF whose
predictions are not renewed as a job runs."""

FIFO: Final = "fifo"


def orders_for(jobs: pl.DataFrame, names: Sequence[str] | None = None) -> dict[str, Order]:
    """Return the orders of these names, or all whose needed columns the jobs have.

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
"""The name of the sizes of an order that uses none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The jobs of a replay by submission, each with GPUs and a run time, and notes on those left out."""

    jobs: pl.DataFrame
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measured jobs (n) of one run in one pool: how long each took, and how often it was stopped.

    `day` is that of submission (UTC), numbered since the epoch. `jct_s` is NaN for jobs that the pool can never hold;
    `stops` counts how often each was preempted. `offered_gpus` is what the measured jobs would keep busy on average.
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
    """Take what can be replayed: GPU jobs with a run time. CPU and memory requests are left out, as machines tell none.

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
    """Run a plan in every pool of a reading, FIFO first; alone where no job waits under strict FIFO.

    A pool in which no job ever waits under strict FIFO treats every order alike: the others are not run there, and
    their outcome is FIFO's.

    Parameters
    ----------
    jobs
        As `replayed` gives them.
    predicted_s
        Sizes by source, along the jobs.
    plan
        Sources of sizes by order, as `planned` makes it.
    since
        Jobs submitted before it warm the pool up; the others are measured.
    checkpoint_s
        Seconds that every start after a preemption costs.
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
    """Return which sources of sizes each order is replayed over; FIFO and the oracle are always among them.

    Unless `everywhere`, sizes from history are for the orders declared `compared`.
    """
    plan: dict[str, list[str]] = {FIFO: [UNSIZED]}
    for name, order in orders.items():
        own = [s for s in sources if everywhere or order.compared or s in (PREDICTED, ORACLE)]
        plan[name] = [*dict.fromkeys([*own, ORACLE])] if order.sized else [UNSIZED]
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """One pool, which of its jobs are measured, and the columns of those that are the same in every run."""

    reading: Reading
    pool: Pool
    measured: BoolArray
    day: IntArray
    gpus: FloatArray
    run_s: FloatArray
    offered_gpus: float

    def outcome(self, run: Schedule, order: str, sizes: str) -> Outcome:
        """Return the outcome of the measured jobs in a run."""
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
