"""Reclaiming while jobs run: the share of an oracle's gain that measured reservations reach, and at what harm.

Jobs are drawn from measured ones, under the slowdown model `shared`. Called by `taut study`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import polars as pl

from features.canonical import CANONICAL
from features.frames import frame_schema
from pipelines.errors import BadUsage, TrainingError
from pipelines.simulation.advice import ORACLE, REQUESTED, oracle_of
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.rows import trace_of
from pipelines.simulation.simulate import ALL
from pipelines.studies.reclaim.arms import ARMS, RECLAIM
from pipelines.studies.reclaim.runs import VARIATIONS, Setting, run_all, share_rows
from pipelines.studies.shrinking.arms import asked_of
from pipelines.studies.shrinking.cases import PAPER, TYPES, cases_of
from pipelines.studies.shrinking.crossfit import FoldedPredictor, crossfit
from pipelines.studies.study import Context, Findings, Row, Study, option, seed_option, seeds_option, trace_option
from scheduler_core.reserve import ReservePolicy
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import Predictor

__all__ = ["FRONTIER", "RECLAIMING"]

MAIN: Final = ("default", "prototype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the reclaiming study."""

    trace: str | None = trace_option()
    pool: Path | None = option(
        None,
        help="Measured rows instead of a trace: a Parquet or CSV file with the columns of the tables jobs and usage.",
    )
    arm: tuple[str, ...] = option((), help="Only this arm (may be repeated).", shown="all of them")
    variation: tuple[str, ...] = option(
        (), help=f"How use varies: {', '.join(VARIATIONS)} (may be repeated).", shown=" and ".join(MAIN)
    )
    sharing: tuple[Literal["pooled", "devices"], ...] = option(
        (), help="How GPUs are counted (may be repeated).", shown="both"
    )
    policy: tuple[Literal["fifo", "srtf", "drf"], ...] = option((), help="Queue order (may be repeated).", shown="fifo")
    rate: float = option(70.0, help="Arrivals per hour.", minimum=1.0, maximum=10_000.0)
    z: float = option(ReservePolicy().z, help="Standard deviations kept free per machine.", minimum=0.0, maximum=10.0)
    probation_min: float = option(
        ReservePolicy().probation_s / 60.0, help="Minutes for which a job keeps its request.", minimum=0.0
    )
    folds: int = option(10, help="Parts that groups are dealt to for predictions.", minimum=2, maximum=100)
    models: bool = option(True, help="Also run the arms that need models, which are trained out of fold.")
    seed: int = seed_option()
    seeds: int = seeds_option(20)


def run_study(config: Config, context: Context) -> Findings:
    """Simulate the arms on drawn jobs; return shares of the oracle's gain with intervals, kills and stretch."""
    policy = replace(ReservePolicy(), z=config.z, probation_s=60.0 * config.probation_min)
    return _findings("reclaim", config, context, _arms(config), [policy])


def run_frontier(config: Config, context: Context) -> Findings:
    """Simulate reclaiming over probations and z, without models."""
    policies = [
        replace(ReservePolicy(), z=z, probation_s=60.0 * minutes)
        for minutes in (3.0, 5.0, 6.0, 10.0, 20.0)
        for z in (0.0, 0.67, 1.28, 1.645, 2.33)
    ]
    return _findings("reclaim-frontier", config, context, (REQUESTED, RECLAIM, ORACLE), policies)


def _findings(
    name: str, config: Config, context: Context, arms: tuple[str, ...], policies: list[ReservePolicy]
) -> Findings:
    variations = config.variation or MAIN
    if unknown := [each for each in variations if each not in VARIATIONS]:
        raise BadUsage(f"--variation {unknown[0]}: expected one of {', '.join(VARIATIONS)}")
    pool, predictor, notes = _jobs(config, context, predicts=any(ARMS[arm].predicts for arm in arms))
    if predictor is None:
        arms, predictor = tuple(arm for arm in arms if not ARMS[arm].predicts), oracle_of(pool)
    seeds = range(config.seed, config.seed + config.seeds)
    drawn = cases_of(pool, seeds=seeds, mixes=(PAPER,), loads_per_h=(config.rate,))
    cases = [each for each in drawn if each.devices == ALL]
    setting = Setting(
        arms=arms,
        variations=variations,
        sharings=config.sharing or ("pooled", "devices"),
        policies=config.policy or ("fifo",),
        reserve=policies,
    )
    trace = trace_of(pool.jobs)
    runs = run_all(asked_of(pool, predictor, ShrinkPolicy()), cases, setting, trace, context.processes)
    rows = share_rows(runs, pool)
    return Findings(study=name, trace=trace, tables={"": [_short(row) for row in rows]}, flat=rows, notes=notes)


def _short(row: Row) -> Row:
    """Return the columns of a row for the screen."""
    kept = ("mix", "sharing", "variation", "arm", "share", "share_lo", "share_hi", "finished", "gpus_used", "killed")
    varied = {"policy": row["policy"], "z": row["z"], "min": float(str(row["probation_s"])) / 60.0}
    return {name: row[name] for name in kept} | {"stretch_p99": row["stretch_p99"]} | varied


def _arms(config: Config) -> tuple[str, ...]:
    if unknown := [each for each in config.arm if each not in ARMS]:
        raise BadUsage(f"--arm {unknown[0]}: expected one of {', '.join(ARMS)}")
    return tuple(arm for arm in ARMS if not config.arm or arm in (*config.arm, REQUESTED, ORACLE))


def _jobs(config: Config, context: Context, *, predicts: bool) -> tuple[Pool, Predictor | None, tuple[str, ...]]:
    """Return the measured jobs, a predictor for them (None without models), and notes."""
    if config.pool is None:
        lake, trace = context.lake(), context.trace(config.trace)
        jobs, usage = (lake.table(table, trace).collect() for table in ("jobs", "usage"))
    else:
        jobs, usage = _tables(config.pool)
    jobs = jobs.filter(pl.col("task_type").is_in(TYPES))
    pool = job_pool(jobs, usage)
    notes = [
        f"{len(pool.jobs)} measured jobs; how use varies within a run is assumed, see `Variation`",
        "share: gain in finished jobs over the gain of an oracle that knows mean use at submission",
    ]
    if not (config.models and predicts):
        return pool, None, (*notes, "arms that need models were not run")
    try:
        fitted = crossfit(
            pool, jobs, usage, folds=config.folds, seed=config.seed, nthread=context.threads, talk=context.talk
        )
    except TrainingError as error:
        return pool, None, (*notes, f"arms that need models were not run: {error}")
    return pool, FoldedPredictor.of(fitted, pool), (*notes, f"predictions out of {config.folds} folds of groups")


def _tables(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read measured rows from a file, as the canonical tables of jobs and of use; absent columns become null."""
    try:
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, try_parse_dates=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadUsage(f"--pool {path}: not a Parquet or CSV file that can be read ({error})") from error
    needed = ("job_id", "task_type", "submit_ts", "run_s", "req_cpu_cores", "req_mem_gib", "req_gpus", "used_cpu_cores")
    if lacking := [name for name in needed if name not in frame.columns]:
        raise BadUsage(f"--pool {path}: found no column {', '.join(lacking)}; expected the columns of jobs and usage")
    defaults = {"trace": "pool", "cluster": "pool", "role": "worker", "instances": 1, "run_s_censored": False}
    filled = frame.with_columns(
        *(pl.lit(value).alias(name) for name, value in defaults.items() if name not in frame.columns)
    )
    return _canonical(filled, "jobs", path), _canonical(filled, "usage", path)


def _canonical(frame: pl.DataFrame, table: str, path: Path) -> pl.DataFrame:
    schema = frame_schema({name: column.kind for name, column in CANONICAL[table].columns.items()})
    present = {name: kind for name, kind in schema.items() if name in frame.columns}
    try:
        return frame.select(
            pl.col(name).cast(kind) if name in present else pl.lit(None, dtype=kind).alias(name)
            for name, kind in schema.items()
        )
    except pl.exceptions.PolarsError as error:
        raise BadUsage(f"--pool {path}: a column has another type than in the table {table}: {error}") from error


_WHAT: Final = {name: arm.what for name, arm in ARMS.items()}
RECLAIMING: Final = Study(
    name="reclaim", config=Config, run=run_study, arms=_WHAT, takes=("lake", "threads", "processes")
)
FRONTIER: Final = Study(
    name="reclaim-frontier", config=Config, run=run_frontier, takes=("lake", "threads", "processes")
)
