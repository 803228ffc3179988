import dataclasses

import numpy as np
import pytest

from scheduler_core.planning.elastic import CountsAndFrequencies, Period, drawn_w, remaining_s
from tests.scheduler_core.planning.carbon.made_rounds import jobs_of

JOBS = jobs_of([[1.0, 1.6]] * 2, steps_left=[360.0, 7200.0], perf=[0.5, 1.0], watts=[80.0, 200.0], age_s=[10.0, 0.0])


def plan_of(gpus: list[int], step: list[int]) -> CountsAndFrequencies:
    return CountsAndFrequencies(gpus=np.array(gpus), step=np.array(step))


def test_times_and_emissions_by_hand() -> None:
    # 300 g/kWh and a PUE of 1.2. Job 0: 80 W for its 720 s; job 1: 2 x 200 W for 4500 s, of the period 900 s.
    plan, left_s = plan_of([1, 2], [0, 1]), np.array([720.0, 4500.0])
    period = Period(intensity_g_per_kwh=300.0, budget_g=1.0, period_s=900.0, pue=1.2)

    assert remaining_s(JOBS, plan).tolist() == left_s.tolist()
    watts = drawn_w(JOBS, plan)
    assert period.grams(watts, left_s) == pytest.approx([80.0 * 720.0 * 1e-4, 400.0 * 900.0 * 1e-4])
    whole = dataclasses.replace(period, rule="to-completion")
    assert whole.grams(watts, left_s) == pytest.approx([80.0 * 720.0 * 1e-4, 400.0 * 4500.0 * 1e-4])
    assert whole.grams(watts, np.array([np.inf, 4500.0]))[0] == 0.0


@pytest.mark.parametrize(("done", "left"), [(90.0, 270.0), (350.0, 35.0), (360.0, 36.0), (5000.0, 500.0)])
def test_a_job_past_its_predicted_steps_has_some_left_while_it_goes_on(done: float, left: float) -> None:
    jobs = JOBS.after(np.array([done, 0.0]), np.array([60.0, 30.0]))

    assert jobs.steps_left.tolist() == pytest.approx([left, 7200.0])
    assert jobs.age_s.tolist() == [60.0, 30.0]


def test_a_rigid_job_is_allowed_its_count_alone() -> None:
    jobs = jobs_of([[1.0, 2.0], [np.nan, 2.0]], rigid=[2, 0])

    assert jobs.allowed.tolist() == [[False, False, True], [False, False, True]]
