"""Elastic jobs over time: schedules worked by hand, work and energy conserved, budgets kept, nothing lost."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies.carbon.jobs import ArrivingJobs
from pipelines.studies.carbon.simulation import (
    Cluster,
    Simulated,
    constant,
    fifo_at_max,
    greedy_at_max,
    simulate,
)
from scheduler_core.planning.carbon import allocate
from scheduler_core.planning.elastic import BudgetRule, CountsAndFrequencies, ElasticJobs, Period, Planner
from tests.examples import examples
from tests.pipelines.studies.carbon.arrivals import arriving, drawn

PLANNERS: dict[str, Planner] = {
    "allocate": allocate,
    "greedy_at_max": greedy_at_max,
    "fifo_at_max": fifo_at_max,
}


def simulated(
    jobs: ArrivingJobs,
    planner: Planner = allocate,
    *,
    gpus: int = 4,
    budget_g: float = np.inf,
    rule: BudgetRule = "period",
    as_requested: bool = False,
    intensity: Callable[[float], float] = constant,
) -> Simulated:
    cluster = Cluster(gpus=gpus, period_s=100.0, rule=rule, intensity=intensity)
    return simulate(jobs, cluster, budget_g / 1000.0, planner, as_requested=as_requested)


def test_one_job_alone_by_hand() -> None:
    found = simulated(arriving([0.0], [250.0]), fifo_at_max, gpus=1, as_requested=True)

    assert found.jct_s.tolist() == [250.0]
    assert found.kwh == pytest.approx([250.0 * 200.0 / 3.6e6])


def test_grams_are_of_the_intensity_at_the_begin_of_each_period() -> None:
    found = simulated(arriving([0.0], [250.0]), fifo_at_max, gpus=1)

    assert found.grams(lambda now_s: 10.0 + now_s) * 3.6e6 / 200.0 == pytest.approx(
        [100 * 10.0 + 100 * 110.0 + 50 * 210.0]
    )


def test_five_jobs_first_in_first_out_by_hand() -> None:
    jobs = arriving([0.0, 0.0, 50.0, 100.0, 150.0], [200.0, 50.0, 100.0, 300.0, 100.0], requested=[1, 1, 4, 1, 1])

    found = simulated(jobs, fifo_at_max, as_requested=True)

    # The third requests all GPUs: it waits for the first to end at 200, and the two behind it wait for it, to 250;
    # they start with the period that begins at 300.
    assert found.jct_s.tolist() == [200.0, 50.0, 200.0, 500.0, 250.0]
    assert (found.kwh * 3.6e6 / 200.0).tolist() == pytest.approx([200.0, 50.0, 200.0, 300.0, 100.0])


def test_a_changed_count_is_counted() -> None:
    counts = iter([1, 2, 2, 2])

    def planner(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
        return CountsAndFrequencies(gpus=np.array([next(counts)]), step=np.array([1]))

    found = simulated(arriving([0.0], [200.0]), planner)

    assert found.changes.tolist() == [1]
    assert found.jct_s == pytest.approx([100.0 + 100.0 / np.sqrt(2.0)])


@pytest.mark.parametrize("name", PLANNERS)
@settings(max_examples=examples(10))
@given(seed=st.integers(0, 10_000), share=st.floats(0.3, 1.5))
def test_every_job_ends_and_its_energy_is_what_its_gpus_drew(name: str, seed: int, share: float) -> None:
    jobs, as_requested = drawn(seed), name.startswith("f")
    least = jobs.requested.max() * 200.0 * 100.0 / 3600.0 if as_requested else 0.0
    budget_g = max(share * 4 * 200.0 * 100.0 / 3.6e6 * 1000.0, least)

    found = simulated(jobs, PLANNERS[name], budget_g=budget_g, as_requested=as_requested)

    assert (found.jct_s >= jobs.steps / 2.0 - 1e-6).all()
    assert (found.kwh <= 4 * found.jct_s * 200.0 / 3.6e6 + 1e-12).all()
    assert (found.kwh >= jobs.steps * 100.0 / 3.6e6 - 1e-9).all()
    assert within(found, jobs, budget_g)


def within(found: Simulated, jobs: ArrivingJobs, budget_g: float) -> bool:
    """Return whether no period of 100 s emitted more than its budget, at 1000 g/kWh."""
    grams = dict.fromkeys((begin_s for begin_s, _, _ in found.spent), 0.0)
    for begin_s, _, kwh in found.spent:
        grams[begin_s] += 1000.0 * float(kwh.sum())
    return max(grams.values(), default=0.0) <= budget_g * (1.0 + 1e-6)


def test_a_tighter_budget_takes_longer_and_less_energy() -> None:
    tight, loose = (simulated(drawn(3), budget_g=grams) for grams in (8.0, np.inf))

    assert tight.jct_s.mean() > loose.jct_s.mean()
    assert tight.kwh.sum() < loose.kwh.sum()


def test_a_budget_that_lets_nothing_run_ends_the_simulation_with_jobs_left() -> None:
    found = simulated(arriving([0.0, 5.0], [50.0, 60.0]), budget_g=0.0)

    assert np.isnan(found.jct_s).all()
    assert found.kwh.sum() == 0.0


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 10_000), share=st.floats(0.3, 1.5))
def test_a_budget_until_the_jobs_end_is_never_passed(seed: int, share: float) -> None:
    jobs = drawn(seed)
    budget_g = share * 4 * 200.0 * jobs.steps.sum() / 4.0 / 3.6e6 * 1000.0

    found = simulated(jobs, budget_g=budget_g, rule="to-completion")

    assert 1000.0 * found.kwh.sum() <= budget_g * (1.0 + 1e-6)


def test_a_budget_until_the_jobs_end_leaves_undone_what_it_does_not_suffice_for() -> None:
    # 4 Wh at 200 W or 3.5 Wh at 100 W each
    found = simulated(arriving([0.0, 0.0], [72.0, 72.0]), budget_g=3.0, rule="to-completion")

    assert np.isnan(found.jct_s).sum() == 1
    assert 2.0 < 1000.0 * found.kwh.sum() <= 3.0


def test_no_jobs_are_no_rounds() -> None:
    assert len(simulated(arriving([], [])).jct_s) == 0
