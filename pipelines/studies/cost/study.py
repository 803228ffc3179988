"""Cost study: options, simulations for all loads and seeds, tables, claims, charts and notes.

Settings are in `settings`, policies in `arms`. Called by `taut study cost`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import BadUsage, LakeError
from pipelines.studies.carbon.recorded import recorded
from pipelines.studies.cost.charts import cost_over_load, parts_of_cost
from pipelines.studies.cost.runs import Task, run_all
from pipelines.studies.cost.settings import AT_LOADS, EXACT, LOADS, OFF, OFF_BY, PREEMPTING, settings, with_flat
from pipelines.studies.cost.tables import as_asked_note, claims, deviation_rows, levels, savings, sensitivity
from pipelines.studies.cost.workload import GPUS_ON_A_NODE, POWERS, speeds_of
from pipelines.studies.energy.measured import gavel_throughputs
from pipelines.studies.grids import months_option, recorded_hours
from pipelines.studies.study import (
    Context,
    Findings,
    Study,
    energy_option,
    option,
    seed_option,
    seeds_option,
    year_option,
)
from scheduler_core.planning.cost.lookahead import ITERATIONS

ZONES: Final = ("DE-LU", "US-CAL-CISO")
"""Default price zones. All settings use the first zone; one load is repeated with the others and a constant price."""

PUE: Final = 1.2
RESTART_S: Final = 60.0


NOTES: Final = (
    f"jobs: speeds measured on {' and '.join(POWERS)} with 1, 2, 4 and 8 GPUs; GPUs asked for and run times as in "
    "Gavel's public generator; due dates and weights as in the ANDREAS authors'; a dollar stands for their euro",
    "load: GPU-seconds that arrive, each job where it takes the fewest, over those there are; it was settled which "
    "loads are moderate to high (those of the bars) before any reported seed was run",
    "looking ahead (ours) judges plans to the end of all jobs that are there; the greedy goes by the source's "
    "objective, which ends with the next decision",
    "both may stop and move jobs, every restart taking "
    f"{RESTART_S:g} s; the methods they are held against do not, as in the source; that is where most of what they "
    "save comes from: the same methods with leave to preempt are claims of their own, 'preemptive'",
    "nodes without jobs are switched off under every policy: the bars are judged so; `kept_on_pct` is the saving "
    "had the other policy left them on",
    "the methods share nodes and pass over who does not fit; fixed: the count asked for, on the faster node type "
    "with room; fastest: the fastest configuration with room",
    f"run times off: drawn jobs run {100 * OFF_BY:g} % longer or shorter than predicted, with equal chance, recorded "
    "ones as long as recorded; progress is seen at every decision, so that a job's speed is known once it has run; "
    "what decisions had foreseen is nearly the realised cost by construction: the bar to read is the plan run with "
    "predicted times",
    "lower bound: every job alone with a rent of GPUs in each hour, all known, stops and moves free; no schedule of "
    "these jobs costs less",
    "savings are ratios of means over seeds, paired; energy is the whole site's (PUE included)",
)
"""Notes on the assumptions, printed with the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the cost study: loads, price zones, nodes of each type, and jobs per run."""

    energy: Path | None = energy_option()
    zones: tuple[str, ...] = option(
        ZONES,
        name="--zone",
        help="Zone whose prices apply (may be repeated): everything is run with the first, one load with the others.",
        shown="DE-LU and US-CAL-CISO",
    )
    year: int | None = year_option()
    months: tuple[int, ...] = months_option((), "all hours of the files")
    loads: tuple[float, ...] = option(
        LOADS,
        name="--load",
        help="Offered load (may be repeated); bars are judged at those of 0.5 to 0.9.",
        minimum=0.05,
        maximum=2.0,
        shown="0.1, 0.3, 0.5, 0.7, 0.9 and 1.1",
    )
    nodes: int = option(2, help="Nodes of each of two types.", minimum=1, maximum=100)
    jobs: int = option(100, help="Jobs a run.", minimum=2, maximum=10_000)
    trace: str | None = option(
        None,
        help="Use the jobs of this trace in the lake, with run times predicted from earlier months.",
        shown="drawn jobs",
    )
    iterations: int = option(
        ITERATIONS, help="Random plans for each decision that looks ahead.", minimum=1, maximum=100_000
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Simulate every policy with the same jobs and prices, for each load and seed.

    Raises
    ------
    BadUsage
        If none of the loads at which claims are tested is given.
    SourceError
        If the measured speeds or a zone's prices are missing or not in the expected format.
    """
    loads = tuple(dict.fromkeys(config.loads))
    at_loads = tuple(load for load in loads if min(AT_LOADS) <= load <= max(AT_LOADS))
    if not at_loads:
        raise BadUsage(f"--load: found none of {min(AT_LOADS)} to {max(AT_LOADS)}, expected one to judge bars at")
    energy = config.energy or context.energy
    grids = recorded_hours(energy / "grid", config.zones, "price", year=config.year, months=config.months)
    jobs, said_of_jobs = _recorded(config, context)
    speeds, by_zone = speeds_of(gavel_throughputs(energy)), with_flat(grids)
    tasks = [
        Task(
            setting=setting,
            seed=seed,
            speeds=speeds,
            grid=by_zone[setting.zone],
            nodes=config.nodes,
            jobs=config.jobs,
            iterations=config.iterations,
            pue=PUE,
            restart_s=RESTART_S,
            recorded=jobs,
        )
        for setting in settings(loads, at_loads, list(by_zone))
        if jobs is None or setting.study in (EXACT, OFF, PREEMPTING)
        for seed in range(config.seed, config.seed + config.seeds)
    ]
    runs = run_all(tasks, context.engine, context.talk)
    middle, home = at_loads[len(at_loads) // 2], config.zones[0]
    tables = {
        "savings, percent": savings(runs),
        "foreseen and realised": deviation_rows(runs),
        "what parameters change": sensitivity(runs, middle, home),
        "levels": levels(runs),
    }
    said = _subtitle(config)
    charts = {
        "cost_over_load": partial(cost_over_load, runs, said),
        "parts_of_cost": partial(parts_of_cost, runs, middle, said),
    }
    notes = (*NOTES, *said_of_jobs, as_asked_note(runs, at_loads))
    return Findings(
        study="cost",
        trace="gavel" if config.trace is None else context.trace(config.trace),
        claims=claims(runs, at_loads),
        tables=tables,
        frames={"runs": runs},
        charts=charts,
        notes=notes,
    )


def _recorded(config: Config, context: Context) -> tuple[pl.DataFrame | None, tuple[str, ...]]:
    """Return the recorded jobs of up to a node's GPUs with predicted run times, and notes; None without a trace."""
    if config.trace is None:
        return None, ()
    trace = context.trace(config.trace)
    found = recorded(context.lake(), trace, seed=config.seed, threads=context.threads, talk=context.talk)
    jobs = found.frame.filter(pl.col("gpus") <= GPUS_ON_A_NODE)
    if len(jobs) < config.jobs:
        raise LakeError(f"{trace} has {len(jobs)} jobs that suit, expected {config.jobs}; lower --jobs")
    return jobs, found.notes


def _subtitle(config: Config) -> list[str]:
    return [
        f"{config.seeds} seeds of {config.jobs} jobs; {config.nodes} P100 and {config.nodes} V100 nodes of "
        f"{GPUS_ON_A_NODE} GPUs; hourly prices of {config.zones[0]}; PUE {PUE:g}; nodes without jobs are off",
    ]


COST: Final = Study(name="cost", config=Config, run=run, takes=("lake", "threads", "engine"))
