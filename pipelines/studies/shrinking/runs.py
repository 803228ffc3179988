"""Simulation runs of every case under every policy, slowdown model and arm: one row per run, and courses over time.

Also counts which resources waiting jobs lack. `claims` and `goal` make tables from the rows. Called by `designs`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from scipy.stats import t

from pipelines.simulation.advice import Advice
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.series import series
from pipelines.simulation.paired_runs import Run, paired_runs
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.intervals import LEVEL
from pipelines.studies.shrinking.cases import Case
from scheduler_core.cluster import UNITS, Cluster
from scheduler_core.queueing import Discipline
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray

POLICIES: Final[Mapping[str, Discipline]] = {
    "fifo": Discipline(policy="fifo"),
    "srtf": Discipline(policy="srtf", preempt=False),
    "drf": Discipline(policy="drf"),
}
"""The queue policies of Yang, Hong and Tang. Their SRTF only orders the queue; it preempts no job."""

KEY: Final = ("mix", "gnn", "devices", "rate_per_h", "policy", "truth", "arm")
"""Columns that identify a run together with `seed`. `truth` is the slowdown model that runs are simulated under."""

SHORT: Final[Mapping[str, str]] = {"cpu_cores": "cpu", "mem_gib": "mem", "gpus": "gpu"}
"""Prefix of each resource in the column names of metrics."""

STEP_S: Final = 300.0
FULL_FRAC: Final = 0.95
"""Share of a resource that must be allocated, on average over a step, for it to count as fully allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The results of simulation runs.

    `runs` has one row per run: the columns `KEY`, the seed, and metrics. `over_time` has one row per time step of the
    runs recorded over time.
    """

    runs: pl.DataFrame
    over_time: pl.DataFrame


def run_cases(
    pool: Pool,
    advice: Advice,
    cases: Sequence[Case],
    settings: SimulationSettings,
    *,
    policies: Sequence[str] = ("fifo",),
    watched_per_h: float | None = None,
) -> Outcomes:
    """Simulate every case under each policy, slowdown model and arm; record runs at load `watched_per_h` over time."""
    working = gangs_of(pool.frame)
    # A drawn job completes, even if the recorded job failed.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    of = {id(case.arrivals): case for case in cases}
    rows: list[dict[str, object]] = []
    steps: list[pl.DataFrame] = []
    for policy in policies:
        ordered = replace(settings, discipline=POLICIES[policy])
        for run in paired_runs(
            pool, gangs, advice, settings.slowdown_models, [case.arrivals for case in cases], ordered
        ):
            case = of[id(run.arrivals)]
            key = _key(case, policy, run)
            watched = case.rate_per_h == watched_per_h
            levels = over_time(run) if watched else None
            met_h = None if levels is None else cpu_met_h(levels)
            asked = {"cpu_request_cores": asked_cores(run), "cpu_met_h": met_h}
            rows.append({**key, **asdict(run.metrics), **asked, **_lacked(run)})
            if levels is not None:
                steps.append(pl.DataFrame({**levels}).select(*(pl.lit(v).alias(k) for k, v in key.items()), pl.all()))
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return Outcomes(runs=frame, over_time=pl.concat(steps) if steps else pl.DataFrame())


def asked_cores(run: Run) -> float:
    """Return the mean CPU cores that a gang requests when it enters the queue, after shrinking by the arm."""
    workload, counted = run.schedule.workload, ~run.schedule.never_fits
    cores = workload.granted_units[:, 0] * workload.instances / UNITS[0]
    return float(cores[counted].mean()) if counted.any() else float("nan")


def _lacked(run: Run) -> dict[str, float]:
    """Return the share of waiting jobs that lack each resource, by column name."""
    return {f"{SHORT[name]}_lacked_share": share for name, share in lacking(run.schedule).items()}


def over_time(run: Run) -> dict[str, FloatArray]:
    """Return the course of a run in steps of five minutes, by column.

    Columns: `allocated_*`, `used_*` and `asked_*` are shares of the capacity of each resource; `deployed`, `completed`
    and `waiting` count jobs. `asked_*` sums the requests of all submitted jobs that have not ended by the end of the
    step.
    """
    schedule = run.schedule
    course = series(schedule, STEP_S, uses=run.uses)
    totals = [sum(getattr(machine, name) for machine in schedule.machines) for name in RESOURCES]
    columns: dict[str, FloatArray] = {"time_h": np.asarray(course["time_s"], dtype=np.float64) / SECONDS_PER_HOUR}
    for at, (name, total) in enumerate(zip(RESOURCES, totals, strict=True)):
        columns[f"allocated_{name}_frac"] = np.asarray(course[f"allocated_{name}"]) / total
        columns[f"used_{name}_frac"] = np.asarray(course[f"used_{name}"]) / total
        columns[f"asked_{name}_frac"] = _asked(schedule, at, np.asarray(course["until_s"])) / total
    until_s = np.asarray(course["until_s"])
    first_s = np.sort(schedule.start_s[np.unique(schedule.job, return_index=True)[1]])
    columns["deployed"] = np.searchsorted(first_s, until_s, side="right").astype(np.float64)
    columns["completed"] = np.asarray(course["completed"], dtype=np.float64)
    columns["waiting"] = np.asarray(course["waiting"], dtype=np.float64)
    return columns


def cpu_met_h(levels: Mapping[str, FloatArray]) -> float:
    """Return the hour at which 95 % of the CPU was first allocated; the length of the run if it never was."""
    full = levels["allocated_cpu_cores_frac"] >= FULL_FRAC
    hours = levels["time_h"]
    return float(hours[full.argmax()]) if full.any() else float(hours[-1] + STEP_S / SECONDS_PER_HOUR)


def _asked(schedule: Schedule, resource: int, until_s: FloatArray) -> FloatArray:
    """Return the summed requests of submitted jobs that have not ended at each time (k,), in cores, GiB or GPUs."""
    workload, counted = schedule.workload, ~schedule.never_fits
    units = (workload.granted_units[:, resource] * workload.instances)[counted] / UNITS[resource]
    ends_s = np.nan_to_num(schedule.finished_s[counted], nan=np.inf)
    order = np.argsort(ends_s, kind="stable")
    came, gone = (np.concatenate([[0.0], np.cumsum(each)]) for each in (units, units[order]))
    arrived = np.searchsorted(workload.arrive_s[counted], until_s, side="right")
    ended = np.searchsorted(ends_s[order], until_s, side="right")
    return np.asarray(came[arrived] - gone[ended], dtype=np.float64)


def _key(case: Case, policy: str, run: Run) -> dict[str, object]:
    return {
        "mix": case.mix,
        "gnn": case.gnn,
        "devices": case.devices,
        "rate_per_h": case.rate_per_h,
        "policy": policy,
        "truth": run.slowdown_model,
        "arm": run.arm,
        "seed": case.seed,
    }


LOOK_S = SECONDS_PER_HOUR / 2.0
"""Seconds between the times at which waiting jobs are counted."""


def lacking(schedule: Schedule, *, look_s: float = LOOK_S) -> dict[str, float]:
    """Return the share of waiting jobs that lack each resource, over jobs and sampled times; NaN if none waits.

    A job lacks a resource if the machines have too little of it free for all instances of its gang, even if the other
    resources were entirely free. So a job may lack several resources. A job lacks none if each resource is free in
    sufficient amount, though on different machines.
    """
    waited, lacked = 0, np.zeros(len(RESOURCES))
    for now_s in np.arange(look_s, schedule.end_s, look_s).tolist():
        gangs, waiting = _waiting(schedule, now_s)
        if len(waiting):
            waited += len(waiting)
            lacked += (_room(_free(schedule, now_s), gangs) < schedule.workload.instances[waiting][:, None]).sum(0)
    return dict(zip(RESOURCES, (lacked / waited if waited else lacked * np.nan).tolist(), strict=True))


def _waiting(schedule: Schedule, now_s: float) -> tuple[IntArray, IntArray]:
    """Return the units that an instance of each waiting job would be allocated (w, 3), and the waiting jobs (w,)."""
    workload = schedule.workload
    waits: BoolArray = (workload.arrive_s <= now_s) & ~schedule.never_fits & ~(schedule.finished_s <= now_s)
    waits[schedule.job[_running(schedule, now_s)]] = False
    full = np.zeros_like(waits)
    full[schedule.job[(schedule.ending == Ending.KILLED) & (schedule.end_run_s <= now_s)]] = True
    waiting = np.flatnonzero(waits)
    units = np.where(full[waiting, None], workload.request_units[waiting], workload.granted_units[waiting])
    return units, waiting


def _running(schedule: Schedule, now_s: float) -> BoolArray:
    return np.asarray((schedule.start_s <= now_s) & (now_s < schedule.end_run_s), dtype=np.bool_)


def _free(schedule: Schedule, now_s: float) -> IntArray:
    """Return the free capacity of every machine, in units (m, 3)."""
    workload, job = schedule.workload, schedule.job
    each = np.where(schedule.full[:, None], workload.request_units[job], workload.granted_units[job])
    run = np.repeat(np.arange(len(job)), np.diff(schedule.host_offsets))
    here = _running(schedule, now_s)[run]
    free = Cluster(schedule.machines).capacity.astype(np.int64, copy=True)
    np.subtract.at(free, schedule.hosts[here], each[run[here]] * schedule.host_counts[here][:, None])
    return free


def _room(free: IntArray, units: IntArray) -> FloatArray:
    """Return how many instances of each waiting job fit on all machines if only one resource counts (w, 3)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fitting = np.floor(free[:, None, :] / units[None, :, :])
    # A resource that is not requested is never lacking.
    room: FloatArray = np.where(units > 0, fitting.sum(axis=0), np.inf)
    return room


def course_of(over_time: pl.DataFrame) -> pl.DataFrame:
    """Return the course of runs averaged over seeds, with the 95 % interval of each column as `_lo` and `_hi`."""
    if over_time.is_empty():
        return over_time
    keys = ["mix", "gnn", "devices", "rate_per_h", "policy", "truth", "arm", "time_h"]
    seeds = over_time["seed"].n_unique()
    wide = float(t.ppf(0.5 + LEVEL / 2.0, seeds - 1)) / math.sqrt(seeds)
    columns = [name for name in over_time.columns if name not in (*keys, "seed")]
    return over_time.group_by(keys, maintain_order=True).agg(
        *(pl.col(name).mean() for name in columns),
        *((pl.col(name).mean() - wide * pl.col(name).std()).alias(f"{name}_lo") for name in columns),
        *((pl.col(name).mean() + wide * pl.col(name).std()).alias(f"{name}_hi") for name in columns),
    )
