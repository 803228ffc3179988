"""Simulations of the savings study: every arm on the same drawn arrivals, and replays of recorded traces.

Savings are computed in `savings`, which calls this module.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.lake.lake import Lake
from pipelines.simulation.advice import ORACLE, SHRUNK, Advice
from pipelines.simulation.energy.meters import AMOUNTS, OFF, ON, Metered, Meters, Row, first_s, hours_of
from pipelines.simulation.energy.site import start_on
from pipelines.simulation.energy.tables import G_PER_KG
from pipelines.simulation.energy.window import Amounts
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S, simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.job_metrics import Uses
from pipelines.simulation.paired_runs import Run, paired_runs
from pipelines.simulation.settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.simulation.simulate import ALL
from pipelines.simulation.workloads import gangs_of, recorded_workload
from pipelines.studies.replay.capacity import evidence_of, readings_of
from pipelines.studies.replay.replay import replayed
from pipelines.studies.shrinking.arms import EXPERIMENT_ARMS, advice_of, asked_of
from pipelines.studies.shrinking.cases import cases_of
from scheduler_core.cluster import UNITS
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.queueing import Discipline
from scheduler_core.types import FloatArray, IntArray, Predictor

WINDOW, DRAINED = "first 12 h", "until all ended"
SCENES: Final = {WINDOW: PAPER_HORIZON_S, DRAINED: math.inf}
"""End of the simulation in seconds by scene: 12 hours as in the experiments of Yang, Hong and Tang, or when all jobs
have ended, so that every arm has done the same work."""

ARMS: Final = (SHRUNK, ORACLE)
DRAWN_AT_PER_H: Final = PAPER_RATE_PER_H


def drawn_rows(
    pool: Pool, predictor: Predictor, settings: SimulationSettings, meters: Meters, seeds: Sequence[int]
) -> Iterator[Row]:
    """Yield a row per scene, seed, slowdown model, arm, zone and whether empty machines are switched off.

    Jobs on GPUs of any memory arrive as in experiment 1 of Yang, Hong and Tang, at 70 jobs/h. Each seed starts at a
    random hour of the year, the same for all arms, so that all seasons and hours of the grid are covered.

    Raises
    ------
    BadUsage
        If the pool lacks a kind of job of the experiment's mix.
    """
    asked = asked_of(pool, predictor, settings.shrink_policy)
    advice: Advice = advice_of(asked, {name: EXPERIMENT_ARMS[name] for name in ARMS})
    cases = cases_of(pool, seeds=seeds, loads_per_h=(DRAWN_AT_PER_H,), horizon_s=PAPER_HORIZON_S)
    # The first case has the widest population of jobs.
    own = [case for case in cases if (case.gnn, case.devices) == (cases[0].gnn, ALL)]
    working = gangs_of(pool.frame)
    gangs = replace(working, fails=np.zeros_like(working.fails))
    arrivals = {id(case.arrivals): case for case in own}
    for scene, horizon_s in SCENES.items():
        until = replace(settings, horizon_s=horizon_s)
        for run in paired_runs(pool, gangs, advice, settings.slowdown_models, [case.arrivals for case in own], until):
            seed = arrivals[id(run.arrivals)].seed
            yield from _rows(scene, seed, run, meters)


def _rows(scene: str, seed: int, run: Run, meters: Meters) -> Iterator[Row]:
    share = np.random.default_rng([seed, 2]).random()
    offset_s = math.floor(share * min(hours_of(grid) for grid in meters.grids)) * HOUR_S
    for found in meters.read(run.schedule, run.uses, lambda grid: first_s(grid) + offset_s):
        for machines in (ON, OFF):
            yield {
                "scene": scene,
                "truth": run.slowdown_model,
                "arm": run.arm,
                "zone": found.zone,
                "machines": machines,
                "seed": seed,
                **found.amounts(machines),
                **found.parts(),
                "finished": run.metrics.completed + run.metrics.failed,
                "killed": run.metrics.killed,
                "jct_mean_h": run.metrics.jct_mean_s / HOUR_S,
                "hours": run.schedule.end_s / HOUR_S,
            }


READING: Final = "machine_list"
SPREAD, PACKED, WHAT_IF = "spread", "best_fit", "what-if"
GPUS: Final = 2
SECONDS_PER_DAY: Final = 86_400.0
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Results of replaying the jobs of a trace on the machines of the trace.

    Attributes
    ----------
    days
        A row per day, arm, zone and whether empty machines are off: energy, carbon, cost, and number of finished jobs.
    parts
        kWh of always-on machines, split into work and kinds of idle power.
    notes
        Assumptions behind the results.
    """

    days: pl.DataFrame
    parts: dict[str, float]
    notes: tuple[str, ...]


def recorded(lake: Lake, trace: str, cluster: str | None, meters: Meters, talk: Callable[[str], None]) -> Recorded:
    """Replay a trace's jobs first come, first served until the last submission, once per placement rule.

    Raises
    ------
    LakeError
        If the lake lacks the trace's jobs or machines.
    BadUsage
        If the jobs belong to several clusters.
    """
    taken = replayed(lake.table("jobs", trace, cluster).collect())
    jobs = taken.jobs
    first, last = (jobs["submit_ts"].dt.epoch("us").to_numpy()[[0, -1]] / 1e6).tolist()
    reading = readings_of(evidence_of(lake, jobs, since=jobs["submit_ts"][0], loads=()), [READING])[0]
    machines = reading.pools[0].machines
    workload = recorded_workload(jobs, gpus_per_machine=max(machine.gpus for machine in machines))
    frac = meters.table.assumed.gpu_frac
    plans = {PACKED: (workload, PACKED), SPREAD: (workload, SPREAD), WHAT_IF: (fewer_gpus(workload, frac), PACKED)}
    runs = {
        arm: simulate(told, machines, Discipline(placement=placement), horizon_s=last - first)
        for arm, (told, placement) in plans.items()
    }
    whole = list(_read(meters, runs[PACKED], first))
    rows: list[pl.DataFrame] = []
    for arm, run in runs.items():
        for found, own in zip(whole, _read(meters, run, first), strict=True):
            rows += [_days(arm, machine, replace(found, off=own.off), run) for machine in (ON, OFF)]
        talk(f"{trace}: {arm} replayed, {waited(run)} jobs waited")
    waits = ", ".join(f"{waited(run)} jobs waited under {arm}" for arm, run in runs.items())
    notes = (
        *(f"{trace}: {note}" for note in (*taken.notes, reading.note, start_on(meters.grids[0], None, first)[1])),
        f"{trace}: first come, first served, until the last submission; {waits}; work is that of {PACKED} in "
        "every row: arms differ in which machines are empty",
        *(f"{trace}: {note}" for note in meters.assumed(machines)),
        f"{trace}: its jobs have no measured use: no request is shrunk. {WHAT_IF}: as if every instance held only "
        f"the GPUs that {frac:.0%} use needs, whole ones, with the same work in the same time: a bound, no measurement",
    )
    return Recorded(days=pl.concat(rows), parts=whole[0].parts(), notes=notes)


def fewer_gpus(workload: Workload, frac: float) -> Workload:
    """Return the workload with the GPUs of each instance multiplied by `frac` and rounded up to whole GPUs."""
    whole = UNITS[GPUS]
    units = workload.request_units.copy()
    need = np.ceil(units[:, GPUS] * frac / whole).astype(np.int64) * whole
    units[:, GPUS] = np.minimum(units[:, GPUS], need)
    return replace(workload, request_units=units, granted_units=units)


def waited(run: Schedule) -> int:
    """Return the number of jobs that started later than they were submitted."""
    first: FloatArray = np.full(len(run.workload), np.inf)
    np.minimum.at(first, run.job, run.start_s)
    return int((np.isfinite(first) & (first > run.workload.arrive_s)).sum())


def _read(meters: Meters, run: Schedule, first_ts: float) -> Iterator[Metered]:
    unknown = Uses(mean=np.full((len(run.workload), len(UNITS)), np.nan))
    return meters.read(run, unknown, lambda grid: start_on(grid, None, first_ts)[0])


def _days(arm: str, machines: str, found: Metered, run: Schedule) -> pl.DataFrame:
    day = np.floor((found.on.hour_ts - found.on.start_ts) / SECONDS_PER_DAY).astype(np.int64).clip(0)
    count = int(day.max()) + 1
    drawn = _by_day(found.on.hours, day, count)
    if machines == OFF:
        drawn = drawn - _by_day(found.off.hours, day, count)
    ended = run.finished_s[np.isfinite(run.finished_s) & (run.finished_s <= run.end_s)]
    finished = np.bincount((ended / SECONDS_PER_DAY).astype(np.int64).clip(0, count - 1), minlength=count)
    return pl.DataFrame(
        {"day": np.arange(count), **dict(zip(AMOUNTS, drawn, strict=True)), FINISHED: finished.astype(np.float64)}
    ).select(pl.lit(arm).alias("arm"), pl.lit(found.zone).alias("zone"), pl.lit(machines).alias("machines"), pl.all())


def _by_day(hours: Amounts, day: IntArray, count: int) -> FloatArray:
    columns = (hours.kwh, hours.carbon_g / G_PER_KG, hours.cost_usd)
    return np.array([np.bincount(day, weights=each, minlength=count) for each in columns])
