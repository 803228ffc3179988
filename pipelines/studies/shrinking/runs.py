"""A grid of cases run under every policy, truth and arm: one row of figures per run, and how it went over time.

What the rows come to is `claims`' and `goal`'s matter. Called by `experiment`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import Advice
from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.series import series
from pipelines.simulation.paired_runs import Run, paired_runs
from pipelines.simulation.simulation_settings import SimulationSettings
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.shrinking.cases import Case
from pipelines.studies.shrinking.shortage import lacking
from scheduler_core.cluster import UNITS
from scheduler_core.discipline import Discipline
from scheduler_core.types import RESOURCES, FloatArray

POLICIES: Final[Mapping[str, Discipline]] = {
    "fifo": Discipline(policy="fifo"),
    "srtf": Discipline(policy="srtf", preempt=False),
    "drf": Discipline(policy="drf"),
}
"""The paper's policies; its SRTF orders the queue and stops nobody."""

KEY: Final = ("mix", "gnn", "devices", "rate_per_h", "policy", "truth", "arm")
"""What names a run beside its seed."""

SHORT: Final[Mapping[str, str]] = {"cpu_cores": "cpu", "mem_gib": "mem", "gpus": "gpu"}
"""By resource, how columns of figures begin."""

STEP_S: Final = 300.0
FULL_FRAC: Final = 0.95
"""A resource counts as met when this much of it is held, on average over a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """`runs`: one row per run, `KEY`, seed and figures; `over_time`: a row per step of the runs that were watched."""

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
    """Run every case under each policy, truth and arm; those at the load `watched_per_h` are watched over time."""
    working = gangs_of(pool.frame)
    # A drawn job is work to be done: it completes, however the recorded one ended.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    of = {id(case.arrivals): case for case in cases}
    rows: list[dict[str, object]] = []
    steps: list[pl.DataFrame] = []
    for policy in policies:
        ordered = replace(settings, discipline=POLICIES[policy])
        for run in paired_runs(pool, gangs, advice, settings.truths, [case.arrivals for case in cases], ordered):
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
    """Return the CPU cores that a submitted gang is queued with on average: its request, or what it is shrunk to."""
    workload, counted = run.schedule.workload, ~run.schedule.never_fits
    cores = workload.granted_units[:, 0] * workload.instances / UNITS[0]
    return float(cores[counted].mean()) if counted.any() else float("nan")


def _lacked(run: Run) -> dict[str, float]:
    """Return the shares of waiting jobs that lack each resource, under the names of its other columns."""
    return {f"{SHORT[name]}_lacked_share": share for name, share in lacking(run.schedule).items()}


def over_time(run: Run) -> dict[str, FloatArray]:
    """Return a run's course in steps of five minutes: shares of capacity held, drawn and asked for, and jobs.

    `asked_*` is what all submitted jobs that had not ended by the step's end were queued with, over capacity.
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
    """Return when the CPU was first held but for a twentieth, in hours; the whole window if it never was."""
    full = levels["allocated_cpu_cores_frac"] >= FULL_FRAC
    hours = levels["time_h"]
    return float(hours[full.argmax()]) if full.any() else float(hours[-1] + STEP_S / SECONDS_PER_HOUR)


def _asked(schedule: Schedule, resource: int, until_s: FloatArray) -> FloatArray:
    """Return what submitted jobs that have not ended ask for at each moment (k,), in cores, GiB or GPUs."""
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
        "truth": run.truth,
        "arm": run.arm,
        "seed": case.seed,
    }
