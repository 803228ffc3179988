"""The algorithm of Yang, Hong and Tang rebuilt: a model with their five features, and a sweep of Algorithm 1.

Arrivals are single instances by default, at a load that fills the baseline's CPU after about two hours. Parameter
servers are in neither the pool nor the models. Called by `taut study`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.intervals import mean, ratio, ratio_difference
from pipelines.studies.shrinking.arms import Arm, Asked, advice_of, asked_of, requests_of
from pipelines.studies.shrinking.cases import PAPER, TYPES, Case, Draw, cases_of, drawn_as
from pipelines.studies.shrinking.claims import FIGURES, PERCENT, PLACE, bottleneck_rows, claim_rows, gain_of, paired
from pipelines.studies.shrinking.comparison import binding_truths, judged
from pipelines.studies.shrinking.five_features import FiveFeatures, Point
from pipelines.studies.shrinking.runs import run_cases
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
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import FloatArray, Recommendation

LOAD_PER_H: Final = 80.0
"""Default load, chosen on seeds 0 to 19 of the real rows: the baseline's CPU is full after about two hours."""

GAINS: Final = ("deployed", "completed", "completion_rate", "cpu_request", "gpu_allocated", "mem_allocated")
AS_SET, CHOSEN = "as_set", "alpha0_0.7"
"""The default parameters, and the alpha0 whose CPU request is nearest to the published one on seeds 0 to 19."""


POINTS: Final = {
    AS_SET: Point(),
    **{f"alpha0_{value:g}": Point(alpha0=value) for value in (0.3, 0.7, 0.9)},
    **{f"step_{value:g}": Point(alpha_step=value) for value in (0.01, 0.25)},
    **{f"theta_{value:g}": Point(theta=value) for value in (0.01, 0.1, 0.2, 1e9)},
    **{f"cut_{value:g}": Point(least_share=value) for value in (0.0, 0.1, 0.3, 1.0)},
    "cut_signed": Point(signed=True),
}
"""The parameter sets: the default, then variations of one parameter at a time.

With theta 1e9 any change of the run time passes; with a cut of 1 no resource is important.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperConfig:
    """Options of the study `shrinking-paper`; its mix is 5:15:15:65, its policy FIFO."""

    trace: str | None = trace_option()
    cluster: str | None = cluster_option()
    draw: Draw = option(Draw.INSTANCE, help="What an arrival is: a whole task (gang), or one of its instances.")
    load: float = option(LOAD_PER_H, help="Jobs per hour.", minimum=0.1, maximum=10_000.0)
    folds: int = option(
        10, help="Parts that groups are dealt to; a model predicts groups that it never saw.", minimum=2
    )
    seeds: int = seeds_option(20)
    seed: int = seed_option()


def run_paper(config: PaperConfig, context: Context) -> Findings:
    """Run every parameter set under every slowdown model, with the same arrivals."""
    lake, trace = context.lake(), context.trace(config.trace)
    jobs, usage = (lake.table(table, trace, config.cluster).collect() for table in ("jobs", "usage"))
    pool = job_pool(jobs.filter(pl.col("task_type").is_in(TYPES)), usage)
    # The folds do not depend on the seed of the arrivals.
    model = FiveFeatures.fitted(pool, folds=config.folds, seed=0, nthread=context.threads)
    return findings_of(pool, model, config, SimulationSettings(engine="compiled"), trace)


def findings_of(
    pool: Pool, model: FiveFeatures, config: PaperConfig, settings: SimulationSettings, trace: str
) -> Findings:
    """Simulate the paper's mix with all devices, and make the tables."""
    arms = {name: _arm(model, point) for name, point in POINTS.items()}
    advice = advice_of(asked_of(pool, model, ShrinkPolicy()), arms)
    seeds = range(config.seed, config.seed + config.seeds)
    # The first population is that of all jobs and devices.
    cases = cases_of(pool, seeds=seeds, loads_per_h=(config.load,), horizon_s=settings.horizon_s)[: config.seeds]
    runs = run_cases(drawn_as(config.draw, pool), advice, cases, settings)
    judged_arms = runs.filter(pl.col("arm").is_in([REQUESTED, AS_SET, CHOSEN]))
    tables = {
        "claim": binding_truths(judged_arms, claim_rows(judged_arms)),
        "bottleneck": bottleneck_rows(judged_arms),
        "type": type_rows(pool, advice, cases),
        "sweep": sweep_rows(runs),
    }
    notes = (
        f"{len(pool.jobs)} measured jobs of {trace}; each arrival is one {config.draw}; {config.load:g} jobs/h, mix "
        f"{PAPER}, {cases[0].gnn} gnn, seeds {seeds[0]} to {seeds[-1]}",
        f"Algorithm 1 without floors; run times by XGBoost with five features, {config.folds} folds of groups",
        "intervals are 95 %, Student's over seeds; gains are relative and paired by seed",
    )
    return Findings(study="shrinking-paper", trace=trace, tables=tables, frames={"runs": runs}, notes=notes)


def _arm(model: FiveFeatures, point: Point) -> Arm:
    def give(asked: Asked) -> list[Recommendation]:
        chosen = {name: getattr(point, name) for name in ("alpha0", "alpha_step", "theta")}
        return shrink(asked.jobs, replace(model, point=point), replace(asked.policy, guard="none", **chosen))

    return Arm(what="Algorithm 1 as in the paper, without floors", give=give)


def sweep_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per slowdown model and parameter set: parameters, gains in percent, kills and stretch."""
    rows: list[Row] = []
    for place in runs.select(PLACE).unique(maintain_order=True).rows(named=True):
        arms = paired(runs, **place)
        for name, point in POINTS.items():
            row: Row = {"truth": place["truth"], "arm": name}
            row |= {of: getattr(point, of) for of in Point.__slots__}
            for figure in GAINS:
                row |= gain_of(arms, name, FIGURES[figure].column).scaled(PERCENT).columns(f"{figure}_pct")
            row |= {column: mean(arms[name][column]).value for column in ("killed", "stretched_share", "stretch_p99")}
            rows.append(row)
    return rows


def type_rows(pool: Pool, advice: Advice, cases: Sequence[Case]) -> list[Row]:
    """Return the change of the CPU request of each task type, and whether ctr shrinks most and cv second.

    `change_pct` is over all drawn jobs of the type, with an interval over seeds. `verdict` judges the paper's claim
    from the differences between ctr, cv and nlp, paired by seed; the gnn jobs are too few to be judged.
    """
    kinds = np.array([entry.job.task_type for entry in pool.jobs])
    asked = requests_of([entry.job for entry in pool.jobs])[:, 0]
    rows: list[Row] = []
    for arm in (AS_SET, CHOSEN):
        given = np.array([answer.target.cpu_cores for answer in advice[arm]])
        sums = {
            kind: [_drawn_sums(np.where(kinds == kind, cores, 0.0), cases) for cores in (given, asked)]
            for kind in TYPES
        }
        steps = [ratio_difference(*sums[lesser], *sums[most]) for most, lesser in pairwise(("ctr", "cv", "nlp"))]
        for kind, (tops, bottoms) in sums.items():
            found = ratio(tops, bottoms).scaled(PERCENT, less=1.0)
            row: Row = {"arm": arm, "task_type": kind, **found.columns("change_pct")}
            rows.append(row | {"claim": "ctr shrinks most, then cv", "verdict": judged(steps).value})
    return rows


def _drawn_sums(cores: FloatArray, cases: Sequence[Case]) -> FloatArray:
    return np.array([cores[case.arrivals.picks].sum() for case in cases])


PAPER_STUDY: Final = Study(
    name="shrinking-paper",
    config=PaperConfig,
    run=run_paper,
    arms={name: ", ".join(f"{of} {getattr(each, of):g}" for of in Point.__slots__) for name, each in POINTS.items()},
    takes=("lake", "threads"),
)
