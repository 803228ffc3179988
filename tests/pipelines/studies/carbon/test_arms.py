"""What the allocator is measured against: each rule by hand, and within GPUs and budget over drawn rounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.studies.carbon.simulation import fifo_at_max, greedy_at_max
from scheduler_core.planning.elastic import ElasticJobs, Period
from tests.scheduler_core.planning.carbon.made_rounds import job_g

MOST = 4


def jobs_of(steps: list[float], ages: list[float], rigid: list[int] | None = None) -> ElasticJobs:
    many = len(steps)
    return ElasticJobs(
        steps_left=np.array(steps),
        steps_per_s=np.tile(np.sqrt(np.arange(MOST + 1)), (many, 1)),
        perf=np.tile([0.8, 1.0], (many, 1)),
        watts=np.tile([100.0, 200.0], (many, 1)),
        mhz=np.array([900.0, 1500.0]),
        age_s=np.array(ages),
        rigid_gpus=np.array(rigid if rigid is not None else [0] * many),
    )


ROUND = Period(intensity_g_per_kwh=1000.0, budget_g=np.inf, period_s=3600.0)


def test_greedy_gives_gpus_where_most_time_is_saved() -> None:
    plan = greedy_at_max(jobs_of([100.0, 1000.0], [0.0, 0.0]), 5, ROUND)

    assert plan.gpus.tolist() == [1, 4]
    assert plan.step.tolist() == [1, 1]


def test_greedy_gives_first_gpus_to_the_shortest() -> None:
    plan = greedy_at_max(jobs_of([300.0, 100.0, 200.0], [0.0, 0.0, 0.0]), 2, ROUND)

    assert plan.gpus.tolist() == [0, 1, 1]
    assert (plan.gpus == 0).tolist() == [True, False, False]


def test_fifo_waits_behind_who_does_not_fit() -> None:
    jobs = jobs_of([100.0, 100.0, 100.0], [30.0, 20.0, 10.0], rigid=[2, 3, 1])

    assert fifo_at_max(jobs, 4, ROUND).gpus.tolist() == [2, 0, 0]
    assert fifo_at_max(jobs, 4, ROUND).step.tolist() == [1, 1, 1]


def test_older_jobs_go_first_whatever_their_row() -> None:
    plan = fifo_at_max(jobs_of([100.0, 100.0], [1.0, 2.0], rigid=[3, 3]), 4, ROUND)

    assert plan.gpus.tolist() == [0, 3]


@pytest.mark.parametrize("planner", [greedy_at_max, fifo_at_max])
@given(seed=st.integers(0, 100_000))
def test_plans_stay_within_gpus_and_budget(planner: object, seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(1, 9))
    rigid = rng.integers(1, MOST + 1, many).tolist() if planner is not greedy_at_max else None
    jobs = jobs_of(rng.uniform(10.0, 5000.0, many).tolist(), rng.uniform(0.0, 100.0, many).tolist(), rigid)
    gpus, budget_g = int(rng.integers(0, 13)), float(rng.uniform(0.0, 120.0))
    intensity, period_s = float(rng.uniform(10, 900)), float(rng.uniform(60, 3600))
    period = Period(intensity_g_per_kwh=intensity, budget_g=budget_g, period_s=period_s, pue=1.3)

    plan = planner(jobs, gpus, period)  # type: ignore[operator]

    assert plan.gpus.sum() <= gpus
    assert job_g(jobs, plan, period).sum() <= budget_g * (1.0 + 1e-9)
    if rigid is not None:
        assert set(zip(plan.gpus.tolist(), rigid, strict=True)) <= {(0, each) for each in rigid} | set(
            zip(rigid, rigid, strict=True)
        )
