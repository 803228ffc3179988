import dataclasses
import doctest
import importlib

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.elastic import CountsAndFrequencies, completion_s, remaining_s
from tests.scheduler_core.planning.carbon.emissions import job_emissions_g, period_emissions_g
from tests.scheduler_core.planning.carbon.made_rounds import jobs_of

JOBS = jobs_of([[1.0, 1.6]] * 2, steps_left=[360.0, 7200.0], perf=[0.5, 1.0], watts=[80.0, 200.0], age_s=[10.0, 0.0])


def plan_of(gpus: list[int], step: list[int]) -> CountsAndFrequencies:
    return CountsAndFrequencies(gpus=np.array(gpus), step=np.array(step), postponed=np.array(gpus) == 0)


def test_emissions_by_hand() -> None:
    # 300 g/kWh and a PUE of 1.2. Job 0: 80 W for its 720 s; job 1: 2 x 200 W for 4500 s, of the period 900 s.
    plan, grid = plan_of([1, 2], [0, 1]), {"intensity_g_per_kwh": 300.0, "pue": 1.2}

    assert remaining_s(JOBS, plan).tolist() == [720.0, 4500.0]
    assert job_emissions_g(JOBS, plan, **grid) == pytest.approx([80.0 * 720.0 * 1e-4, 400.0 * 4500.0 * 1e-4])
    within_g = period_emissions_g(JOBS, plan, **grid, period_s=900.0)
    assert within_g == pytest.approx([80.0 * 720.0 * 1e-4, 400.0 * 900.0 * 1e-4])


def test_a_postponed_job_gives_off_nothing_and_follows_on_the_gpus_that_come_free() -> None:
    plan = plan_of([1, 0], [0, 0])

    assert job_emissions_g(JOBS, plan, intensity_g_per_kwh=300.0).tolist() == pytest.approx([4.8, 0.0])
    # The first ends after 720 s; the other then runs on one GPU at the frequency of least energy, 14 400 s.
    assert completion_s(JOBS, plan, period_s=600.0).tolist() == [730.0, 720.0 + 14_400.0]
    assert completion_s(JOBS, plan, period_s=900.0).tolist() == [730.0, 900.0 + 14_400.0]


def test_no_gpu_is_counted_twice_by_those_postponed() -> None:
    jobs = jobs_of([[1.0]] * 3, steps_left=[1000.0, 500.0, 300.0])

    assert completion_s(jobs, plan_of([1, 0, 0], [0, 0, 0]), period_s=60.0).tolist() == [1000.0, 1800.0, 1300.0]


def test_where_speed_grows_with_gpus_nothing_is_gained_on_paper_by_putting_off() -> None:
    jobs = jobs_of([[1.0, 2.0]] * 2, steps_left=[1000.0, 1000.0])

    together, in_turn = (completion_s(jobs, plan_of(gpus, [0, 0]), period_s=60.0).sum() for gpus in ([1, 1], [2, 0]))

    assert together == in_turn == 2000.0


def test_a_rigid_job_is_allowed_its_count_alone() -> None:
    jobs = jobs_of([[1.0, 2.0], [np.nan, 2.0]], rigid=[2, 0])

    assert jobs.allowed.tolist() == [[False, False, True], [False, False, True]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps_left": np.array([0.0, 1.0])}, "steps_left above 0"),
        ({"steps_left": np.array([1.0])}, "shape"),
        ({"steps_per_s": np.array([[0.5, 1.0], [0.0, 1.0]])}, "without GPUs"),
        ({"steps_per_s": np.array([[0.0, -1.0], [0.0, 1.0]])}, "above 0 or NaN"),
        ({"steps_per_s": np.array([[0.0, np.nan], [0.0, 1.0]])}, "without a GPU count"),
        ({"perf": np.zeros((2, 2))}, "perf above 0"),
        ({"watts": np.full((2, 2), np.nan)}, "watts above 0"),
        ({"mhz": np.array([900.0, 800.0])}, "ascending"),
        ({"age_s": np.array([-1.0, 0.0])}, "age_s"),
        ({"rigid_gpus": np.array([3, 0])}, "within 0..N"),
    ],
)
def test_columns_that_cannot_be_are_refused(changed: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        dataclasses.replace(JOBS, **changed)


@pytest.mark.parametrize("name", ["elastic", "placer"])
def test_examples_run_as_printed(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"scheduler_core.planning.carbon.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_a_postponed_job_of_two_gpus_holds_both_to_its_end() -> None:
    jobs = jobs_of([[1.0, 1.0]] * 3, steps_left=[1000.0, 100.0, 200.0], rigid=[2, 2, 1])

    assert completion_s(jobs, plan_of([2, 0, 0], [0, 0, 0]), period_s=60.0).tolist() == [1000.0, 1100.0, 1300.0]
