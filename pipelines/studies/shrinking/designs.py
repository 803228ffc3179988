"""The designs of two shrinking studies, and the function that runs a design: from a pool of jobs to tables.

Charts are in `study`. Called by `study`.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.advice import SHRUNK, Advice, model_decided_share
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.rows import trace_of
from pipelines.simulation.settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.studies.shrinking.arms import ABLATION_ARMS, EXPERIMENT_ARMS, Arm, advice_of, asked_of
from pipelines.studies.shrinking.cases import LOADS_PER_H, PAPER, WITH, Draw, cases_of, drawn_as, populations
from pipelines.studies.shrinking.crossfit import Predicted, PredictorConfig
from pipelines.studies.shrinking.runs import run_cases
from pipelines.studies.shrinking.tables import ABLATION_TABLES, LOAD_TABLES, Seen, Table
from pipelines.studies.study import Context, Row, cluster_option, option, seeds_option
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy

LEAST_SEEDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PredictorConfig):
    """Options of the studies that have a design. Replication i draws its arrivals with the seed `seed` + i."""

    cluster: str | None = cluster_option()
    loads: tuple[float, ...] = option(
        (),
        name="--load",
        help="Jobs per hour (may be repeated).",
        minimum=0.1,
        maximum=10_000.0,
        shown="30 to 100 in shrinking, else 70",
    )
    seeds: int = seeds_option(20)
    draw: Draw = option(Draw.GANG, help="What an arrival is: a whole task (gang), or one of its instances.")
    theta: float = option(0.05, help="Largest relative change of the predicted run time.", minimum=1e-6, maximum=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The design of one study: its name, the arms and loads to simulate, and the tables to make."""

    name: str
    arms: Mapping[str, Arm]
    tables: Mapping[str, Table]
    loads_per_h: Sequence[float] = (PAPER_RATE_PER_H,)


LOADS: Final = Design(name="shrinking", arms=EXPERIMENT_ARMS, tables=LOAD_TABLES, loads_per_h=LOADS_PER_H)
ABLATION: Final = Design(name="shrinking-ablation", arms=ABLATION_ARMS, tables=ABLATION_TABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a design: tables of rows by name, the runs they were made from, and notes on all of them.

    `jobs` is the number of jobs in the pool from which arrivals are drawn.
    """

    study: str
    trace: str
    workload: str
    jobs: int
    tables: Mapping[str, list[Row]]
    runs: pl.DataFrame
    notes: tuple[str, ...]

    def rows(self) -> list[Row]:
        """Return the rows of all tables, each with study, workload, trace, and name of its table (`about`)."""
        of = {"study": self.study, "workload": self.workload, "trace": self.trace}
        return [{**of, "about": about, **row} for about, rows in self.tables.items() for row in told(rows)]


def results_of(
    design: Design,
    config: Config,
    given: Predicted,
    context: Context,
    settings: SimulationSettings | None = None,
) -> Results:
    """Run every arm of a design under the same arrivals, for every case and slowdown model.

    Raises
    ------
    BadUsage
        If there are too few seeds for an interval, or the pool lacks jobs of a task type of the mix.
    """
    if config.seeds < LEAST_SEEDS:
        raise BadUsage(f"found {config.seeds} seeds, expected at least {LEAST_SEEDS} for an interval")
    pool, talk = given.pool, context.talk
    settings = replace(
        settings or SimulationSettings(engine="compiled"), shrink_policy=ShrinkPolicy(theta=config.theta)
    )
    loads = config.loads or tuple(design.loads_per_h)
    began = time.perf_counter()
    advice = advice_of(asked_of(pool, given.predictor, settings.shrink_policy), design.arms)
    talk(f"advice of {len(design.arms)} arms for {len(pool.jobs)} jobs took {time.perf_counter() - began:.1f} s")
    seeds = range(config.seed, config.seed + config.seeds)
    cases = cases_of(pool, seeds=seeds, loads_per_h=loads, horizon_s=settings.horizon_s)
    began = time.perf_counter()
    runs = run_cases(drawn_as(config.draw, pool), advice, cases, settings)
    talk(f"{runs.height} runs took {time.perf_counter() - began:.1f} s")
    seen = Seen(pool=pool, advice=advice, arms=design.arms, runs=runs)
    return Results(
        study=design.name,
        trace=trace_of(pool.jobs),
        workload=workload_of(pool),
        jobs=len(pool.jobs),
        tables={about: make(seen) for about, make in design.tables.items()},
        runs=runs,
        notes=(*settings.notes(), *notes_of(pool, config, settings, advice, loads), *given.notes),
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


def workload_of(pool: Pool) -> str:
    """Return in words whether the jobs are real or synthetic, and how they are drawn."""
    trace = trace_of(pool.jobs)
    kind = {"pai": "real", "pai-synth": "synthetic"}.get(trace, f"of {trace}")
    return f"{kind} jobs drawn with replacement by type"


def notes_of(
    pool: Pool, config: Config, settings: SimulationSettings, advice: Advice, loads: Sequence[float]
) -> list[str]:
    """Return notes on jobs, arrivals, intervals and parameters, which apply to all rows of the study."""
    policy = settings.shrink_policy
    kinds = [entry.job.task_type for entry in pool.jobs]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    said = [
        f"{workload_of(pool)}: {len(pool.jobs)} measured jobs of {trace_of(pool.jobs)} ({counts}); "
        + ", ".join(f"{count} left out for {why}" for why, count in pool.dropped.items() if count),
        f"Poisson arrivals at {', '.join(f'{load:g}' for load in loads)} jobs/h for "
        f"{settings.horizon_s / 3600.0:g} h, {config.draw}s, seeds {config.seed} to {config.seed + config.seeds - 1}",
        f"mix {PAPER} by task type, cv:nlp:gnn:ctr; the paper names ResNet, NMT, GraphLearn and CTR; FIFO",
        "intervals are 95 %, Student's over seeds; ratios are of means, arms paired by seed",
        f"Algorithm 1 with theta {policy.theta:g}: correlation, as no recorded job ran twice with less; above "
        f"floors alpha goes from {policy.first_alpha:g}, and importance does not count from "
        f"{policy.sure_runs:g} measured runs on; without floors alpha goes from {PAPER_ALPHA0:g}",
        "every arm orders by the same predicted run times; the oracle has true use, not true run times",
    ]
    unknown = pool.known.count(False)
    if unknown:
        gnn = sum(kind == "gnn" for kind, known in zip(kinds, pool.known, strict=True) if not known)
        said.append(
            f"{unknown} jobs ({gnn} gnn) ran on devices of unknown memory, taken as "
            f"{pool.assumed_device_mem_gib:g} GiB; devices=known leaves them out"
        )
    if any(gnn == WITH for gnn, _ in populations(pool)):
        said.append(f"GNN rests on {kinds.count('gnn')} jobs; gnn=without leaves its share out at the same load")
    if SHRUNK in advice:
        said.append(
            f"the run-time model changed {model_decided_share(advice[SHRUNK]):.1%} of the decisions of `{SHRUNK}`; the "
            "floors decided the rest"
        )
    return said
