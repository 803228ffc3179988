"""The allocator: within its limits, the patent's formula step by step, examples by hand, and a price on energy."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.planning.carbon import allocate
from scheduler_core.planning.elastic import CountsAndFrequencies, ElasticJobs, Period, drawn_w, remaining_s
from tests.examples import examples
from tests.scheduler_core.planning.carbon.made_rounds import check_feasible, job_g, jobs_of, random_round

PLENTY = Period(intensity_g_per_kwh=400.0, budget_g=1e9, period_s=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["period", "to-completion"])
@pytest.mark.parametrize("price", [0.0, 1e5])
def test_random_rounds_stay_within_the_budget(price: float, rule: str) -> None:
    for seed in range(300):
        jobs, gpus, period = random_round(seed)
        period = dataclasses.replace(period, rule=rule)
        check_feasible(jobs, allocate(jobs, gpus, period, price_s_per_kwh=price), gpus, period)


def plan_of(gpus: np.ndarray, step: np.ndarray) -> CountsAndFrequencies:
    return CountsAndFrequencies(gpus=gpus, step=step)


def stepped(jobs: ElasticJobs, plan: CountsAndFrequencies, row: int, stage: str) -> CountsAndFrequencies | None:
    """The plan with the next allowed count, or the next frequency, of one job."""
    gpus, step = plan.gpus.copy(), plan.step.copy()
    if stage == "frequency":
        step[row] += 1
        return plan_of(gpus, step) if gpus[row] > 0 and step[row] < len(jobs.mhz) else None
    more = [count for count in range(gpus[row] + 1, jobs.most_gpus + 1) if jobs.allowed[row, count]]
    if not more:
        return None
    gpus[row] = more[0]
    return plan_of(gpus, step)


ONE_G = Period(intensity_g_per_kwh=1.0, budget_g=np.inf, period_s=1.0, rule="to-completion")
"""At 1 g/kWh: the formula is undefined at 0, and what emits least is then what draws least."""


def benefit(
    jobs: ElasticJobs, before: CountsAndFrequencies, after: CountsAndFrequencies, row: int
) -> tuple[int, float] | None:
    """The class of the step, and its benefit: the patent's formula with T̄ and C of this moment; highest first."""
    left_1, left_2 = remaining_s(jobs, before), remaining_s(jobs, after)
    if before.gpus[row] == 0:
        return 2, -float(left_2[row] * job_g(jobs, after, ONE_G)[row])
    grams_1, grams_2 = (job_g(jobs, plan, ONE_G) for plan in (before, after))
    if left_2[row] >= left_1[row]:
        return None
    if grams_2[row] <= grams_1[row]:
        return 1, float(left_1[row] - left_2[row])
    mean_s, cluster_g = left_1[before.gpus > 0].mean(), grams_1.sum()
    shorter = (left_1[row] - left_2[row]) / mean_s
    return 0, float(shorter / ((grams_2[row] - grams_1[row]) / cluster_g))


def naive_allocate(jobs: ElasticJobs, gpus: int, period: Period) -> CountsAndFrequencies:
    """Both stages from the energy-optimal frequency: every benefit from its formula, before every step."""
    plan = plan_of(np.zeros(len(jobs), dtype=np.int64), jobs.optimal_step)
    for stage in ("counts", "frequency"):
        taken = True
        while taken:
            options = []
            for row in range(len(jobs)):
                after = stepped(jobs, plan, row, stage)
                found = None if after is None else benefit(jobs, plan, after, row)
                if after is not None and found is not None and after.gpus.sum() <= gpus:
                    options.append((found, row, after))
            # Of equal benefits the older job, then the first: what the tests draw has no other ties.
            options.sort(key=lambda each: (-each[0][0], -each[0][1], -jobs.age_s[each[1]]))
            limit_g = period.budget_g * (1.0 - 1e-11)
            fits = (after for _, _, after in options if job_g(jobs, after, period).sum() <= limit_g)
            following = next(fits, None)
            plan, taken = following or plan, following is not None
    return plan


def test_the_heap_takes_the_steps_of_the_formula_computed_anew_each_time() -> None:
    for seed in range(5000, 5120):
        jobs, gpus, period = random_round(seed)
        # Jobs of one model tie whatever their lengths; then rounding decides, which differs between two formulas.
        jobs = dataclasses.replace(jobs, watts=jobs.watts * np.linspace(1.0, 1.1, len(jobs))[:, None])
        found, naive = allocate(jobs, gpus, period), naive_allocate(jobs, gpus, period)
        assert np.array_equal(found.gpus, naive.gpus), seed
        assert np.array_equal(found.step, naive.step), seed


def test_the_order_of_jobs_changes_nothing() -> None:
    for seed in range(2000, 2200):
        jobs, gpus, period = random_round(seed)
        order = np.random.default_rng(seed).permutation(len(jobs))
        straight, shuffled = allocate(jobs, gpus, period), allocate(jobs.rows(order), gpus, period)
        rows = sorted(_described(jobs, straight.gpus, straight.step))
        assert sorted(_described(jobs.rows(order), shuffled.gpus, shuffled.step)) == rows
        assert straight.notes == shuffled.notes


def budget(grams: float) -> Period:
    return dataclasses.replace(PLENTY, budget_g=grams)


def _described(jobs, gpus, step):
    """Jobs that are equal in all may swap what they get."""
    keys = np.hstack([jobs.steps_left[:, None], jobs.age_s[:, None], jobs.watts, np.nan_to_num(jobs.steps_per_s)])
    return [(*key, int(n), int(s)) for key, n, s in zip(keys.tolist(), gpus, step, strict=True)]


def test_a_job_alone_gets_no_fewer_gpus_on_more_budget() -> None:
    # More does not hold: of several jobs one may lose GPUs, and mean completion may rise; the steps taken differ.
    for seed in range(4000, 4100):
        jobs, gpus, period = random_round(seed)
        alone = jobs.rows(np.array([0]))
        given = [
            int(allocate(alone, gpus, dataclasses.replace(period, budget_g=part)).gpus[0])
            for part in np.geomspace(0.1, 1e4, 12)
        ]
        assert given == sorted(given)


@pytest.mark.parametrize(("gpus", "given"), [(3, [2, 1]), (4, [3, 1]), (5, [4, 1]), (6, [5, 1]), (7, [5, 2])])
@pytest.mark.parametrize("speed", [0.1, 0.3, 0.7, 1.1])
def test_rounding_makes_no_step_of_a_job_that_scales_in_proportion_cost_energy(
    speed: float, gpus: int, given: list[int]
) -> None:
    # T1 - T2 is T / (n (n + 1)): 37000 / (n (n + 1)) falls below 3600 / 2 from n = 5 on.
    speeds = [speed * count for count in range(1, 8)]
    jobs = jobs_of([speeds, speeds], steps_left=[37_000.0, 3_600.0])

    plan = allocate(jobs, gpus, PLENTY)

    assert plan.gpus.tolist() == given


def test_first_gpus_go_by_the_shortest_time_times_carbon_and_the_rest_waits() -> None:
    jobs = jobs_of([[1.0]] * 3, steps_left=[900.0, 600.0, 1200.0])

    plan = allocate(jobs, 2, PLENTY)

    assert (plan.gpus == 0).tolist() == [False, False, True]
    assert "1 of 3 jobs postponed" in plan.notes[0]


def test_a_budget_below_the_least_plan_runs_what_fits() -> None:
    # 400 g/kWh x 100 W x 600 s: 6.667 g for a whole period; the third job ends within 60 s and takes 0.667 g.
    jobs = jobs_of([[1.0]] * 3, steps_left=[3600.0, 7200.0, 60.0])

    plan = allocate(jobs, 8, budget(7.4))

    assert plan.gpus.tolist() == [1, 0, 1]
    assert "postponed" in plan.notes[0]


def test_what_was_passed_over_is_taken_once_a_step_has_lowered_emissions() -> None:
    # Job 0's second GPU ends it five times as early, well within the period: emissions fall, and job 1's then fits.
    jobs = jobs_of([[1.0, 5.0], [1.0, 2.0]], steps_left=[500.0, 36_000.0])
    least_g = 400.0 * 100.0 * (500.0 + 600.0) / 3.6e6
    after_g = 400.0 * 100.0 * (200.0 + 1200.0) / 3.6e6

    assert allocate(jobs, 8, budget(after_g * 1.001)).gpus.tolist() == [2, 2]
    assert allocate(jobs, 8, budget(least_g * 1.001)).gpus.tolist() == [2, 1]


def test_counts_are_chosen_at_the_energy_optimal_frequency_and_then_raised() -> None:
    jobs = jobs_of([[1.0, 1.5]], perf=[0.5, 0.9, 1.0], watts=[80.0, 90.0, 200.0])

    plan = allocate(jobs, 8, PLENTY)

    assert jobs.optimal_step.tolist() == [1]
    assert (plan.gpus.tolist(), plan.step.tolist()) == ([2], [2])


def test_no_jobs_make_an_empty_plan() -> None:
    jobs = jobs_of([[1.0]]).rows(np.zeros(0, dtype=np.int64))

    plan = allocate(jobs, 8, PLENTY)

    assert len(plan.gpus) == 0


def test_what_was_passed_over_and_then_taken_is_not_said_to_be_left() -> None:
    # The first job's second GPU spares a third of its energy: then there is budget for the other job.
    jobs = jobs_of([[1.0, 3.0], [1.0, np.nan]], steps_left=[600.0, 5000.0])

    plan = allocate(jobs, 8, budget(1050.0 * 100.0 * 400.0 / 3.6e6))

    assert plan.gpus.tolist() == [2, 1]
    assert plan.notes == ()


def test_notes_say_what_ran_short() -> None:
    jobs = jobs_of([[1.0, 1.5, 1.8]] * 2)

    by_gpus = allocate(jobs, 3, PLENTY)
    by_budget = allocate(jobs, 8, budget(400.0 * 300.0 * 600.0 / 3.6e6 * 1.01))

    assert by_gpus.notes == ("counts: no GPUs left; worthwhile steps remain",)
    assert by_budget.notes == ("counts: stopped at the budget; worthwhile steps remain",)


def test_a_budget_to_completion_counts_all_of_the_job_and_runs_what_it_lets_end() -> None:
    jobs = jobs_of([[1.0], [1.0]], steps_left=[36_000.0, 600.0])
    # 100 W at 400 g/kWh: 400 g until the first ends, 6.67 g until the second does
    within, to_end = budget(100.0), dataclasses.replace(budget(100.0), rule="to-completion")

    by_period, whole = (allocate(jobs, 8, each) for each in (within, to_end))

    assert (by_period.gpus.tolist(), whole.gpus.tolist()) == ([1, 1], [0, 1])
    assert job_g(jobs, whole, to_end).sum() == pytest.approx(6.6667, rel=1e-4)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 100_000))
def test_the_dearer_energy_the_less_is_taken_where_gpus_and_budget_are_plenty(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(1, 8))
    perf, watts = rng.uniform(0.5, 1.0, 3), rng.uniform(80.0, 250.0, 3)
    speeds = np.arange(1, 5) ** rng.uniform(0.3, 1.0, (many, 1))
    jobs = jobs_of(speeds.tolist(), perf=sorted(perf), watts=sorted(watts))
    plans = [allocate(jobs, 200, PLENTY, price_s_per_kwh=price) for price in (0.0, 1e4, 1e5, 1e6, 1e9)]

    kwh = [float((drawn_w(jobs, plan) * remaining_s(jobs, plan)).sum()) for plan in plans]
    slow = [float(remaining_s(jobs, plan).sum()) for plan in plans]
    assert (np.diff(kwh) <= 1e-6 * max(kwh)).all()
    assert (np.diff(slow) >= -1e-6 * max(slow)).all()


def test_a_step_is_taken_up_to_the_price_that_it_is_worth() -> None:
    jobs = jobs_of([[1.0, 1.5]])
    worth = 1200.0 / (100.0 * (2 * 2400.0 - 3600.0) / 3.6e6)

    gpus = [allocate(jobs, 2, PLENTY, price_s_per_kwh=part * worth).gpus.tolist() for part in (0.99, 1.01)]

    assert gpus == [[2], [1]]


@pytest.mark.parametrize("price", [0.0, 1e9])
def test_rigid_jobs_keep_their_count_at_any_price(price: float) -> None:
    jobs = jobs_of([[1.0, 1.1, 1.2]] * 2, rigid=[3, 3])

    assert allocate(jobs, 8, PLENTY, price_s_per_kwh=price).gpus.tolist() == [3, 3]
