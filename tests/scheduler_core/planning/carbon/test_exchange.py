import dataclasses

import numpy as np
import pytest

from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.climb import Period
from scheduler_core.planning.carbon.elastic import mean_completion_s
from scheduler_core.planning.carbon.exchange import PutOff, exchange
from scheduler_core.planning.carbon.relaxation import Options, relax
from tests.scheduler_core.planning.carbon.made_rounds import Around, check_feasible, jobs_of, random_round

PLENTY = Around(gpus=8, intensity_g_per_kwh=400.0, budget_g=1e9, period_s=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("put_off", ["forced", "chosen"])
@pytest.mark.parametrize("start", [0, 60])
def test_random_rounds_stay_within_the_budget_and_never_get_longer(start: int, put_off: PutOff) -> None:
    for seed in range(start, start + 60):
        jobs, around = random_round(seed)
        first, plan = (
            allocate(jobs, **around.arguments(), charge="period"),
            exchange(jobs, **around.arguments(), put_off=put_off),
        )
        check_feasible(jobs, plan, around)
        before_s, after_s = (mean_completion_s(jobs, each, period_s=around.period_s) for each in (first, plan))
        assert after_s <= before_s * (1.0 + 1e-12)
        assert put_off == "chosen" or plan.postponed.sum() <= first.postponed.sum()


def test_the_order_of_jobs_changes_nothing() -> None:
    for seed in range(200, 230):
        jobs, around = random_round(seed)
        jobs = dataclasses.replace(jobs, steps_left=jobs.steps_left * np.linspace(1.0, 1.1, len(jobs)))
        order = np.random.default_rng(seed).permutation(len(jobs))
        straight, shuffled = (exchange(each, **around.arguments()) for each in (jobs, jobs.rows(order)))
        assert np.array_equal(straight.gpus[order], shuffled.gpus)
        assert np.array_equal(straight.step[order], shuffled.step)


def test_a_job_that_scales_well_does_not_take_the_gpus_of_those_it_would_help_more() -> None:
    # Job 0 grows nearly in proportion, so that each of its GPUs costs next to no energy; job 1 has far more to gain.
    speeds = [[n**0.999 for n in range(1, 9)], [n**0.8 for n in range(1, 9)]]
    jobs = jobs_of(speeds, steps_left=[3600.0, 360_000.0])

    source, ours = allocate(jobs, **PLENTY.arguments()), exchange(jobs, **PLENTY.arguments())

    assert source.gpus.tolist() == [7, 1]
    assert ours.gpus.tolist() == [1, 7]


def test_a_count_that_pays_is_found_behind_one_that_does_not() -> None:
    jobs = jobs_of([[1.0, 0.9, 2.5]])

    assert allocate(jobs, **PLENTY.arguments()).gpus.tolist() == [1]
    assert exchange(jobs, **PLENTY.arguments()).gpus.tolist() == [3]


def test_a_low_frequency_lets_run_what_the_energy_optimal_one_would_postpone() -> None:
    jobs = jobs_of([[1.0]] * 2, steps_left=[36_000.0] * 2, perf=[0.9, 1.0], watts=[100.0, 110.0])
    budget = {**PLENTY.arguments(), "budget_g": 400.0 * 205.0 * 600.0 / 3.6e6}

    assert allocate(jobs, **budget).gpus.tolist() == [1, 0]
    assert exchange(jobs, **budget).gpus.tolist() == [1, 1]


def test_jobs_are_put_off_for_shorter_ones_only_where_that_is_asked_for() -> None:
    # Three times as fast on two GPUs: 1200 s, then 36 000 s more, is less than 3600 s and 36 000 s; either way.
    jobs = jobs_of([[1.0, 3.0]] * 2, steps_left=[3600.0, 36_000.0])
    two = {**PLENTY.arguments(), "gpus": 2}

    assert exchange(jobs, **two).gpus.tolist() == [1, 1]
    assert sorted(exchange(jobs, **two, put_off="chosen").gpus.tolist()) == [0, 2]


def test_the_relaxed_bound_is_below_every_plan() -> None:
    for seed in range(300, 360):
        jobs, around = random_round(seed)
        period = Period.of(
            intensity_g_per_kwh=around.intensity_g_per_kwh,
            pue=around.pue,
            period_s=around.period_s,
            budget_g=around.budget_g,
        )
        later_s = np.full(len(jobs), 50_000.0)
        options = Options.of(jobs, period).postponing(later_s)
        plan, relaxed = (
            exchange(jobs, **around.arguments()),
            relax(options, gpus=around.gpus, budget_g=around.budget_g),
        )
        rows = np.arange(len(jobs))
        assert relaxed.least_sum_s <= options.left_s[plan.step, rows, plan.gpus].sum() * (1.0 + 1e-9)
        assert relaxed.gpus.sum() <= around.gpus
        assert options.period_g[relaxed.step, rows, relaxed.gpus].sum() <= around.budget_g * (1.0 + 1e-12)


def test_no_jobs_make_an_empty_plan() -> None:
    assert len(exchange(jobs_of([[1.0]]).rows(np.zeros(0, dtype=np.int64)), **PLENTY.arguments()).gpus) == 0


def test_jobs_put_off_by_choice_are_not_said_not_to_fit() -> None:
    chosen = set()
    for seed in range(60):
        jobs, around = random_round(seed)
        forced, plan = allocate(jobs, **around.arguments()), exchange(jobs, **around.arguments(), put_off="chosen")
        if plan.postponed.sum() > forced.postponed.sum():
            chosen.update(note.split(": ")[1] for note in plan.notes)

    assert chosen == {"others make more of the GPUs and grams, or their first GPUs did not fit"}
