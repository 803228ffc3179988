import dataclasses

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.allocator import allocate
from scheduler_core.planning.carbon.elastic import mean_completion_s, remaining_s
from tests.scheduler_core.planning.carbon.made_rounds import Around, check_feasible, jobs_of, random_round, spent_g
from tests.scheduler_core.planning.carbon.naive_allocator import naive_allocate

PLENTY = Around(gpus=8, intensity_g_per_kwh=400.0, budget_g=1e9, period_s=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["period", "to-completion"])
@pytest.mark.parametrize(("past_budget", "charge"), [("next", "job"), ("stop", "job"), ("next", "period")])
def test_a_thousand_random_rounds_stay_within_the_budget(past_budget: str, charge: str, rule: str) -> None:
    for seed in range(1000):
        jobs, around = random_round(seed)
        plan = allocate(jobs, **around.arguments(), past_budget=past_budget, charge=charge, rule=rule)
        check_feasible(jobs, plan, around, rule)


@pytest.mark.parametrize(("past_budget", "charge"), [("next", "job"), ("stop", "job"), ("next", "period")])
def test_the_heap_takes_the_steps_of_the_formula_computed_anew_each_time(past_budget: str, charge: str) -> None:
    for seed in range(5000, 5120):
        jobs, around = random_round(seed)
        # Jobs of one model tie whatever their lengths; then rounding decides, which differs between two formulas.
        jobs = dataclasses.replace(jobs, watts=jobs.watts * np.linspace(1.0, 1.1, len(jobs))[:, None])
        found = allocate(jobs, **around.arguments(), past_budget=past_budget, charge=charge)
        naive = naive_allocate(jobs, around, past_budget, charge)
        assert np.array_equal(found.gpus, naive.gpus), seed
        assert np.array_equal(found.step, naive.step), seed


def test_charged_by_the_period_a_job_that_scales_well_does_not_take_all() -> None:
    # Each GPU draws the same on the budget; job 1 saves far more time with them, though at more energy in all.
    speeds = [[n**0.999 for n in range(1, 9)], [n**0.8 for n in range(1, 9)]]
    jobs = jobs_of(speeds, steps_left=[3600.0, 360_000.0])

    assert allocate(jobs, **PLENTY.arguments()).gpus.tolist() == [7, 1]
    assert allocate(jobs, **PLENTY.arguments(), charge="period").gpus.tolist() == [1, 7]


def test_the_order_of_jobs_changes_nothing() -> None:
    for seed in range(2000, 2200):
        jobs, around = random_round(seed)
        order = np.random.default_rng(seed).permutation(len(jobs))
        straight, shuffled = allocate(jobs, **around.arguments()), allocate(jobs.rows(order), **around.arguments())
        rows = sorted(_described(jobs, straight.gpus, straight.step))
        assert sorted(_described(jobs.rows(order), shuffled.gpus, shuffled.step)) == rows
        assert straight.notes == shuffled.notes


def _described(jobs, gpus, step):
    """Jobs that are equal in all may swap what they get."""
    keys = np.hstack([jobs.steps_left[:, None], jobs.age_s[:, None], jobs.watts, np.nan_to_num(jobs.steps_per_s)])
    return [(*key, int(n), int(s)) for key, n, s in zip(keys.tolist(), gpus, step, strict=True)]


def test_nobody_is_postponed_where_budget_and_gpus_suffice_for_the_least_plan() -> None:
    for seed in range(3000, 3200):
        jobs, around = random_round(seed)
        ample = dataclasses.replace(around, budget_g=np.inf, gpus=int(jobs.allowed.argmax(axis=1).sum()))
        assert not allocate(jobs, **ample.arguments()).postponed.any()


def test_a_job_alone_gets_no_fewer_gpus_on_more_budget() -> None:
    # More does not hold: of several jobs one may lose GPUs, and mean completion may rise; the steps taken differ.
    for seed in range(4000, 4100):
        jobs, around = random_round(seed)
        alone = jobs.rows(np.array([0]))
        given = [
            int(allocate(alone, **{**around.arguments(), "budget_g": part}, stages=("counts",)).gpus[0])
            for part in np.geomspace(0.1, 1e4, 12)
        ]
        assert given == sorted(given)


def test_a_step_that_makes_a_job_no_faster_is_never_taken() -> None:
    jobs = jobs_of([[1.0, 1.0, 5.0], [1.0, 0.9, 5.0]])

    plan = allocate(jobs, **PLENTY.arguments())

    assert plan.gpus.tolist() == [1, 1]


def test_steps_that_cost_no_energy_come_before_those_that_do() -> None:
    # Twice as fast on two GPUs is the same energy; 1.9 times is more, but would save more time here.
    jobs = jobs_of([[1.0, 2.0], [1.0, 1.9]], steps_left=[100.0, 36_000.0])

    plan = allocate(jobs, **{**PLENTY.arguments(), "gpus": 3})

    assert plan.gpus.tolist() == [2, 1]


@pytest.mark.parametrize(("gpus", "given"), [(3, [2, 1]), (4, [3, 1]), (5, [4, 1]), (6, [5, 1]), (7, [5, 2])])
@pytest.mark.parametrize("speed", [0.1, 0.3, 0.7, 1.1])
def test_rounding_makes_no_step_of_a_job_that_scales_in_proportion_cost_energy(
    speed: float, gpus: int, given: list[int]
) -> None:
    # T1 - T2 is T / (n (n + 1)): 37000 / (n (n + 1)) falls below 3600 / 2 from n = 5 on.
    speeds = [speed * count for count in range(1, 8)]
    jobs = jobs_of([speeds, speeds], steps_left=[37_000.0, 3_600.0])

    plan = allocate(jobs, **{**PLENTY.arguments(), "gpus": gpus})

    assert plan.gpus.tolist() == given


def test_first_gpus_go_by_the_shortest_time_times_carbon_and_the_rest_waits() -> None:
    jobs = jobs_of([[1.0]] * 3, steps_left=[900.0, 600.0, 1200.0])

    plan = allocate(jobs, **{**PLENTY.arguments(), "gpus": 2})

    assert plan.postponed.tolist() == [False, False, True]
    assert "1 of 3 jobs postponed" in plan.notes[0]


def test_a_budget_below_the_least_plan_runs_what_fits() -> None:
    # 400 g/kWh x 100 W x 600 s: 6.667 g for a whole period; the third job ends within 60 s and takes 0.667 g.
    jobs = jobs_of([[1.0]] * 3, steps_left=[3600.0, 7200.0, 60.0])

    plan = allocate(jobs, **{**PLENTY.arguments(), "budget_g": 7.4})

    assert plan.gpus.tolist() == [1, 0, 1]
    assert "postponed" in plan.notes[0]


def test_nothing_runs_on_no_budget_and_all_at_zero_intensity() -> None:
    jobs = jobs_of([[1.0, 1.8]] * 2)

    none = allocate(jobs, **{**PLENTY.arguments(), "budget_g": 0.0})
    clean = allocate(jobs, **{**PLENTY.arguments(), "budget_g": 0.0, "intensity_g_per_kwh": 0.0})

    assert none.postponed.all()
    assert clean.gpus.tolist() == [2, 2]


def test_a_rigid_job_gets_all_of_its_gpus_or_none() -> None:
    jobs = jobs_of([[1.0, 2.0, 3.0, 4.0]] * 2, rigid=[4, 0], steps_left=[100_000.0, 10.0])

    room, no_room = (allocate(jobs, **{**PLENTY.arguments(), "gpus": gpus}) for gpus in (8, 3))

    assert room.gpus.tolist() == [4, 4]
    assert no_room.gpus.tolist() == [0, 3]


def test_the_next_best_step_that_fits_is_taken_where_the_source_would_stop() -> None:
    # Job 0's second GPU is worth most and passes the budget by its watts; job 1's, of fewer watts, fits.
    jobs = jobs_of([[1.0, 1.99], [1.0, 1.5]], steps_left=[36_000.0, 36_000.0])
    jobs = dataclasses.replace(jobs, watts=np.array([[300.0], [100.0]]))
    budget = {**PLENTY.arguments(), "budget_g": 400.0 * 550.0 * 600.0 / 3.6e6}

    assert allocate(jobs, **budget).gpus.tolist() == [1, 2]
    assert allocate(jobs, **budget, past_budget="stop").gpus.tolist() == [1, 1]


def test_what_was_passed_over_is_taken_once_a_step_has_lowered_emissions() -> None:
    # Job 0's second GPU ends it five times as early, well within the period: emissions fall, and job 1's then fits.
    jobs = jobs_of([[1.0, 5.0], [1.0, 2.0]], steps_left=[500.0, 36_000.0])
    least_g = 400.0 * 100.0 * (500.0 + 600.0) / 3.6e6
    after_g = 400.0 * 100.0 * (200.0 + 1200.0) / 3.6e6

    assert allocate(jobs, **{**PLENTY.arguments(), "budget_g": after_g * 1.001}).gpus.tolist() == [2, 2]
    assert allocate(jobs, **{**PLENTY.arguments(), "budget_g": least_g * 1.001}).gpus.tolist() == [2, 1]


def test_counts_are_chosen_at_the_energy_optimal_frequency_and_then_raised() -> None:
    jobs = jobs_of([[1.0, 1.5]], perf=[0.5, 0.9, 1.0], watts=[80.0, 90.0, 200.0])

    first = allocate(jobs, **PLENTY.arguments(), stages=("counts",))
    both = allocate(jobs, **PLENTY.arguments())
    lowest = allocate(jobs, **PLENTY.arguments(), start=0, stages=("counts",))

    assert (first.gpus.tolist(), first.step.tolist()) == ([2], [1])
    assert (both.gpus.tolist(), both.step.tolist()) == ([2], [2])
    assert lowest.step.tolist() == [0]


def test_without_counts_jobs_keep_their_first_gpus() -> None:
    jobs = jobs_of([[1.0, 2.0]] * 2, perf=[0.5, 1.0], watts=[80.0, 200.0], rigid=[2, 0])

    plan = allocate(jobs, **PLENTY.arguments(), stages=("frequency",))

    assert plan.gpus.tolist() == [2, 1]
    assert plan.step.tolist() == [1, 1]


def test_of_equal_jobs_the_older_goes_first() -> None:
    jobs = jobs_of([[1.0]] * 3, age_s=[5.0, 500.0, 50.0])

    assert allocate(jobs, **{**PLENTY.arguments(), "gpus": 1}).gpus.tolist() == [0, 1, 0]


def test_no_jobs_make_an_empty_plan() -> None:
    jobs = jobs_of([[1.0]]).rows(np.zeros(0, dtype=np.int64))

    plan = allocate(jobs, **PLENTY.arguments())

    assert len(plan.gpus) == 0
    assert mean_completion_s(jobs, plan, period_s=600.0) == 0.0


def test_what_was_passed_over_and_then_taken_is_not_said_to_be_left() -> None:
    # The first job's second GPU spares a third of its energy: then there is budget for the other job.
    jobs = jobs_of([[1.0, 3.0], [1.0, np.nan]], steps_left=[600.0, 5000.0])
    around = {**PLENTY.arguments(), "period_s": 600.0, "budget_g": 1050.0 * 100.0 * 400.0 / 3.6e6}
    around["intensity_g_per_kwh"] = 400.0

    plan = allocate(jobs, **around)

    assert plan.gpus.tolist() == [2, 1]
    assert plan.notes == ()


def test_notes_say_what_ran_short() -> None:
    jobs = jobs_of([[1.0, 1.5, 1.8]] * 2)

    by_gpus = allocate(jobs, **{**PLENTY.arguments(), "gpus": 3})
    by_budget = allocate(jobs, **{**PLENTY.arguments(), "budget_g": 400.0 * 300.0 * 600.0 / 3.6e6 * 1.01})

    assert by_gpus.notes == ("counts: no GPUs left; worthwhile steps remain",)
    assert by_budget.notes == ("counts: stopped at the budget; worthwhile steps remain",)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpus": -1}, "-1 GPUs"),
        ({"intensity_g_per_kwh": -5.0}, "intensity of -5.0"),
        ({"intensity_g_per_kwh": float("nan")}, "intensity of nan"),
        ({"budget_g": float("nan")}, "budget of nan"),
        ({"period_s": 0.0}, "period of 0.0"),
        ({"pue": 0.9}, "PUE of 0.9"),
        ({"start": 7}, "step 7"),
    ],
)
def test_numbers_that_cannot_be_are_refused(changed: dict[str, float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        allocate(jobs_of([[1.0]]), **{**PLENTY.arguments(), **changed})


def test_the_budget_holds_within_the_period_not_over_the_job() -> None:
    jobs = jobs_of([[1.0]], steps_left=[36_000.0])
    within = {**PLENTY.arguments(), "budget_g": 400.0 * 100.0 * 600.0 / 3.6e6 * 1.0001}

    plan = allocate(jobs, **within)

    assert remaining_s(jobs, plan)[0] == 36_000.0
    assert spent_g(jobs, plan, PLENTY) == pytest.approx(6.6667, rel=1e-4)


def test_a_budget_to_completion_counts_all_of_the_job_and_runs_what_it_lets_end() -> None:
    jobs = jobs_of([[1.0], [1.0]], steps_left=[36_000.0, 600.0])
    # 100 W at 400 g/kWh: 400 g until the first ends, 6.67 g until the second does
    within = {**PLENTY.arguments(), "budget_g": 100.0}

    by_period, whole = (allocate(jobs, **within, rule=rule) for rule in ("period", "to-completion"))

    assert (by_period.gpus.tolist(), whole.gpus.tolist()) == ([1, 1], [0, 1])
    assert spent_g(jobs, whole, PLENTY, "to-completion") == pytest.approx(6.6667, rel=1e-4)
