"""Reclaiming while jobs run: the share of an oracle's gain that measured reservations reach, and at what harm.

Jobs are drawn from measured ones, under the slowdown model `shared`. Called by `taut study`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from pipelines.errors import BadUsage, TrainingError
from pipelines.simulation.advice import ORACLE, REQUESTED, oracle_of
from pipelines.simulation.rows import trace_of
from pipelines.simulation.shared.variation import VARIATIONS
from pipelines.studies.reclaim.arms import ARMS
from pipelines.studies.reclaim.charts import drawings
from pipelines.studies.reclaim.pool import MeasuredJobs, drawn, measured_in, measured_jobs
from pipelines.studies.reclaim.runs import PLACE, Setting, run_all, share_rows
from pipelines.studies.shrinking.arms import asked_of
from pipelines.studies.shrinking.crossfit import FoldedPredictor, crossfit
from pipelines.studies.study import (
    Context,
    Findings,
    Row,
    Study,
    option,
    rendered,
    seed_option,
    seeds_option,
    trace_option,
)
from scheduler_core.reserve import ReservePolicy
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import Predictor

MAIN: Final = ("default", "prototype")

NOTES: Final = (
    "how use varies within a run is assumed: see `Variation` in pipelines/simulation/shared/variation.py",
    "share: gain in finished jobs over the gain of an oracle that knows mean use at submission; - if it gains nothing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study: the jobs, what the runs vary, models, and the policy of reclaiming."""

    trace: str | None = trace_option()
    pool: Path | None = option(
        None,
        help="Measured jobs instead of a trace's: a Parquet or CSV file with the columns of the tables jobs and usage, "
        "or a folder with jobs.parquet and usage.parquet.",
    )
    variation: tuple[str, ...] = option(
        (), help=f"How use varies: {', '.join(VARIATIONS)} (may be repeated).", shown=" and ".join(MAIN)
    )
    sharing: tuple[Literal["pooled", "devices"], ...] = option(
        (), help="How GPUs are counted (may be repeated).", shown="both"
    )
    policy: tuple[Literal["fifo", "srtf", "drf"], ...] = option((), help="Queue order (may be repeated).", shown="fifo")
    rate: float = option(70.0, help="Arrivals per hour.", minimum=1.0, maximum=10_000.0)
    seed: int = seed_option()
    seeds: int = seeds_option(20)
    arm: tuple[str, ...] = option((), help="Only this arm (may be repeated).", shown="all of them")
    z: float = option(ReservePolicy().z, help="Standard deviations kept free per machine.", minimum=0.0, maximum=10.0)
    probation_min: float = option(
        ReservePolicy().probation_s / 60.0,
        help="Minutes for which a job keeps its request.",
        minimum=0.0,
        maximum=10_000.0,
    )
    models: bool = option(
        True, name="--models/--no-models", help="Also run the arms that need models, which are trained out of fold."
    )
    folds: int = option(10, help="Parts that groups are dealt to for predictions.", minimum=2, maximum=100)


def run_study(config: Config, context: Context) -> Findings:
    """Simulate the arms on drawn jobs; return shares of the oracle's gain with intervals, kills and stretch."""
    _check("variation", config.variation, VARIATIONS)
    _check("arm", config.arm, ARMS)
    arms = [arm for arm in ARMS if not config.arm or arm in (*config.arm, REQUESTED, ORACLE)]
    jobs, predictor = _jobs(config, context), None
    if any(ARMS[arm].predicts for arm in arms):
        predictor, note = _predictor(jobs, config, context)
        jobs = replace(jobs, notes=(*jobs.notes, note))
    return _findings(config, jobs, _rows(config, context, jobs, predictor, arms))


def _check(option: str, given: Sequence[str], known: Iterable[str]) -> None:
    if unknown := [each for each in given if each not in set(known)]:
        raise BadUsage(f"--{option} {unknown[0]}: expected one of {', '.join(known)}")


def _jobs(config: Config, context: Context) -> MeasuredJobs:
    if config.pool is not None:
        return measured_in(config.pool)
    lake, trace = context.lake(), context.trace(config.trace)
    return measured_jobs(*(lake.table(table, trace).collect() for table in ("jobs", "usage")))


def _predictor(jobs: MeasuredJobs, config: Config, context: Context) -> tuple[Predictor | None, str]:
    """Train models out of fold; return their predictions and a note, or None without models."""
    if not config.models:
        return None, "arms that need models were not run"
    try:
        fitted = crossfit(
            jobs.pool,
            jobs.jobs,
            jobs.usage,
            folds=config.folds,
            seed=config.seed,
            nthread=context.threads,
            talk=context.talk,
        )
    except TrainingError as error:
        return None, f"arms that need models were not run: {error}"
    return FoldedPredictor.of(fitted, jobs.pool), f"predictions out of {config.folds} folds of groups"


def _rows(
    config: Config,
    context: Context,
    jobs: MeasuredJobs,
    predictor: Predictor | None,
    arms: Sequence[str],
) -> list[Row]:
    """Simulate the arms, without those that need models if there is no predictor; return a row per place and arm."""
    setting = Setting(
        arms=arms if predictor is not None else [arm for arm in arms if not ARMS[arm].predicts],
        variations=config.variation or MAIN,
        sharings=config.sharing or ("pooled", "devices"),
        policies=config.policy or ("fifo",),
        reserve=replace(ReservePolicy(), z=config.z, probation_s=60.0 * config.probation_min),
    )
    asked = asked_of(jobs.pool, predictor or oracle_of(jobs.pool), ShrinkPolicy())
    seeds = range(config.seed, config.seed + config.seeds)
    cases = drawn(jobs.pool, seeds=seeds, rate_per_h=config.rate)
    return share_rows(run_all(asked, cases, setting, trace_of(jobs.pool.jobs), context.engine), jobs.pool)


def _findings(config: Config, jobs: MeasuredJobs, rows: list[Row]) -> Findings:
    trace = trace_of(jobs.pool.jobs)
    about = f"{trace}: {len(jobs.pool.jobs)} measured jobs; {config.rate:g} jobs/h, means of {config.seeds} seeds"
    return Findings(
        study="reclaim",
        trace=trace,
        tables={"": _shown(rows)},
        charts=drawings(rows, [about]),
        notes=(*jobs.notes, *NOTES),
        flat=rows,
    )


def _shown(rows: Sequence[Row]) -> list[Row]:
    """Return rows for the screen: the columns of places that differ, and the main figures."""
    differing = [name for name in PLACE if len({row[name] for row in rows}) > 1]
    kept = (*differing, "arm", "share", "share_lo", "share_hi", "finished", "gpus_used", "killed", "stretch_p99")
    return rendered([{name: row[name] for name in kept} for row in rows])


_WHAT: Final = {name: arm.what for name, arm in ARMS.items()}
RECLAIMING: Final = Study(name="reclaim", config=Config, run=run_study, arms=_WHAT, takes=("lake", "threads", "engine"))
