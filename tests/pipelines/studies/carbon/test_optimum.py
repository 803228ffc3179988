import itertools

import numpy as np
import pytest

from pipelines.studies.carbon.optimum import exhaustive
from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, ElasticJobs, mean_completion_s
from tests.scheduler_core.planning.carbon.made_rounds import Around, check_feasible, random_jobs, spent_g


def small_round(seed: int) -> tuple[ElasticJobs, Around]:
    rng = np.random.default_rng(seed)
    jobs = random_jobs(rng, int(rng.integers(1, 4)), 4, 2)
    full_g = 400.0 * 4 * float(jobs.watts.mean()) * 600.0 / 3.6e6
    around = Around(gpus=4, intensity_g_per_kwh=400.0, budget_g=full_g * rng.uniform(0.1, 1.2), period_s=600.0)
    return jobs, around


def every_plan(jobs: ElasticJobs, around: Around):
    counts = [[0, *np.flatnonzero(jobs.allowed[row])] for row in range(len(jobs))]
    for gpus in itertools.product(*counts):
        for step in itertools.product(range(len(jobs.mhz)), repeat=len(jobs)):
            held = np.array(gpus, dtype=np.int64)
            plan = CountsAndFrequencies(gpus=held, step=np.array(step), postponed=held == 0)
            if held.sum() <= around.gpus and spent_g(jobs, plan, around) <= around.budget_g:
                yield plan


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_written_out_one_by_one_is_shorter(seed: int) -> None:
    jobs, around = small_round(seed)

    best = exhaustive(jobs, **around.arguments())

    check_feasible(jobs, best, around)
    plans_s = [mean_completion_s(jobs, plan, period_s=around.period_s) for plan in every_plan(jobs, around)]
    assert mean_completion_s(jobs, best, period_s=around.period_s) == pytest.approx(min(plans_s), rel=1e-9)


def test_more_budget_is_never_longer() -> None:
    for seed in range(20, 40):
        jobs, around = small_round(seed)
        means_s = [
            mean_completion_s(
                jobs,
                exhaustive(jobs, **{**around.arguments(), "budget_g": around.budget_g * part}),
                period_s=around.period_s,
            )
            for part in (0.2, 0.5, 1.0, 2.0)
        ]
        assert all(more <= less * (1.0 + 1e-12) for less, more in itertools.pairwise(means_s))


def test_plans_that_postpone_more_than_asked_are_left_out() -> None:
    for seed in range(40, 60):
        jobs, around = small_round(seed)
        ample = {**around.arguments(), "budget_g": 1e9, "gpus": 40}
        assert not exhaustive(jobs, **ample, most_postponed=0).postponed.any()


def test_it_is_said_where_every_plan_postpones_more() -> None:
    jobs, around = small_round(0)

    with pytest.raises(BadInput, match="found no plan that postpones at most 0"):
        exhaustive(jobs, **{**around.arguments(), "budget_g": 0.0}, most_postponed=0)


def test_too_many_plans_are_refused() -> None:
    jobs = random_jobs(np.random.default_rng(0), 8, 12, 5)

    with pytest.raises(BadInput, match="give fewer jobs"):
        exhaustive(jobs, gpus=40, intensity_g_per_kwh=400.0, budget_g=1e3, period_s=600.0)
