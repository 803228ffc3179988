"""Carbon study: options, settings and seeds, simulations of drawn or recorded jobs, tables, charts and notes.

Simulations on real grids are in `months`. Called by `taut study carbon`.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.studies.carbon.arms import BASELINES, PRICES_S_PER_KWH, TAUT, TWO_STAGES
from pipelines.studies.carbon.charts import shorter_by_setting, time_over_energy
from pipelines.studies.carbon.curves import BOUND
from pipelines.studies.carbon.jobs import CLUSTER, NODE_GPUS, Measured
from pipelines.studies.carbon.months import MONTHS, ZONES, Cluster, months_of
from pipelines.studies.carbon.recorded import Recorded, recorded
from pipelines.studies.carbon.runs import IDLE_W, Setting, Task, run
from pipelines.studies.carbon.tables import (
    ablation_rows,
    budget_rows,
    claim_rows,
    compared_rows,
    curve_rows,
    over_settings,
    summed_up,
)
from pipelines.studies.grids import RecordedHours, months_option, recorded_hours
from pipelines.studies.study import (
    Context,
    Findings,
    Study,
    dealt,
    energy_option,
    option,
    seed_option,
    seeds_option,
    year_option,
    zones_option,
)
from scheduler_core.planning.carbon.allocator import BudgetRule

USUAL_PER_H: Final = 20.0
"""Usual number of jobs per hour on 64 GPUs: 160 in 8 hours, as in Pollux (OSDI 2021)."""

LOADS: Final = (0.5, 1.0, 2.0)
"""Numbers of jobs per hour as multiples of the usual one."""

DRAWN_JOBS, LONG_JOBS = 160, 400
"""Default numbers of jobs of a run: drawn jobs; stretches on real grids and of traces."""

USUAL_NODES: Final = 8
CHECKED: Final = (TAUT, TWO_STAGES, *BASELINES)
FEW: Final = (0.25, 0.4, 1.0, math.inf)

RULES: Final[dict[BudgetRule, str]] = {
    "period": "on the emissions of each period (ours)",
    "to-completion": "on the emissions until all jobs end",
}


def settings_of(config: "Config") -> tuple[list[Setting], list[Setting]]:
    """Return the main settings, one per load, and variants of the usual one that are not part of the main results."""
    usual = Setting(
        name="1x",
        jobs_per_h=USUAL_PER_H * config.nodes / USUAL_NODES,
        gpus=config.nodes * NODE_GPUS,
        jobs=config.jobs or (DRAWN_JOBS if config.trace is None else LONG_JOBS),
        prices=config.prices,
        rule=config.budget,
    )
    loads = [replace(usual, name=f"{load:g}x", jobs_per_h=load * usual.jobs_per_h) for load in LOADS]
    checks = [
        replace(usual, name="1x, 30 s lost a change", restart_s=30.0, arms=CHECKED, shares=FEW),
        replace(usual, name="1x, rounds at arrivals and ends too", at_events=True, arms=CHECKED, shares=FEW),
    ]
    return loads, checks


DRAWN: Final = (
    "sizes as Pollux's, after Philly's log; counts asked for are ours; arrivals at random at multiples of its "
    f"{USUAL_PER_H:g} jobs an hour"
)

FIRST_SEED: Final = 200
"""Default first seed; seeds below 10 and from 1000 on were used to develop the arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the carbon study: measured tables, seeds, and a trace if recorded jobs replace drawn jobs."""

    energy: Path | None = energy_option()
    budget: BudgetRule = option(
        "period", help="What a budget limits: a period's emissions (ours), or those until the jobs end (the patent's)."
    )
    zones: tuple[str, ...] = zones_option()
    year: int | None = year_option()
    months: tuple[int, ...] = months_option(MONTHS, "6 and 12")
    jobs: int | None = option(
        None, help="Jobs a run.", minimum=2, maximum=100_000, shown="160; on real grids and of traces 400"
    )
    nodes: int = option(USUAL_NODES, help=f"Nodes of {NODE_GPUS} GPUs.", minimum=1, maximum=1000)
    prices: tuple[float, ...] = option(
        PRICES_S_PER_KWH,
        name="--prices",
        help="Price of energy for taut, in seconds of run time a kWh (may be repeated).",
        minimum=0.0,
        maximum=1e9,
        shown="0 to 1e6",
    )
    trace: str | None = option(
        None,
        help="Use the jobs of this trace in the lake, with run times predicted from earlier months.",
        shown="drawn jobs, and real grids",
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option(FIRST_SEED)

    def each_seed(self) -> range:
        """Return the seeds of every setting."""
        return range(self.seed, self.seed + self.seeds)


def run_study(config: Config, context: Context) -> Findings:
    """Simulate every arm on drawn jobs and on months of real grids, or on recorded jobs.

    Raises
    ------
    SourceError
        If a table is missing or not in the expected format.
    """
    energy, seeds = config.energy or context.energy, config.each_seed()
    measured, jobs, grids = Measured.of(energy), None, list[RecordedHours]()
    loads, checks = settings_of(config)
    if config.trace is not None:
        jobs = recorded(
            context.lake(), context.trace(config.trace), seed=config.seed, threads=context.threads, talk=context.talk
        )
        tasks = jobs.tasks(measured, seeds, loads[0])
    else:
        zones = config.zones or ZONES
        grids = recorded_hours(energy / "grid", zones, "carbon", year=config.year, months=config.months)
        tasks = [Task(measured=measured, setting=each, seed=seed) for each in (*loads, *checks) for seed in seeds]
    done: list[dict[str, object]] = []
    for task, rows in zip(tasks, dealt(run, tasks, context.engine), strict=True):
        done += rows
        if task.seed == seeds[-1]:
            context.talk(f"{task.setting.name}: {len(seeds)} seeds simulated")
    runs = pl.DataFrame(done, infer_schema_length=None).with_columns(pl.col("price_s_per_kwh").cast(pl.Float64))
    found = findings(runs, seeds, tasks[0].setting, jobs)
    if jobs is not None:
        return found
    cluster = Cluster(jobs=config.jobs or LONG_JOBS, gpus=loads[0].gpus, prices=config.prices)
    months = months_of(measured, grids, cluster, seeds, context)
    return replace(
        found,
        tables={**found.tables, **months.tables},
        frames={**found.frames, **months.frames},
        charts={**found.charts, **months.charts},
        notes=(*found.notes, *months.notes),
    )


def findings(runs: pl.DataFrame, seeds: range, usual: Setting, jobs: Recorded | None = None) -> Findings:
    """Return tables, charts and notes of the runs; `jobs` are the recorded jobs, None if jobs were drawn.

    `usual` is one of the settings.
    """
    compared = compared_rows(runs)
    drawn = [name for load in LOADS if (name := f"{load:g}x") in set(runs["setting"])]
    summary, curves = summed_up([*compared, *over_settings(compared, drawn)]), curve_rows(runs)
    of = [
        f"{len(seeds)} seeds, 95 % intervals; {usual.jobs} jobs on {usual.gpus} GPUs",
        "energy of GPUs while they run jobs",
    ]
    names = [str(name) for name in runs["setting"].unique(maintain_order=True)]
    return Findings(
        study="carbon",
        trace="measured" if jobs is None else jobs.trace,
        claims=claim_rows(summary),
        tables={
            "at equal energy": summary,
            "ablation": ablation_rows(summary),
            "budgets": budget_rows(runs, usual.rule),
            "curves": curves.to_dicts(),
        },
        frames={"runs": runs, "compared": pl.DataFrame(compared, infer_schema_length=None)},
        charts={
            "time_over_energy": lambda: time_over_energy(curves, names, of),
            "shorter_by_setting": lambda: shorter_by_setting(
                pl.DataFrame(summary, infer_schema_length=None), names, of
            ),
        },
        notes=_notes(runs, seeds, usual, jobs),
    )


def _notes(runs: pl.DataFrame, seeds: range, usual: Setting, jobs: Recorded | None) -> tuple[str, ...]:
    loads = runs.group_by("setting", maintain_order=True).agg(pl.col("load").mean())
    said = [
        f"jobs: applications measured on {CLUSTER} by GPU count, each paired at random with one of the workloads "
        "measured by frequency (the pairing is ours); a job keeps its batch, split among its GPUs",
        *([DRAWN] if jobs is None else []),
        "load, GPU time at the requested counts over the GPUs' time until the last arrival, mean over seeds: "
        + ", ".join(f"{name} {load:.2f}" for name, load in loads.rows()),
        "equal energy: each arm has every budget; its curve is what no other of its budgets betters; compared at 9 "
        "energies from the least that both can do with to the most of use to the other arm; taut's most if less",
        "taut has no budget but a price, in seconds of run time a kWh, below which a step is not taken (ours); "
        f"two_stages is the source's procedure with a budget {RULES[usual.rule]}",
        "kwh counts GPUs while they run a job; with idle, also "
        f"{IDLE_W:g} W for each without one, until the last job ends",
        "a planner has the fitted frequency models and predicted run times, what happens is as measured; a job that "
        "outruns its prediction is planned again at once, within what is left of the budget (ours)",
        "ceiling: the same figure of jobs that each have all GPUs to themselves from their first round on, at the same "
        "energies and the best counts and frequencies that there are for them: no scheduler passes it",
        f"seeds {seeds[0]} to {seeds[-1]}; arms were made looking at 0 to 9 and 1000 to "
        "1009: figures of those are no test",
    ]
    simulated = runs.filter(pl.col("arm") != BOUND)
    without = simulated.filter(pl.col("mean_jct_s").is_nan()).group_by("arm", maintain_order=True).len()
    if len(without):
        said.append(
            "budgets that left jobs without an end are no points of a curve: "
            + ", ".join(f"{arm} {count}" for arm, count in without.rows())
            + f" of {max(len(each) for _, each in simulated.group_by('arm'))} or fewer"
        )
    return (*said, *(() if jobs is None else jobs.notes))


CARBON: Final = Study(name="carbon", config=Config, run=run_study, takes=("lake", "threads", "engine"))
