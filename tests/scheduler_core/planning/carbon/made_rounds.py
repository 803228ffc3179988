"""Rounds under a carbon budget for tests: small ones by hand, and random ones with every kind of job."""

import numpy as np

from scheduler_core.planning.elastic import CountsAndFrequencies, ElasticJobs, Period, drawn_w, remaining_s


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


def random_round(seed: int) -> tuple[ElasticJobs, int, Period]:
    """A round of 1 to 12 jobs with its GPUs, its budget from nothing to endless."""
    rng = np.random.default_rng(seed)
    gpus, period_s = int(rng.integers(1, 20)), float(rng.choice([60.0, 300.0, 3600.0]))
    jobs = random_jobs(rng, int(rng.integers(1, 13)), int(rng.integers(1, 13)), int(rng.integers(1, 8)))
    intensity = float(rng.choice([0.0, 15.0, 400.0, 900.0], p=[0.05, 0.25, 0.4, 0.3]))
    full_g = intensity * gpus * float(jobs.watts.mean()) * period_s / 3.6e6
    budget_g = float(rng.choice([0.0, full_g * rng.uniform(0.0, 1.5), np.inf], p=[0.03, 0.92, 0.05]))
    return jobs, gpus, Period(intensity_g_per_kwh=intensity, budget_g=budget_g, period_s=period_s, pue=1.3)


def job_g(jobs: ElasticJobs, plan: CountsAndFrequencies, period: Period) -> np.ndarray:
    """Each job's emissions that the budget limits, by the formula: I·PUE·P·T, of T at most the period by that rule."""
    counted_s = np.where(plan.gpus > 0, remaining_s(jobs, plan), 0.0)
    if period.rule == "period":
        counted_s = np.minimum(counted_s, period.period_s)
    return period.intensity_g_per_kwh * period.pue * drawn_w(jobs, plan) * counted_s / 3.6e6


def check_feasible(jobs: ElasticJobs, plan: CountsAndFrequencies, gpus: int, period: Period) -> None:
    """Within budget and GPUs, on allowed counts only, postponed exactly where there are no GPUs."""
    rows = np.arange(len(jobs))
    assert job_g(jobs, plan, period).sum() <= period.budget_g
    assert plan.gpus.sum() <= gpus
    assert np.all(jobs.allowed[rows, plan.gpus] | (plan.gpus == 0))
    assert np.all((plan.step >= 0) & (plan.step < len(jobs.mhz)))
