"""Simulation runs of every case under every slowdown model and arm: one row per run.

Also counts which resources waiting jobs lack. `claims` and `goal` make tables from the rows. Called by `designs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import Advice
from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.series import series
from pipelines.simulation.paired_runs import Run, paired_runs
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.shrinking.cases import Case
from scheduler_core.cluster import UNITS, Cluster
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray

KEY: Final = ("gnn", "devices", "rate_per_h", "truth", "arm")
"""Columns that identify a run together with `seed`. `truth` is the slowdown model that runs are simulated under."""

SHORT: Final[Mapping[str, str]] = {"cpu_cores": "cpu", "mem_gib": "mem", "gpus": "gpu"}
"""Prefix of each resource in the column names of metrics."""

STEP_S: Final = 300.0
FULL_FRAC: Final = 0.95
"""Share of a resource that must be allocated, on average over a step, for it to count as fully allocated."""


def run_cases(pool: Pool, advice: Advice, cases: Sequence[Case], settings: SimulationSettings) -> pl.DataFrame:
    """Simulate every case under each slowdown model and arm; return a row per run: `KEY`, the seed, and metrics."""
    working = gangs_of(pool.frame)
    # A drawn job completes, even if the recorded job failed.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    of = {id(case.arrivals): case for case in cases}
    arrivals = [case.arrivals for case in cases]
    rows: list[dict[str, object]] = []
    for run in paired_runs(pool, gangs, advice, settings.slowdown_models, arrivals, settings):
        asked = {"cpu_request_cores": asked_cores(run), "cpu_met_h": cpu_met_h(run.schedule)}
        rows.append({**_key(of[id(run.arrivals)], run), **asdict(run.metrics), **asked, **_lacked(run)})
    return pl.DataFrame(rows, infer_schema_length=None)


def asked_cores(run: Run) -> float:
    """Return the mean CPU cores that a gang requests when it enters the queue, after shrinking by the arm."""
    workload, counted = run.schedule.workload, ~run.schedule.never_fits
    cores = workload.granted_units[:, 0] * workload.instances / UNITS[0]
    return float(cores[counted].mean()) if counted.any() else float("nan")


def _lacked(run: Run) -> dict[str, float]:
    """Return the share of waiting jobs that lack each resource, by column name."""
    return {f"{SHORT[name]}_lacked_share": share for name, share in lacking(run.schedule).items()}


def cpu_met_h(schedule: Schedule) -> float:
    """Return the hour at which 95 % of the CPU was first allocated; the length of the run if it never was."""
    course, cores = series(schedule, STEP_S), sum(machine.cpu_cores for machine in schedule.machines)
    full = np.flatnonzero(np.asarray(course["allocated_cpu_cores"]) >= FULL_FRAC * cores)
    return float(course["time_s"][full[0]] if len(full) else course["until_s"][-1]) / SECONDS_PER_HOUR


def _key(case: Case, run: Run) -> dict[str, object]:
    return {
        "gnn": case.gnn,
        "devices": case.devices,
        "rate_per_h": case.rate_per_h,
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
