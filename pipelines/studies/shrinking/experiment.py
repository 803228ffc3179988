"""The paper's experiments from a pool and a predictor to rows: what is varied, run, and set beside the claims.

Puts the parts together; who predicts is the command's choice. Called by `taut experiment 1|2|3|ablate`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.advice import SHRUNK, Advice, model_decided_share
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.simulation_rows import trace_of
from pipelines.simulation.simulation_settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.studies.shrinking.arms import ABLATION_ARMS, EXPERIMENT_ARMS, Arm, advice_of, asked_of
from pipelines.studies.shrinking.cases import LOADS_PER_H, MIXES, PAPER, WITH, cases_of, populations
from pipelines.studies.shrinking.claims import Row
from pipelines.studies.shrinking.runs import POLICIES, Outcomes, run_cases
from pipelines.studies.shrinking.tables import TABLES, Seen
from scheduler_core.shrink import PAPER_ALPHA0, ShrinkPolicy
from scheduler_core.types import Predictor

LEAST_SEEDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What one experiment varies, which arms it runs, and at which load it watches them over time."""

    arms: Mapping[str, Arm]
    mixes: Sequence[str] = (PAPER,)
    policies: Sequence[str] = ("fifo",)
    loads_per_h: Sequence[float] = (PAPER_RATE_PER_H,)
    watched_per_h: float | None = None


EXPERIMENTS: Final[Mapping[str, Design]] = {
    "1": Design(arms=EXPERIMENT_ARMS, loads_per_h=LOADS_PER_H, watched_per_h=PAPER_RATE_PER_H),
    "2": Design(arms=EXPERIMENT_ARMS, mixes=tuple(MIXES)),
    "3": Design(arms=EXPERIMENT_ARMS, policies=tuple(POLICIES)),
    "ablate": Design(arms=ABLATION_ARMS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which experiment, on whose jobs, advised by whom; replication i draws its arrivals from seed + i.

    `loads_per_h` are those of the design where none are given; `notes` say what has to be said of who predicts.
    """

    experiment: str
    pool: Pool
    predictor: Predictor
    policy: ShrinkPolicy = field(default_factory=ShrinkPolicy)
    settings: SimulationSettings = field(default_factory=lambda: SimulationSettings(engine="compiled"))
    seed: int = 0
    seeds: int = 10
    loads_per_h: Sequence[float] | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Tables of rows by what they are about, the runs behind them, and the notes that belong to every figure.

    `jobs` counts those of the pool that is drawn from.
    """

    experiment: str
    trace: str
    workload: str
    jobs: int
    tables: Mapping[str, list[Row]]
    outcomes: Outcomes
    notes: tuple[str, ...]

    def rows(self) -> list[Row]:
        """Return the rows of all tables, each saying what it is of and about, with what its kind of rows tells."""
        said = {"workload": self.workload, "trace": self.trace}
        return [
            {"experiment": self.experiment, **said, "about": about, **row}
            for about, rows in self.tables.items()
            for row in told(rows)
        ]


def ask(question: Question, *, talk: Callable[[str], None] = lambda _: None) -> Answer:
    """Run one experiment: every arm of it under the same arrivals, for every case, policy and truth.

    Raises
    ------
    BadUsage
        If there is no such experiment, too few seeds for an interval, or the pool lacks a kind of the paper's mixes.
    """
    if question.experiment not in EXPERIMENTS:
        raise BadUsage(f"experiment {question.experiment[:40]}: expected one of {', '.join(EXPERIMENTS)}")
    if question.seeds < LEAST_SEEDS:
        raise BadUsage(f"experiment: found {question.seeds} seeds, expected at least {LEAST_SEEDS} for an interval")
    design, pool = EXPERIMENTS[question.experiment], question.pool
    loads = tuple(question.loads_per_h or design.loads_per_h)
    began = time.perf_counter()
    advice = advice_of(asked_of(pool, question.predictor, question.policy), design.arms)
    talk(f"advice of {len(design.arms)} arms for {len(pool.jobs)} jobs took {time.perf_counter() - began:.1f} s")
    cases = cases_of(
        pool,
        seeds=range(question.seed, question.seed + question.seeds),
        mixes=design.mixes,
        loads_per_h=loads,
        horizon_s=question.settings.horizon_s,
    )
    settings = replace(question.settings, shrink_policy=question.policy)
    began = time.perf_counter()
    outcomes = run_cases(pool, advice, cases, settings, policies=design.policies, watched_per_h=design.watched_per_h)
    talk(f"{outcomes.runs.height} runs took {time.perf_counter() - began:.1f} s")
    seen = Seen(pool=pool, advice=advice, arms=design.arms, outcomes=outcomes)
    return Answer(
        experiment=question.experiment,
        trace=trace_of(pool.jobs),
        workload=workload_of(pool),
        jobs=len(pool.jobs),
        tables={about: make(seen) for about, make in TABLES[question.experiment].items()},
        outcomes=outcomes,
        notes=(*settings.notes(), *notes_of(question, advice, loads), *question.notes),
    )


def told(rows: Sequence[Row]) -> list[Row]:
    """Return rows of one kind, all with the same names, without what none of them knows.

    >>> told([{"arm": "a", "killed": None, "p99": 1.0}, {"arm": "b", "killed": None}])
    [{'arm': 'a', 'p99': 1.0}, {'arm': 'b', 'p99': None}]
    """
    known = dict.fromkeys(name for row in rows for name, value in row.items() if not _unknown(value))
    return [{name: row.get(name) for name in known} for row in rows]


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def workload_of(pool: Pool) -> str:
    """Say whether the jobs are real or made, and how they come to the cluster."""
    trace = trace_of(pool.jobs)
    kind = {"pai": "real", "pai-synth": "synthetic"}.get(trace, f"of {trace}")
    return f"{kind} jobs drawn with replacement by type"


def notes_of(question: Question, advice: Advice, loads: Sequence[float]) -> list[str]:
    """State what every figure rests on and no row tells."""
    pool = question.pool
    kinds = [entry.job.task_type for entry in pool.jobs]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    said = [
        f"{workload_of(pool)}: {len(pool.jobs)} measured jobs of {trace_of(pool.jobs)} ({counts}); "
        + ", ".join(f"{count} left out for {why}" for why, count in pool.dropped.items() if count),
        f"Poisson arrivals at {', '.join(f'{load:g}' for load in loads)} jobs/h for "
        f"{question.settings.horizon_s / 3600.0:g} h, seeds {question.seed} to {question.seed + question.seeds - 1}",
        "mixes are by task type, cv:nlp:gnn:ctr; the paper names ResNet, NMT, GraphLearn and CTR",
        "intervals are 95 %, Student's over seeds; ratios are of means, arms paired by seed",
        f"Algorithm 1 with theta {question.policy.theta:g}: correlation, as no recorded job ran twice with less; above "
        f"floors alpha goes from {question.policy.first_alpha:g}, and importance does not count from "
        f"{question.policy.sure_runs:g} measured runs on; without floors alpha goes from {PAPER_ALPHA0:g}",
        "every arm orders by the same predicted run times; the oracle knows use, not run time",
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
