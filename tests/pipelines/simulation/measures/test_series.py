"""Time series: averages by hand, their integral against the metrics, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.metrics import Uses, summarise
from pipelines.simulation.measures.series import series
from scheduler_core.errors import BadInput
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule, schedules


def test_averages_count_every_second_of_a_step() -> None:
    came = [Came(at_s=5.0, run_s=20.0), Came(at_s=5.0, run_s=50.0)]
    ran = [Ran(job=0, start_s=5.0, end_s=25.0), Ran(job=1, start_s=25.0, end_s=75.0, ending=Ending.RUNNING)]

    columns = series(schedule(came, ran, end_s=45.0), 20.0)

    assert columns["time_s"].tolist() == [0.0, 20.0, 40.0]
    assert columns["until_s"].tolist() == [20.0, 40.0, 45.0]
    assert columns["allocated_gpus"].tolist() == [2 * 15 / 20, 2.0, 2.0]
    assert columns["allocated_cpu_cores"].tolist() == [4 * 15 / 20, 4.0, 4.0]
    assert columns["allocated_mem_gib"].tolist() == [8 * 15 / 20, 8.0, 8.0]
    assert columns["free_gpus"].tolist() == [4 - 1.5, 2.0, 2.0]
    assert columns["waiting"].tolist() == [15 / 20, 5 / 20, 0.0]
    assert columns["running"].tolist() == [15 / 20, 1.0, 1.0]
    assert columns["completed"].tolist() == [0, 1, 1]
    assert "used_gpus" not in columns


def test_what_is_killed_waits_again_and_what_never_fits_never_waits() -> None:
    came = [Came(run_s=10.0), Came(never_fits=True)]
    ran = [Ran(job=0, start_s=0.0, end_s=10.0, ending=Ending.KILLED), Ran(job=0, start_s=30.0, end_s=40.0, full=True)]

    assert series(schedule(came, ran, end_s=40.0), 10.0)["waiting"].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_use_is_drawn_slower_by_the_stretch_and_unknown_use_is_left_out() -> None:
    stretched = Came(granted=(2.0, 4.0, 1.0), run_s=10.0, granted_run_s=20.0)
    ran = schedule([stretched], [Ran(job=0, start_s=0.0, end_s=20.0)], end_s=40.0)

    columns = series(ran, 20.0, uses=Uses(mean=np.array([[3000.0, math.nan, 1000.0]])))

    assert columns["used_cpu_cores"].tolist() == [1.5, 0.0]
    assert columns["used_mem_gib"].tolist() == [0.0, 0.0]
    assert columns["used_gpus"].tolist() == [0.5, 0.0]


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, 1e-9])
def test_a_step_that_makes_no_sense_is_refused(step_s: float) -> None:
    with pytest.raises(BadInput, match="step"):
        series(schedule([]), step_s)


def test_a_simulation_of_no_time_has_no_steps() -> None:
    assert {len(column) for column in series(schedule([], end_s=0.0), 60.0).values()} == {0}


def test_rounding_makes_no_step_of_its_own() -> None:
    assert series(schedule([], end_s=3 * 0.7 + 1e-12), 0.7)["time_s"].tolist() == [0.0, 0.7, 1.4]
    assert len(series(schedule([], end_s=1e-9), 1.0)["time_s"]) == 1


@settings(deadline=None)
@given(ran=schedules(), step_s=st.sampled_from([0.7, 1.0, 7.0, 60.0, 1000.0]))
def test_steps_add_up_to_the_metrics_and_stay_within_capacity(ran: Schedule, step_s: float) -> None:
    known = Uses(mean=ran.workload.request_units * 0.3)

    columns, figures = series(ran, step_s, uses=known), summarise(ran, uses=known)

    lasts_s = columns["until_s"] - columns["time_s"]
    assert lasts_s.sum() == pytest.approx(ran.end_s)
    assert (lasts_s > 0.0).all()
    for resource, name, each in (("cpu_cores", "cpu", 8.0), ("mem_gib", "mem", 16.0), ("gpus", "gpu", 4.0)):
        total = each * len(ran.machines)
        allocated, used = columns[f"allocated_{resource}"], columns[f"used_{resource}"]
        assert (allocated <= total + 1e-9).all()
        assert (used <= allocated + 1e-9).all()
        assert allocated @ lasts_s / ran.end_s / total == pytest.approx(getattr(figures, f"{name}_allocated_frac"))
        if len(ran.job):
            assert used @ lasts_s / ran.end_s / total == pytest.approx(getattr(figures, f"{name}_used_frac"))
    assert (columns["waiting"] >= 0.0).all()
    assert (np.diff(columns["completed"]) >= 0).all()
    assert columns["completed"][-1] == figures.completed


@settings(deadline=None)
@given(ran=schedules())
def test_an_average_is_a_mean_over_moments_of_who_waits(ran: Schedule) -> None:
    # Every moment drawn is a whole second, so between two of them nothing changes.
    columns = series(ran, 1.0)

    for second, found in zip(columns["time_s"].tolist(), columns["waiting"].tolist(), strict=True):
        assert found == pytest.approx(waiting_at(ran, second + 0.5))


def waiting_at(ran: Schedule, moment_s: float) -> int:
    count = 0
    for job, came_s in enumerate(ran.workload.arrive_s.tolist()):
        mine = np.flatnonzero(ran.job == job)
        runs_now = any(ran.start_s[run] <= moment_s < ran.end_run_s[run] for run in mine)
        gone = ran.finished_s[job] <= moment_s
        count += came_s <= moment_s and not (ran.never_fits[job] or runs_now or gone)
    return count
