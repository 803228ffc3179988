"""Slack study: hold recorded jobs back for a cleaner or cheaper hour, and compare the savings with the delay of jobs.

Release times are chosen in `scheduler_core.planning.release`. Called by `taut study slack`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.report.charts.energy_use import saved_over_delay
from pipelines.simulation.energy.accounting import account
from pipelines.simulation.energy.meters import Meters, Row
from pipelines.simulation.energy.site import as_submitted, held_back, start_on
from pipelines.simulation.energy.window import by
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.job_pool import KEYS, PARAMETER_SERVER
from pipelines.simulation.measures.job_metrics import Uses
from pipelines.simulation.workloads import DRAWN, gangs_of, recorded_workload, uses_of
from pipelines.studies.energy.savings_runs import GPUS, READING, SECONDS_PER_DAY
from pipelines.studies.intervals import BLOCK_DAYS, LEAST_BLOCKS, LEVEL, day_counts
from pipelines.studies.replay.capacity import evidence_of, readings_of
from pipelines.studies.replay.replay import replayed
from pipelines.studies.replay.sizes import PREDICTED, sizes_of
from pipelines.studies.study import (
    Context,
    Findings,
    Study,
    cluster_option,
    grid_option,
    option,
    power_option,
    pue_option,
    seed_option,
    trace_option,
    year_option,
    zones_option,
)
from scheduler_core.cluster import Machine
from scheduler_core.planning.forecast import FORECASTS
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.release import CLAIRVOYANT, released_s
from scheduler_core.queueing import Discipline
from scheduler_core.types import BoolArray, FloatArray, IntArray

SLACKS_H: Final = (1.0, 3.0, 6.0, 12.0)
BY: Final[tuple[Literal["carbon", "price"], ...]] = ("carbon", "price")
HOW: Final = (*FORECASTS, CLAIRVOYANT)
PERCENT: Final = 100.0
KG: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The jobs and machines of a replay.

    `measured` (n,) marks the jobs that have a predicted run time, for which results are given. `day` (n,) is the day of
    submission, counted from that of the first measured job. `uses` are the measured GPU uses of the jobs.
    """

    workload: Workload
    uses: Uses
    machines: tuple[Machine, ...]
    measured: BoolArray
    day: IntArray
    first_ts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Sums of the measured jobs of one run by day of submission (days,)."""

    jobs: FloatArray
    kwh: FloatArray
    carbon_g: FloatArray
    cost_usd: FloatArray
    jct_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the slack study: the trace, the grid zones, and how long jobs may be held back."""

    trace: str | None = trace_option()
    cluster: str | None = cluster_option()
    grid: Path | None = grid_option()
    zones: tuple[str, ...] = zones_option()
    year: int | None = year_option()
    slacks_h: tuple[float, ...] = option(
        SLACKS_H,
        name="--slack-h",
        help="Hours that a job may be held (may be repeated).",
        minimum=0.25,
        maximum=168.0,
        shown="1, 3, 6 and 12",
    )
    power: Path | None = power_option()
    pue: float | None = pue_option()
    seed: int = seed_option()


def run_study(config: Config, context: Context) -> Findings:
    """Replay a trace's jobs released at once, and held back by every forecast and with hindsight, in every zone.

    Raises
    ------
    LakeError
        If the lake lacks the trace's jobs or machines.
    """
    meters = Meters.of(
        config.grid or context.energy / "grid", config.zones, config.power, config.pue, config.year
    ).priced()
    return shifts(context.lake(), context.trace(config.trace), meters, config, context)


def shifts(lake: Lake, trace: str, meters: Meters, config: Config, context: Context) -> Findings:
    """Replay a trace's jobs with the zones and power of `meters`; raise in the same cases as `run_study`."""
    queue, notes = queue_of(lake, trace, config.cluster, seed=config.seed, nthread=context.threads, talk=context.talk)
    rows: list[Row] = []
    counts = day_counts(int(queue.day.max()) + 1, rng=np.random.default_rng(config.seed))
    now = simulate(queue.workload, queue.machines, Discipline())
    for grid in meters.grids:
        start_ts, began = start_on(grid, None, queue.first_ts)
        notes.append(f"{grid.zone}: {began}")
        base = outcome(queue, now, meters, grid, start_ts)
        for what in BY:
            for slack_h in config.slacks_h:
                for how in HOW:
                    held = shifted(queue, _series(grid, what), slack_h, how, start_ts)
                    found = outcome(queue, held, meters, grid, start_ts)
                    named: Row = {"zone": grid.zone, "shift_by": what, "slack_h": slack_h, "shift": how}
                    rows.append(named | compared(found, base, counts))
            context.talk(f"{grid.zone}, by {what}: {len(config.slacks_h) * len(HOW)} replays")
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return Findings(
        study="slack",
        trace=trace,
        tables={"savings against waits": rows},
        frames={"rows": frame},
        charts={"saved_over_delay": lambda: saved_over_delay(frame)},
        notes=(*notes, *meters.notes, *meters.assumed(queue.machines), *_notes()),
    )


def queue_of(
    lake: Lake, trace: str, cluster: str | None, *, seed: int, nthread: int, talk: Callable[[str], None]
) -> tuple[Queue, list[str]]:
    """Return the jobs of a trace with run times predicted from earlier months, the trace's machines, and notes."""
    every = lake.table("jobs", trace, cluster).collect()
    taken = replayed(every)
    jobs = taken.jobs
    zone, learnt_from = lake.manifest(trace).zone, every.filter(pl.col("req_gpus") > 0.0)
    sizes = sizes_of(jobs, learnt_from, [PREDICTED], zone=zone, seed=seed, nthread=nthread, talk=talk)
    reading = readings_of(evidence_of(lake, jobs, since=sizes.since, loads=()), [READING])[0]
    machines = reading.pools[0].machines
    gpus_per_machine = max(machine.gpus for machine in machines)
    workload = recorded_workload(jobs, predicted_s=sizes.predicted_s[PREDICTED], gpus_per_machine=gpus_per_machine)
    measured = (jobs["submit_ts"] >= sizes.since).to_numpy()
    uses = _gpu_uses(jobs, lake.table("usage", trace, cluster).collect(), gpus_per_machine)
    day = np.floor(workload.arrive_s / SECONDS_PER_DAY).astype(np.int64)
    queue = Queue(
        workload=workload,
        uses=uses,
        machines=machines,
        measured=measured,
        day=(day - day[measured].min()).clip(0),
        first_ts=jobs["submit_ts"].dt.epoch("us")[0] / 1e6,
    )
    since = f"figures are of the {int(measured.sum())} jobs submitted from {sizes.since:%Y-%m-%d %H:%M} UTC on"
    known = int(np.isfinite(uses.mean[measured, GPUS]).sum())
    used = f"measured use of the GPUs: of {known} of these jobs; that of the others, and of all CPUs, is assumed"
    return queue, [*taken.notes, reading.note, *sizes.notes, since, used]


def shifted(queue: Queue, series: HourlySeries, slack_h: float, how: str, start_ts: float) -> Schedule:
    """Simulate the jobs, each held back at most `slack_h`; forecasts use predicted run times, hindsight actual ones."""
    jobs = queue.workload
    release = released_s(
        jobs.arrive_s,
        np.full(len(jobs), slack_h * HOUR_S),
        jobs.run_s if how == CLAIRVOYANT else jobs.predicted_s,
        series,
        start_ts,
        how,
    )
    held, order = held_back(jobs, release)
    return as_submitted(simulate(held, queue.machines, Discipline()), jobs.arrive_s, order)


def outcome(queue: Queue, run: Schedule, meters: Meters, grid: Grid, start_ts: float) -> Outcome:
    """Sum energy, emissions, cost and completion times of the measured jobs of a run by day of submission."""
    powers = meters.table.nodes(run.machines)
    found = account(run, queue.uses, powers, grid, start_ts, assumed=meters.table.assumed).jobs
    own = queue.measured & ~run.never_fits
    day, count = queue.day[own], int(queue.day.max()) + 1
    columns = (np.ones(len(own)), found.kwh, found.carbon_g, found.cost_usd, run.finished_s - run.workload.arrive_s)
    jobs, kwh, carbon_g, cost_usd, jct_s = (by(day, each[own], count) for each in columns)
    return Outcome(jobs=jobs, kwh=kwh, carbon_g=carbon_g, cost_usd=cost_usd, jct_s=jct_s)


def compared(found: Outcome, base: Outcome, counts: FloatArray) -> Row:
    """Return savings and delay of job ends relative to release at once, with intervals from resampled weeks."""
    row: Row = {"jobs": int(base.jobs.sum())}
    figures: dict[str, Callable[[FloatArray], FloatArray]] = {
        "carbon_saved_pct": lambda w: PERCENT * (1.0 - (w @ found.carbon_g) / (w @ base.carbon_g)),
        "cost_saved_pct": lambda w: PERCENT * (1.0 - (w @ found.cost_usd) / (w @ base.cost_usd)),
        "intensity_saved_pct": lambda w: (
            PERCENT * (1.0 - (w @ found.carbon_g) * (w @ base.kwh) / ((w @ found.kwh) * (w @ base.carbon_g)))
        ),
        "carbon_saved_g_per_job": lambda w: (w @ (base.carbon_g - found.carbon_g)) / (w @ base.jobs),
        "cost_saved_usd_per_1000_jobs": lambda w: KG * (w @ (base.cost_usd - found.cost_usd)) / (w @ base.jobs),
        "jct_later_h": lambda w: (w @ (found.jct_s - base.jct_s)) / (w @ base.jobs) / HOUR_S,
    }
    days = counts.shape[1]
    for name, figure in figures.items():
        ends = (math.nan, math.nan)
        if days >= LEAST_BLOCKS * BLOCK_DAYS:
            tail = (1.0 - LEVEL) / 2.0
            ends = tuple(np.quantile(figure(counts), [tail, 1.0 - tail]).tolist())
        row |= {name: float(figure(np.ones((1, days)))[0]), f"{name}_lo": ends[0], f"{name}_hi": ends[1]}
    return row | {"jct_at_once_h": float(base.jct_s.sum() / base.jobs.sum() / HOUR_S)}


def _gpu_uses(jobs: pl.DataFrame, usage: pl.DataFrame, gpus_per_machine: int) -> Uses:
    """Return the measured GPU use of the jobs; CPU use is left out, because replayed jobs have no CPU requests."""
    joined = jobs.join(usage.select(*KEYS, *DRAWN), on=KEYS, how="left", maintain_order="left")
    told = joined.select(pl.col("used_gpus").is_not_null() & (pl.col("role") != PARAMETER_SERVER)).to_series()
    return uses_of(joined, gangs_of(joined, gpus_per_machine=gpus_per_machine), told.to_list())


def _series(grid: Grid, what: Literal["carbon", "price"]) -> HourlySeries:
    series = grid.carbon if what == "carbon" else grid.price
    if series is None:
        raise BadUsage(f"zone {grid.zone}: found no series of {what}, expected one to hold jobs by")
    return series


def _notes() -> list[str]:
    return [
        "first come, first served; energy is that of the jobs: their work and the idle draw of what they hold",
        "each job is held once, at its submission, until the hour from which its run is expected to meet the lowest "
        "mean; persistence forecasts no better hour, so that it holds no job; clairvoyant uses true series and "
        "run times (a bound)",
        "intensity_saved_pct: of grams per kWh met, whatever placement does to the kWh; jct_later_h: mean completion "
        f"time less that of starting at once; intervals of 95 % from blocks of {BLOCK_DAYS} days of submission",
    ]


SLACK: Final = Study(name="slack", config=Config, run=run_study, takes=("lake", "threads"))
