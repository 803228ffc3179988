"""A price on energy: none is the allocator itself, a high one leaves the least plan, budgets are kept under any."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import ElasticJobs, drawn_w, remaining_s
from scheduler_core.planning.carbon.priced import foreseen, priced
from tests.examples import examples
from tests.scheduler_core.planning.carbon.emissions import job_emissions_g, period_emissions_g

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


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 100_000), gpus=st.integers(0, 16), budget_g=st.floats(0.0, 80.0))
def test_without_a_price_the_plan_is_the_allocators(seed: int, gpus: int, budget_g: float) -> None:
    jobs = drawn(seed)

    plan = priced(jobs, gpus=gpus, budget_g=budget_g, **AROUND)
    plain = allocate(jobs, gpus=gpus, budget_g=budget_g, **AROUND)

    assert plan.gpus.tolist() == plain.gpus.tolist()
    running = plan.gpus > 0
    assert plan.step[running].tolist() == plain.step[running].tolist()


@settings(max_examples=examples(40))
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


@settings(max_examples=examples(40))
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


KWH_J = 3.6e6


def flat(jobs: ElasticJobs, price: float) -> np.ndarray:
    return np.full(len(jobs), price)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 100_000), price=st.floats(0.0, 1e6))
def test_equal_prices_give_the_least_time_plus_cost_where_gpus_are_plenty(seed: int, price: float) -> None:
    jobs = drawn(seed)

    plan = foreseen(jobs, gpus=1000, now_s_per_kwh=price, later_s_per_kwh=flat(jobs, price))

    found = remaining_s(jobs, plan) * (1.0 + price * drawn_w(jobs, plan) / KWH_J)
    speed = np.where(jobs.allowed, jobs.steps_per_s, 0.0)[:, 1:, None] * jobs.perf[:, None, :]
    watts = np.arange(1, MOST + 1)[:, None] * jobs.watts[:, None, :]
    with np.errstate(divide="ignore"):
        cost = jobs.steps_left[:, None, None] / speed * (1.0 + price * watts / KWH_J)
    assert found == pytest.approx(cost.min(axis=(1, 2)))


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 100_000), gpus=st.integers(0, 16), now=st.floats(0.0, 1e7), later=st.floats(0.0, 1e7))
def test_plans_stay_within_gpus_and_allowed_counts(seed: int, gpus: int, now: float, later: float) -> None:
    jobs = drawn(seed)

    plan = foreseen(jobs, gpus=gpus, now_s_per_kwh=now, later_s_per_kwh=flat(jobs, later))

    assert plan.gpus.sum() <= gpus
    assert (jobs.allowed[np.arange(len(jobs)), plan.gpus] | (plan.gpus == 0)).all()
    assert (plan.postponed == (plan.gpus == 0)).all()


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 100_000))
def test_the_dearer_now_is_beside_later_the_less_power_is_drawn_elastic(seed: int) -> None:
    jobs = drawn(seed)

    watts = [
        float(drawn_w(jobs, foreseen(jobs, gpus=1000, now_s_per_kwh=now, later_s_per_kwh=flat(jobs, 1e5))).sum())
        for now in (1e3, 3e4, 1e5, 3e5, 1e7)
    ]

    assert (np.diff(watts) <= 1e-9 * max(watts)).all()
    assert watts[-1] == 0.0


def test_as_many_run_as_fit_where_each_wants_one_gpu() -> None:
    many = 6
    jobs = ElasticJobs(
        steps_left=np.arange(many, 0, -1) * 1000.0,
        steps_per_s=np.array([[0.0, 1.0]] * many),
        perf=np.ones((many, 1)),
        watts=np.full((many, 1), 200.0),
        mhz=np.array([1500.0]),
        age_s=np.zeros(many),
        rigid_gpus=np.zeros(many, dtype=np.int64),
    )

    plan = foreseen(jobs, gpus=4, now_s_per_kwh=1e4, later_s_per_kwh=flat(jobs, 1e4))

    assert plan.gpus.tolist() == [0, 0, 1, 1, 1, 1]
    assert job_emissions_g(jobs, plan, intensity_g_per_kwh=500.0)[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("now", "later"), [(-1.0, [1.0]), (np.nan, [1.0]), (1.0, [np.inf]), (1.0, [1.0, 1.0])])
def test_invalid_prices_are_refused(now: float, later: list[float]) -> None:
    (jobs,) = [drawn(seed) for seed in range(100) if len(drawn(seed)) == 1][:1]

    with pytest.raises(BadInput, match="prices of energy"):
        foreseen(jobs, gpus=4, now_s_per_kwh=now, later_s_per_kwh=np.array(later))
