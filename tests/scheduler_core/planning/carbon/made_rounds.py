"""Rounds under a carbon budget for tests: small ones by hand, and random ones with every kind of job."""

from dataclasses import dataclass

import numpy as np

from scheduler_core.planning.carbon.climb import BudgetRule
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs
from tests.scheduler_core.planning.carbon.emissions import job_emissions_g, period_emissions_g


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a round gets besides jobs."""

    gpus: int
    intensity_g_per_kwh: float
    budget_g: float
    period_s: float
    pue: float = 1.0

    def arguments(self) -> dict[str, float]:
        return {
            "intensity_g_per_kwh": self.intensity_g_per_kwh,
            "budget_g": self.budget_g,
            "period_s": self.period_s,
            "pue": self.pue,
            "gpus": self.gpus,
        }


def jobs_of(
    speeds: list[list[float]],
    *,
    steps_left: list[float] | None = None,
    perf: list[float] = (1.0,),
    watts: list[float] = (100.0,),
    rigid: list[int] | None = None,
    age_s: list[float] | None = None,
) -> ElasticJobs:
    """Jobs of the same perf and watts, speeds with 1, 2, ... GPUs."""
    jobs = len(speeds)
    return ElasticJobs(
        steps_left=np.array(steps_left or [3600.0] * jobs),
        steps_per_s=np.array([[0.0, *row] for row in speeds]),
        perf=np.tile(np.asarray(perf, dtype=float), (jobs, 1)),
        watts=np.tile(np.asarray(watts, dtype=float), (jobs, 1)),
        mhz=np.linspace(800.0, 1500.0, len(perf)),
        age_s=np.array(age_s or [0.0] * jobs),
        rigid_gpus=np.array(rigid or [0] * jobs),
    )


def random_jobs(rng: np.random.Generator, jobs: int, most_gpus: int, steps: int) -> ElasticJobs:
    """Speeds that may fall, leap and be missing; perf and watts in any order; rigid ones; equal ones."""
    speeds = np.cumsum(rng.uniform(-0.1, 1.0, (jobs, most_gpus)), axis=1)
    speeds[speeds <= 0.0] = np.nan
    speeds[rng.random(speeds.shape) < 0.15] = np.nan
    speeds[:, 0] = rng.uniform(0.1, 1.0, jobs)
    rigid = np.where(rng.random(jobs) < 0.3, rng.integers(1, most_gpus + 1, jobs), 0)
    wanted = np.flatnonzero(rigid)
    speeds[wanted, rigid[wanted] - 1] = rng.uniform(0.5, 4.0, len(wanted))
    perf, watts = rng.uniform(0.3, 1.0, (jobs, steps)), rng.uniform(40.0, 300.0, (jobs, steps))
    if rng.random() < 0.7:
        perf, watts = np.sort(perf, axis=1), np.sort(watts, axis=1)
    left = np.exp(rng.uniform(np.log(10.0), np.log(40_000.0), jobs))
    made = ElasticJobs(
        steps_left=left,
        steps_per_s=np.hstack([np.zeros((jobs, 1)), speeds]),
        perf=perf,
        watts=watts,
        mhz=np.linspace(757.0, 1530.0, steps),
        age_s=rng.choice([0.0, 60.0, 7000.0], jobs),
        rigid_gpus=rigid.astype(np.int64),
    )
    return made.rows(rng.integers(jobs, size=jobs)) if rng.random() < 0.2 else made


def random_round(seed: int) -> tuple[ElasticJobs, Around]:
    """A round of 1 to 12 jobs, its budget from nothing to endless."""
    rng = np.random.default_rng(seed)
    gpus, period_s = int(rng.integers(1, 20)), float(rng.choice([60.0, 300.0, 3600.0]))
    jobs = random_jobs(rng, int(rng.integers(1, 13)), int(rng.integers(1, 13)), int(rng.integers(1, 8)))
    intensity = float(rng.choice([0.0, 15.0, 400.0, 900.0], p=[0.05, 0.25, 0.4, 0.3]))
    full_g = intensity * gpus * float(jobs.watts.mean()) * period_s / 3.6e6
    budget_g = float(rng.choice([0.0, full_g * rng.uniform(0.0, 1.5), np.inf], p=[0.03, 0.92, 0.05]))
    around = Around(gpus=gpus, intensity_g_per_kwh=intensity, budget_g=budget_g, period_s=period_s, pue=1.3)
    return jobs, around


def spent_g(jobs: ElasticJobs, plan: CountsAndFrequencies, around: Around, rule: BudgetRule = "period") -> float:
    """Return the plan's emissions that the budget limits: within the period, or until the jobs end."""
    intensity, period_s = around.intensity_g_per_kwh, around.period_s
    if rule == "to-completion":
        return float(job_emissions_g(jobs, plan, intensity_g_per_kwh=intensity, pue=around.pue).sum())
    return float(period_emissions_g(jobs, plan, intensity_g_per_kwh=intensity, period_s=period_s, pue=around.pue).sum())


def check_feasible(jobs: ElasticJobs, plan: CountsAndFrequencies, around: Around, rule: BudgetRule = "period") -> None:
    """Within budget and GPUs, on allowed counts only, postponed exactly where there are no GPUs."""
    rows = np.arange(len(jobs))
    assert spent_g(jobs, plan, around, rule) <= around.budget_g
    assert plan.gpus.sum() <= around.gpus
    assert np.all(jobs.allowed[rows, plan.gpus] | (plan.gpus == 0))
    assert np.array_equal(plan.postponed, plan.gpus == 0)
    assert np.all((plan.step >= 0) & (plan.step < len(jobs.mhz)))
