"""The study `shrinking`: jobs finished, use and harm of shrunk requests over load, and the goal under contention."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import polars as pl

from pipelines.simulation.advice import ORACLE, SHRUNK, UNGUARDED, model_decided_share, oracle_of
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.rows import trace_of
from pipelines.simulation.settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.simulation.simulate import ALL
from pipelines.studies.shrinking.arms import ARMS, advice_of, sizing
from pipelines.studies.shrinking.predictors import crossfit
from pipelines.studies.shrinking.runs import PAPER, TYPES, WITH, Plan, populations, run_arms
from pipelines.studies.shrinking.tables import (
    bottleneck_rows,
    claim_rows,
    goal_rows,
    harm_rows,
    jobs_harmed_rows,
    level_rows,
)
from pipelines.studies.study import (
    Context,
    Findings,
    Row,
    Study,
    cluster_option,
    option,
    seed_option,
    seeds_option,
    trace_option,
)
from scheduler_core.shrink import PAPER_ALPHA0
from scheduler_core.types import Predictor

LOADS_PER_H: Final = (30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0)
WHAT: Final = {
    SHRUNK: "Algorithm 1 above floors of peak use",
    UNGUARDED: "Algorithm 1 as in the paper, without floors",
    ORACLE: "what each job truly needed",
}
TITLES: Final = {
    "claim": ("The paper's claims, and the gains over the jobs' own requests", "relative points within_third"),
    "bottleneck": ("When 95 % of the CPU was first allocated, in hours", ""),
    "goal": ("The goal, under contention", ""),
    "harm": ("Harm", "cpu_allocated_frac mem_allocated_frac gpu_allocated_frac"),
    "jobs_harmed": ("Harm under contention, each distinct job counted once", "killed_lo stretched_lo stretched_hi"),
}
"""Title of each table shown on screen, and the columns left out there; `load` is only in JSON and CSV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study. Replication i draws its arrivals with the seed `seed` + i."""

    trace: str | None = trace_option()
    predictor: Literal["out-of-fold", "oracle"] = option(
        "out-of-fold", help="Models trained here on other groups than each job's, or the recorded values."
    )
    folds: int = option(10, help="Parts that groups are dealt to, for out-of-fold.", minimum=2, maximum=100)
    seed: int = seed_option()
    cluster: str | None = cluster_option()
    loads: tuple[float, ...] = option(
        LOADS_PER_H,
        name="--load",
        help="Jobs per hour (may be repeated).",
        minimum=0.1,
        maximum=10_000.0,
        shown="30 to 100",
    )
    seeds: int = seeds_option(20)


def run(config: Config, context: Context) -> Findings:
    """Size the measured jobs of a trace in every arm, and simulate them at every load."""
    lake, trace = context.lake(), context.trace(config.trace)
    jobs, usage = (lake.table(table, trace, config.cluster).collect() for table in ("jobs", "usage"))
    jobs = jobs.filter(pl.col("task_type").is_in(TYPES))
    pool = job_pool(jobs, usage)
    predictor: Predictor = oracle_of(pool)
    note = "predictor oracle: run times and peak use are those that were recorded"
    if config.predictor != "oracle":
        models = {"folds": config.folds, "seed": config.seed, "nthread": context.threads}
        predictor = crossfit(pool, jobs, usage, talk=context.talk, **models)
        note = (
            f"predictions by {config.folds} times models of other groups than the job's own; users may be known, and "
            "histories hold earlier runs of the job's own group, as when served"
        )
    found = findings_of(config, pool, predictor, SimulationSettings(engine="compiled"))
    return replace(found, notes=(*found.notes, note))


def findings_of(config: Config, pool: Pool, predictor: Predictor, settings: SimulationSettings) -> Findings:
    """Simulate every arm with the same arrivals, and make the tables and charts."""
    advice = advice_of(sizing(pool, predictor, settings.shrink_policy), ARMS)
    plan = Plan(pool=pool, populations=populations(pool), loads_per_h=config.loads, settings=settings)
    runs = run_arms(plan, advice, range(config.seed, config.seed + config.seeds))
    at = PAPER_RATE_PER_H if PAPER_RATE_PER_H in config.loads else max(config.loads)
    at_paper_load = runs.filter(pl.col("rate_per_h") == at)
    tables = {
        "claim": claim_rows(at_paper_load),
        "bottleneck": bottleneck_rows(at_paper_load),
        "harm": harm_rows(at_paper_load),
        "jobs_harmed": jobs_harmed_rows(pool, advice),
        "goal": goal_rows(at_paper_load, SHRUNK),
        "load": level_rows(runs),
    }
    trace = trace_of(pool.jobs)
    kind = {"pai": "real", "pai-synth": "synthetic"}.get(trace, f"of {trace}")
    workload = f"{kind} jobs drawn with replacement by type"
    notes = (*settings.notes(), *_notes(config, plan, workload))
    share = f"{model_decided_share(advice[SHRUNK]):.1%}"
    about = {"study": "shrinking", "workload": workload, "trace": trace}
    return Findings(
        study="shrinking",
        trace=trace,
        tables={
            f"{title} ({trace}: {workload})": _screen(tables[of], hidden) for of, (title, hidden) in TITLES.items()
        },
        frames={"runs": runs},
        notes=(*notes, f"the run-time model changed {share} of the decisions of `{SHRUNK}`; floors decided the rest"),
        flat=[{**about, "about": of, **row} for of, rows in tables.items() for row in told(rows)],
    )


def told(rows: Sequence[Row]) -> list[Row]:
    """Give all rows of a table the same columns, and leave out columns that are null or NaN in every row.

    >>> told([{"arm": "a", "killed": None, "p99": 1.0}, {"arm": "b", "killed": None}])
    [{'arm': 'a', 'p99': 1.0}, {'arm': 'b', 'p99': None}]
    """
    known = dict.fromkeys(name for row in rows for name, value in row.items() if not _unknown(value))
    return [{name: row.get(name) for name in known} for row in rows]


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _screen(rows: Sequence[Row], hidden: str) -> list[Row]:
    """Return the rows for all devices, without the columns `hidden` and those that are the same in all of them."""
    out = {"devices", "rate_per_h", "seeds", *hidden.split()}
    return [{name: row[name] for name in row if name not in out} for row in told(rows) if row["devices"] == ALL]


def _notes(config: Config, plan: Plan, workload: str) -> list[str]:
    pool, policy = plan.pool, plan.settings.shrink_policy
    kinds = [entry.job.task_type for entry in pool.jobs]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    left_out = ", ".join(f"{count} left out for {why}" for why, count in pool.dropped.items() if count)
    notes = [
        f"{workload}: {len(pool.jobs)} measured jobs of {trace_of(pool.jobs)} ({counts}); {left_out}",
        f"Poisson arrivals at {', '.join(f'{load:g}' for load in config.loads)} jobs/h, gangs, seeds "
        f"{config.seed} to {config.seed + config.seeds - 1}; mix {PAPER}, cv:nlp:gnn:ctr; FIFO",
        "intervals are 95 %, Student's over seeds; ratios are of means, arms paired by seed",
        f"Algorithm 1 with theta {policy.theta:g}: correlation, as no recorded job ran twice with less; alpha goes "
        f"from {policy.first_alpha:g} above floors, from {PAPER_ALPHA0:g} without",
        "every arm orders by the same predicted run times; the oracle has true use, not true run times",
    ]
    if unknown := pool.known.count(False):
        notes.append(
            f"{unknown} jobs ran on devices of unknown memory, taken as {pool.assumed_device_mem_gib:g} GiB; "
            "devices=known leaves them out"
        )
    if any(gnn == WITH for gnn, _ in plan.populations):
        notes.append(f"GNN rests on {kinds.count('gnn')} jobs; gnn=without leaves its share out at the same load")
    return notes


SHRINKING: Final = Study(name="shrinking", config=Config, run=run, arms=WHAT, takes=("lake", "threads"))
