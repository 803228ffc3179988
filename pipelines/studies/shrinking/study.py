"""The study `shrinking`: jobs finished, use and harm of shrunk requests over load, and the goal under contention."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from pipelines.simulation.advice import ORACLE, SHRUNK, UNGUARDED, model_decided_share, oracle_of
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.rows import assumed_note, trace_of
from pipelines.simulation.settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.studies.shrinking.arms import ARMS, advice_of, crossfit, sizing
from pipelines.studies.shrinking.runs import (
    HARM,
    PAPER,
    WITH,
    Plan,
    claim_rows,
    goal_rows,
    level_rows,
    of_mix,
    populations,
    run_arms,
)
from pipelines.studies.study import (
    Context,
    Findings,
    Study,
    cluster_option,
    option,
    seed_option,
    seeds_option,
    trace_option,
)
from scheduler_core.shrink import PAPER_ALPHA0
from scheduler_core.types import Predictor

WHAT: Final = {
    SHRUNK: "Algorithm 1 above floors of peak use",
    UNGUARDED: "Algorithm 1 as in the paper, without floors",
    ORACLE: "what each job truly needed",
}


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
    load: float = option(PAPER_RATE_PER_H, help="Jobs per hour.", minimum=0.1, maximum=10_000.0)
    seeds: int = seeds_option(20)


def run(config: Config, context: Context) -> Findings:
    """Size the measured jobs of a trace in every arm, and simulate them at every load."""
    lake, trace = context.lake(), context.trace(config.trace)
    jobs, usage = (lake.table(table, trace, config.cluster).collect() for table in ("jobs", "usage"))
    jobs = of_mix(jobs)
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
    """Simulate every arm with the same arrivals, and make the tables."""
    advice = advice_of(sizing(pool, predictor, settings.shrink_policy), ARMS)
    plan = Plan(pool=pool, populations=populations(pool), loads_per_h=(config.load,), settings=settings)
    runs = run_arms(plan, advice, range(config.seed, config.seed + config.seeds))
    share = f"{model_decided_share(advice[SHRUNK]):.1%}"
    return Findings(
        study="shrinking",
        trace=trace_of(pool.jobs),
        claims=claim_rows(runs),
        tables={"goal": goal_rows(runs, SHRUNK), "harm": level_rows(runs, HARM)},
        frames={"runs": runs},
        notes=(
            *settings.notes(),
            *_notes(config, plan),
            f"the run-time model changed {share} of the decisions of `{SHRUNK}`; floors decided the rest",
        ),
    )


def _notes(config: Config, plan: Plan) -> list[str]:
    pool, policy = plan.pool, plan.settings.shrink_policy
    kinds = [entry.job.task_type for entry in pool.jobs]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    left_out = ", ".join(f"{count} left out for {why}" for why, count in pool.dropped.items() if count)
    notes = [
        f"{len(pool.jobs)} measured jobs of {trace_of(pool.jobs)} ({counts}), drawn again and again by type; "
        f"{left_out}",
        f"{config.load:g} jobs/h, mix {PAPER}, FIFO; {config.seeds} seeds from {config.seed}, 95 % intervals",
        f"Algorithm 1 with theta {policy.theta:g}: correlation, as no recorded job ran twice with less; alpha goes "
        f"from {policy.first_alpha:g} above floors, from {PAPER_ALPHA0:g} without",
    ]
    if not all(pool.known):
        notes.append(assumed_note(pool))
    if WITH in plan.populations:
        notes.append(f"GNN rests on {kinds.count('gnn')} jobs; gnn=without leaves its share out at the same load")
    return notes


SHRINKING: Final = Study(name="shrinking", config=Config, run=run, arms=WHAT, takes=("lake", "threads"))
