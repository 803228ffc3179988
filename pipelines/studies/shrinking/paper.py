"""The study `shrinking-paper`: the experiments of Yang, Hong and Tang, with a model of their five features.

Arrivals are single instances by default, at a load that fills the baseline's CPU after about two hours. Parameter
servers are in neither the pool nor the models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.compare import ARM, paired
from pipelines.studies.intervals import Interval, mean, ratio, ratio_difference
from pipelines.studies.shrinking.arms import Size, Sizing, advice_of, requests_of, sizing
from pipelines.studies.shrinking.five_features import FiveFeatures
from pipelines.studies.shrinking.runs import MIXES, PAPER, PLACE, TYPES, Draw, Plan, populations, run_arms
from pipelines.studies.shrinking.tables import FIGURES, PERCENT, bottleneck_rows, claim_rows, gain_of
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
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy, shrink
from scheduler_core.types import Recommendation

LOAD_PER_H: Final = 80.0
"""Default load, chosen on seeds 0 to 19 of the real rows: the baseline's CPU is full after about two hours."""

GAINS: Final = ("deployed", "completed", "completion_rate", "cpu_request", "gpu_allocated", "mem_allocated")
AS_SET, CHOSEN = "as_set", "alpha0_0.7"
"""The default parameters, and the alpha0 whose CPU request is nearest to the published one on seeds 0 to 19."""

JUDGED: Final = (REQUESTED, AS_SET, CHOSEN)
FIFO: Final = "fifo"
POLICIES: Final = (FIFO, "srtf", "drf")

ALPHAS: Final = {AS_SET: PAPER_ALPHA0, **{f"alpha0_{value:g}": value for value in (0.3, 0.7, 0.9)}}
"""First factors of Algorithm 1 by arm: the published one, and others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study."""

    trace: str | None = trace_option()
    cluster: str | None = cluster_option()
    load: float = option(LOAD_PER_H, help="Jobs per hour.", minimum=0.1, maximum=10_000.0)
    folds: int = option(
        10, help="Parts that groups are dealt to; a model predicts groups that it never saw.", minimum=2
    )
    seeds: int = seeds_option(20)
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Train the models, and run every first factor under every slowdown model, with the same arrivals."""
    lake, trace = context.lake(), context.trace(config.trace)
    jobs, usage = (lake.table(table, trace, config.cluster).collect() for table in ("jobs", "usage"))
    pool = job_pool(jobs.filter(pl.col("task_type").is_in(TYPES)), usage)
    # The folds do not depend on the seed of the arrivals.
    model = FiveFeatures.fitted(pool, folds=config.folds, seed=0, nthread=context.threads)
    return findings_of(pool, model, config, SimulationSettings(engine="compiled"), trace)


def findings_of(pool: Pool, model: FiveFeatures, config: Config, settings: SimulationSettings, trace: str) -> Findings:
    """Simulate the three experiments on all devices, and make the tables."""
    arms: dict[str, Size] = {name: partial(_sized, alpha0=alpha0) for name, alpha0 in ALPHAS.items()}
    advice = advice_of(sizing(pool, model, ShrinkPolicy()), arms)
    (gnn, devices), members = next(iter(populations(pool).items()))  # all jobs on all devices
    of = {(gnn, devices): members}
    plan = Plan(pool=pool, populations=of, loads_per_h=(config.load,), settings=settings, draw=Draw.INSTANCE)
    seeds = range(config.seed, config.seed + config.seeds)
    runs = run_arms(plan, advice, seeds)
    main = runs.filter(pl.col(ARM).is_in(JUDGED))
    few = {arm: advice[arm] for arm in JUDGED}
    mixes = {PAPER: main} | {mix: run_arms(replace(plan, mix=mix), few, seeds) for mix in MIXES if mix != PAPER}
    policies = {FIFO: main} | {
        policy: run_arms(_under(plan, policy), few, seeds) for policy in POLICIES if policy != FIFO
    }
    tables = {
        "claim": claim_rows(main),
        "bottleneck": bottleneck_rows(main),
        "type": type_rows(plan, advice, seeds),
        "sweep": sweep_rows(runs),
        "mix": experiment_rows(mixes, "mix", "gain largest with most ctr"),
        "policy": experiment_rows(policies, "policy", "gain under all three"),
    }
    notes = (
        f"{len(pool.jobs)} measured jobs of {trace}; each arrival is one instance; {config.load:g} jobs/h, mix "
        f"{PAPER}, {gnn} gnn, seeds {seeds[0]} to {seeds[-1]}",
        f"Algorithm 1 without floors; run times by XGBoost with five features, {config.folds} folds of groups",
        "intervals are 95 %, Student's over seeds; gains are relative and paired by seed",
    )
    return Findings(study="shrinking-paper", trace=trace, tables=tables, frames={"runs": runs}, notes=notes)


def _sized(inputs: Sizing, *, alpha0: float) -> list[Recommendation]:
    policy = replace(inputs.policy, guard="none", alpha0=alpha0, alpha_step=0.05, theta=0.05)
    return shrink(inputs.jobs, inputs.predictor, policy)


def _under(plan: Plan, policy: str) -> Plan:
    settings = plan.settings
    return replace(plan, settings=replace(settings, discipline=replace(settings.discipline, policy=policy)))


def sweep_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per slowdown model and first factor: gains in percent, kills and stretch."""
    rows: list[Row] = []
    for place, arms in paired(runs, PLACE):
        for name, alpha0 in ALPHAS.items():
            row: Row = {"truth": place["truth"], ARM: name, "alpha0": alpha0}
            for figure in GAINS:
                row |= gain_of(arms, name, FIGURES[figure].column).columns(f"{figure}_pct")
            row |= {column: mean(arms[name][column]).value for column in ("killed", "stretched_share", "stretch_p99")}
            rows.append(row)
    return rows


def type_rows(plan: Plan, advice: Advice, seeds: Sequence[int]) -> list[Row]:
    """Return the change of the CPU request of each task type, and whether ctr shrinks most and cv second.

    `change_pct` is over all drawn jobs of the type, with an interval over seeds. `verdict` judges the paper's claim
    from the differences between ctr, cv and nlp, paired by seed; the gnn jobs are too few to be judged.
    """
    jobs = [entry.job for entry in plan.pool.jobs]
    kinds, requested = np.array([job.task_type for job in jobs]), requests_of(jobs)[:, 0]
    picks = [arrivals.picks for seed in seeds for _, _, arrivals in plan.cases(seed)]
    rows: list[Row] = []
    for arm in (AS_SET, CHOSEN):
        given = np.array([answer.target.cpu_cores for answer in advice[arm]])
        sums = {
            kind: [
                np.array([np.where(kinds == kind, cores, 0.0)[drawn].sum() for drawn in picks])
                for cores in (given, requested)
            ]
            for kind in TYPES
        }
        steps = [ratio_difference(*sums[lesser], *sums[most]) for most, lesser in pairwise(("ctr", "cv", "nlp"))]
        for kind, (tops, bottoms) in sums.items():
            change = ratio(tops, bottoms).scaled(PERCENT, less=1.0)
            row: Row = {ARM: arm, "task_type": kind, **change.columns("change_pct")}
            rows.append(row | {"claim": "ctr shrinks most, then cv", "verdict": judged(steps)})
    return rows


def experiment_rows(runs: Mapping[str, pl.DataFrame], column: str, claim: str) -> list[Row]:
    """Return the gain in finished jobs of each mix (experiment 2) or policy (experiment 3), by slowdown model and arm.

    `verdict` judges the paper's claim: that the first mix gains more than each other one, from differences paired by
    seed, or that every policy gains.
    """
    at = {value: {str(of["truth"]): arms for of, arms in paired(own, PLACE)} for value, own in runs.items()}
    rows: list[Row] = []
    for truth in next(iter(at.values())):
        for arm in (AS_SET, CHOSEN):
            pairs = {value: [arms[truth][name]["completed"] for name in (arm, REQUESTED)] for value, arms in at.items()}
            first, *others = pairs.values()
            gains = {value: ratio(*pair).scaled(PERCENT, less=1.0) for value, pair in pairs.items()}
            steps = [ratio_difference(*first, *other) for other in others] if column == "mix" else gains.values()
            for value, gain in gains.items():
                row: Row = {"truth": truth, column: value, ARM: arm, **gain.columns("completed_pct")}
                killed = float(np.mean(at[value][truth][arm]["killed"]))
                rows.append(row | {"killed": killed, "claim": claim, "verdict": judged(list(steps))})
    return rows


def judged(intervals: Sequence[Interval]) -> str:
    """Return whether a claim holds: if all intervals are above zero; it fails if any is below.

    >>> judged([Interval(value=2.0, low=1.0, high=3.0), Interval(value=1.0, low=-1.0, high=3.0)])
    'not told apart'
    """
    if any(each.high < 0.0 for each in intervals):
        return "fails"
    return "holds" if intervals and all(each.low > 0.0 for each in intervals) else "not told apart"


PAPER_STUDY: Final = Study(
    name="shrinking-paper",
    config=Config,
    run=run,
    arms={name: f"Algorithm 1 without floors, from a factor of {alpha0:g}" for name, alpha0 in ALPHAS.items()},
    takes=("lake", "threads"),
)
