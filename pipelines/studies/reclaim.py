"""Study of reclaiming while jobs run: reservations that follow measured use, against sizes fixed at submission."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final, Literal

import numpy as np
import polars as pl

from features.frames import has_ended
from pipelines.errors import BadUsage, TrainingError
from pipelines.simulation.advice import (
    ORACLE,
    RECLAIM,
    RECLAIM_PRIOR,
    REQUESTED,
    SHRUNK,
    UNGUARDED,
    Sized,
    oracle_advice,
    oracle_of,
)
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.slowdown import contention_ideal
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.measures.job_metrics import job_metrics
from pipelines.simulation.measures.metrics import STRETCHED_ABOVE
from pipelines.simulation.rows import trace_of
from pipelines.simulation.shared.inputs import Load, Reserving, load_of
from pipelines.simulation.shared.variation import VARIATIONS
from pipelines.simulation.workloads import Gangs, arriving, as_requested, gangs_of
from pipelines.studies.compare import ARM, clopper_pearson, compare, mean, ratio
from pipelines.studies.shrinking.arms import (
    Size,
    Sizing,
    crossfit,
    guarded,
    requests_of,
    run_times,
    sizing,
    unguarded,
)
from pipelines.studies.shrinking.runs import WITH, drawn, of_mix, populations, weights_of
from pipelines.studies.study import Context, Findings, Row, Study, option, seed_option, seeds_option, trace_option
from scheduler_core.cluster import paper_machines
from scheduler_core.gangs import Sharing
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import IntArray, Predictor, Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to reserve capacity: its description, its function, and whether it needs predictions."""

    what: str
    size: Callable[[Sizing, Gangs, ReservePolicy], Sized]
    predicts: bool = False


def sized(arm: str, inputs: Sizing, gangs: Gangs, policy: ReservePolicy) -> Sized:
    """Return how an arm treats the jobs of the pool; queue orders see the same predicted run times in every arm."""
    first = ARMS[arm].size(inputs, gangs, policy)
    predicted_s = run_times(inputs, requests_of(inputs.jobs))
    known = np.where(np.isfinite(predicted_s) & (predicted_s >= 0.0), predicted_s, np.nan)
    return replace(first, starts=replace(first.starts, predicted_s=known))


def mean_use(inputs: Sizing) -> list[Recommendation]:
    """Give every job its measured mean compute and peak memory; what that costs is left to the simulation."""
    return oracle_advice(inputs.pool, contention_ideal)


def _at_submission(give: Size) -> Callable[[Sizing, Gangs, ReservePolicy], Sized]:
    return lambda inputs, gangs, _: Sized.at_submission(inputs.pool, gangs, give(inputs))


def _reserving(make: Callable[[ReservePolicy], Reserving]) -> Callable[[Sizing, Gangs, ReservePolicy], Sized]:
    return lambda _, gangs, policy: Sized(starts=as_requested(gangs), reserving=make(policy))


def _overcommit(compute: float, memory: float) -> Callable[[Sizing, Gangs, ReservePolicy], Sized]:
    return _reserving(lambda _: Reserving(overcommit=(compute, memory, compute)))


def _reclaim_prior(inputs: Sizing, gangs: Gangs, policy: ReservePolicy) -> Sized:
    """Reclaim, and size the CPU and GPU compute of a newcomer by the usage models; memory stays at the request."""
    peak = inputs.predictor.peak_use(inputs.jobs)
    return Sized.newcomers(gangs, as_requested(gangs), policy, peak, min_runs=inputs.policy.min_runs)


ARMS: Final[Mapping[str, Arm]] = {
    REQUESTED: Arm(what="every job holds its request", size=_reserving(lambda _: Reserving())),
    SHRUNK: Arm(what="Algorithm 1 above floors", size=_at_submission(guarded), predicts=True),
    UNGUARDED: Arm(what="Algorithm 1 as published", size=_at_submission(unguarded), predicts=True),
    "overcommit_2": Arm(what="CPU and GPUs counted twice", size=_overcommit(2.0, 1.0)),
    "overcommit_2_memory": Arm(what="CPU and GPUs counted twice, memory 1.5 times", size=_overcommit(2.0, 1.5)),
    RECLAIM: Arm(
        what="measured use after the probation, with a bound on risk per machine",
        size=_reserving(lambda policy: Reserving(policy=policy)),
    ),
    RECLAIM_PRIOR: Arm(what="as reclaim; usage models size new jobs' compute", size=_reclaim_prior, predicts=True),
    ORACLE: Arm(what="measured mean compute and peak memory, at submission", size=_at_submission(mean_use)),
}
"""The arms by name, in the order of the tables; gains are relative to `requested`, shares to `oracle`."""


MAIN: Final = ("default", "ideal")
PLACE: Final = ("mix", "sharing", "variation")
"""Columns within which arms are compared."""

NOTES: Final = (
    "how use varies within a run is assumed: see `Variation` in pipelines/simulation/shared/variation.py",
    "share: gain in finished jobs over the gain of an oracle that knows mean use at submission; - if it gains nothing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study: the jobs, what the runs vary, models, and the policy of reclaiming."""

    trace: str | None = trace_option()
    variation: tuple[str, ...] = option(
        (), help=f"How use varies: {', '.join(VARIATIONS)} (may be repeated).", shown=" and ".join(MAIN)
    )
    sharing: tuple[Literal["pooled", "devices"], ...] = option(
        (), help="How GPUs are counted (may be repeated).", shown="both"
    )
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
    for name, given, known in (("variation", config.variation, VARIATIONS), ("arm", config.arm, ARMS)):
        if unknown := [each for each in given if each not in known]:
            raise BadUsage(f"--{name} {unknown[0]}: expected one of {', '.join(known)}")
    arms = [arm for arm in ARMS if not config.arm or arm in (*config.arm, REQUESTED, ORACLE)]
    lake, name = context.lake(), context.trace(config.trace)
    jobs, usage = (lake.table(table, name).collect() for table in ("jobs", "usage"))
    jobs = of_mix(jobs)
    pool, notes = measured_jobs(jobs, usage)
    trace, predictor = trace_of(pool.jobs), None
    if any(ARMS[arm].predicts for arm in arms):
        predictor, note = _predictor(pool, jobs, usage, config, context)
        notes = [*notes, note]
    if predictor is None:
        arms = [arm for arm in arms if not ARMS[arm].predicts]
    runs = simulated(config, context, pool, predictor, arms)
    about = (
        f"{trace}: {len(pool.jobs)} measured jobs; FIFO, {config.rate:g} jobs/h, means of {config.seeds} seeds; z "
        f"{config.z:g}, probation {config.probation_min:g} min"
    )
    return Findings(
        study="reclaim",
        trace=trace,
        tables={"share of the oracle's gain": share_rows(runs)},
        notes=(about, *notes, *NOTES),
    )


def measured_jobs(jobs: pl.DataFrame, usage: pl.DataFrame) -> tuple[Pool, list[str]]:
    """Return the measured jobs of the task types of the paper's mix, and notes."""
    pool = job_pool(jobs, usage)
    left = ", ".join(f"{count} {why}" for why, count in pool.dropped.items() if count)
    notes = [f"{len(pool.jobs)} measured jobs, drawn in the paper's mix"]
    return pool, [*notes, *([f"not in the pool: {left}"] if left else [])]


def _predictor(
    pool: Pool, jobs: pl.DataFrame, usage: pl.DataFrame, config: Config, context: Context
) -> tuple[Predictor | None, str]:
    """Train models out of fold; return their predictions and a note, or None without models."""
    if not config.models:
        return None, "arms that need models were not run"
    if unended := pool.frame.filter(~has_ended()).height:
        return None, f"arms that need models were not run: {unended} measured jobs have no end_ts, or still run"
    options = {"folds": config.folds, "seed": config.seed, "nthread": context.threads}
    try:
        fitted = crossfit(pool, jobs, usage, talk=context.talk, **options)
    except TrainingError as error:
        return None, f"arms that need models were not run: {error}"
    return fitted, f"predictions out of {config.folds} folds of groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every arm is simulated in: jobs, the populations by mix, and the combinations of settings."""

    pool: Pool
    mixes: Mapping[str, tuple[IntArray, Mapping[str, float]]]
    gangs: Gangs
    load: Load
    settings: Sequence[tuple[Sharing, str]]
    rate_per_h: float


def simulated(
    config: Config, context: Context, pool: Pool, predictor: Predictor | None, arms: Sequence[str]
) -> pl.DataFrame:
    """Simulate every arm in every mix and setting; return one row per run."""
    policy = replace(ReservePolicy(), z=config.z, probation_s=60.0 * config.probation_min)
    working = gangs_of(pool.frame, gpus_per_machine=max(machine.gpus for machine in paper_machines()))
    # A drawn job completes, even if the recorded job failed.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    inputs = sizing(pool, predictor or oracle_of(pool), ShrinkPolicy())
    mixes = {
        "gnn" if gnn == WITH else "no-gnn": (members, weights_of(gnn)) for gnn, members in populations(pool).items()
    }
    settings = product(config.sharing or ("pooled", "devices"), config.variation or MAIN)
    plan = Plan(
        pool=pool,
        mixes=mixes,
        gangs=gangs,
        load=load_of(pool.jobs, gangs),
        settings=list(settings),
        rate_per_h=config.rate,
    )
    treated = {arm: sized(arm, inputs, gangs, policy) for arm in arms}
    seeds = range(config.seed, config.seed + config.seeds)
    return compare(treated, seeds, partial(_run, plan=plan), engine=context.engine, talk=context.talk)


def _run(arm: Sized, seed: int, *, plan: Plan) -> list[Row]:
    """Simulate one arm with one seed, in every mix and setting."""
    # Imported here, because it loads compiled code that the first process compiles.
    from pipelines.simulation.shared.run import simulate_shared

    rows: list[Row] = []
    for mix, (members, weights) in plan.mixes.items():
        arrivals = drawn(plan.pool, members, weights, plan.rate_per_h, PAPER_HORIZON_S, seed)
        picks = arrivals.picks
        for sharing, variation in plan.settings:
            run = simulate_shared(
                arriving(plan.gangs, arm.starts, arrivals.at_s, picks),
                plan.load.picked(picks),
                paper_machines(),
                arm.reserving.picked(picks),
                variation=VARIATIONS[variation],
                discipline=Discipline(sharing=sharing),
                horizon_s=PAPER_HORIZON_S,
                seed=seed,
            )
            jobs = job_metrics(run.schedule)
            started = ~np.isnan(jobs.first_start_s)
            stretch = jobs.stretch[started]
            work_s = plan.gangs.run_s[picks] * np.nan_to_num(jobs.done_frac) * plan.gangs.instances[picks]
            gpus = np.minimum(plan.load.compute[picks][:, 1], plan.gangs.request_units[picks, 2]) / 1000.0
            rows.append(
                {"mix": mix, "sharing": sharing, "variation": variation}
                | {"finished": float(jobs.completed.sum()), "killed": float(jobs.killed.sum())}
                | {"stretch_p99": float(np.quantile(stretch, 0.99)) if len(stretch) else np.nan}
                | {"stretched_share": float((stretch > STRETCHED_ABOVE).mean()) if len(stretch) else np.nan}
                | {"gpus_used": float((work_s * gpus).sum() / run.schedule.end_s)}
                | {"killed_rows": np.unique(picks[jobs.killed]).tolist()}
                | {"started_rows": np.unique(picks[started]).tolist()}
            )
    return rows


def share_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per place and arm: its share of the oracle's gain, and its kills and stretch.

    `share` is (finished - finished as requested) / (finished by the oracle - finished as requested), a ratio of means
    over seeds with its interval. `killed` sums over seeds. `killed_rows_hi` is the upper end of the interval of the
    share of distinct jobs of the pool that were killed at least once, of those that started. `gpus_used` is the mean
    number of GPUs that did work which was not lost.
    """
    rows: list[Row] = []
    for key, members in runs.group_by(PLACE, maintain_order=True):
        by_arm = {str(arm): own.sort("seed") for (arm,), own in members.group_by(ARM, maintain_order=True)}
        base, most = (by_arm[name]["finished"].to_numpy() for name in (REQUESTED, ORACLE))
        for arm, own in by_arm.items():
            finished = own["finished"].to_numpy()
            killed, started = (own[name].explode().drop_nulls().n_unique() for name in ("killed_rows", "started_rows"))
            rows.append(
                {**dict(zip(PLACE, key, strict=True)), ARM: arm, **ratio(finished - base, most - base).columns("share")}
                | {"finished": mean(finished).value, "gpus_used": mean(own["gpus_used"].to_numpy()).value}
                | {"killed": int(own["killed"].sum()), "killed_rows": killed}
                | {"killed_rows_hi": clopper_pearson(killed, started).high}
                | {"stretch_p99": mean(own["stretch_p99"].to_numpy()).value}
                | {"stretched_share": mean(own["stretched_share"].to_numpy()).value}
            )
    return rows


RECLAIMING: Final = Study(
    name="reclaim",
    config=Config,
    run=run_study,
    arms={name: arm.what for name, arm in ARMS.items()},
    takes=("lake", "threads", "engine"),
)
