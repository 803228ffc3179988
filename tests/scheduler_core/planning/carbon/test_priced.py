"""A price on energy: none is the allocator itself, a high one leaves the least plan, budgets are kept under any."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import ElasticJobs
from scheduler_core.planning.carbon.emissions import drawn_w, period_emissions_g, remaining_s
from scheduler_core.planning.carbon.priced import priced

MOST = 4
AROUND = {"intensity_g_per_kwh": 500.0, "period_s": 600.0, "pue": 1.2}


def drawn(seed: int) -> ElasticJobs:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(1, 8))
    return ElasticJobs(
        steps_left=rng.uniform(100.0, 9000.0, many),
        steps_per_s=np.arange(MOST + 1) ** rng.uniform(0.3, 1.0, (many, 1)),
        perf=np.sort(rng.uniform(0.5, 1.0, (many, 3)), axis=1),
        watts=np.sort(rng.uniform(80.0, 250.0, (many, 3)), axis=1),
        mhz=np.array([900.0, 1200.0, 1500.0]),
        age_s=rng.uniform(0.0, 900.0, many),
        rigid_gpus=np.where(rng.random(many) < 0.3, rng.integers(1, MOST + 1, many), 0),
    )


@settings(max_examples=40)
@given(seed=st.integers(0, 100_000), gpus=st.integers(0, 16), budget_g=st.floats(0.0, 80.0))
def test_without_a_price_the_plan_is_the_allocators(seed: int, gpus: int, budget_g: float) -> None:
    jobs = drawn(seed)

    plan = priced(jobs, gpus=gpus, budget_g=budget_g, **AROUND)
    plain = allocate(jobs, gpus=gpus, budget_g=budget_g, **AROUND)

    assert plan.gpus.tolist() == plain.gpus.tolist()
    running = plan.gpus > 0
    assert plan.step[running].tolist() == plain.step[running].tolist()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 100_000),
    gpus=st.integers(0, 16),
    budget_g=st.floats(0.0, 80.0),
    price=st.floats(0.0, 1e7),
)
def test_plans_stay_within_gpus_and_budget_at_any_price(seed: int, gpus: int, budget_g: float, price: float) -> None:
    jobs = drawn(seed)

    plan = priced(jobs, gpus=gpus, budget_g=budget_g, price_s_per_kwh=price, **AROUND)

    assert plan.gpus.sum() <= gpus
    assert period_emissions_g(jobs, plan, **AROUND).sum() <= budget_g * (1.0 + 1e-9)
    assert (jobs.allowed[np.arange(len(jobs)), plan.gpus] | (plan.gpus == 0)).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 100_000))
def test_the_dearer_energy_the_less_is_taken_where_gpus_and_budget_are_plenty(seed: int) -> None:
    jobs = drawn(seed)
    plans = [
        priced(jobs, gpus=100, budget_g=np.inf, price_s_per_kwh=price, **AROUND) for price in (0.0, 1e4, 1e5, 1e6, 1e9)
    ]

    kwh = [float((drawn_w(jobs, plan) * remaining_s(jobs, plan)).sum()) for plan in plans]
    slow = [float(remaining_s(jobs, plan).sum()) for plan in plans]
    assert (np.diff(kwh) <= 1e-6 * max(kwh)).all()
    assert (np.diff(slow) >= -1e-6 * max(slow)).all()


def test_a_step_is_taken_up_to_the_price_that_it_is_worth() -> None:
    jobs = ElasticJobs(
        steps_left=np.array([3600.0]),
        steps_per_s=np.array([[0.0, 1.0, 1.5]]),
        perf=np.ones((1, 1)),
        watts=np.full((1, 1), 100.0),
        mhz=np.array([1500.0]),
        age_s=np.array([0.0]),
        rigid_gpus=np.array([0]),
    )
    worth = 1200.0 / (100.0 * (2 * 2400.0 - 3600.0) / 3.6e6)

    gpus = [
        int(priced(jobs, gpus=2, budget_g=np.inf, price_s_per_kwh=price, **AROUND).gpus[0])
        for price in (0.99 * worth, 1.01 * worth)
    ]

    assert gpus == [2, 1]


@pytest.mark.parametrize("price", [0.0, 1e9])
def test_rigid_jobs_keep_their_count_at_any_price(price: float) -> None:
    jobs = drawn(1)
    rigid = ElasticJobs(
        **{name: getattr(jobs, name) for name in ElasticJobs.__slots__ if name != "rigid_gpus"},
        rigid_gpus=np.full(len(jobs), 3),
    )

    plan = priced(rigid, gpus=3 * len(jobs), budget_g=np.inf, price_s_per_kwh=price, **AROUND)

    assert set(plan.gpus.tolist()) == {3}
