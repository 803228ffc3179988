"""Metrics of simulations small enough to work by hand, and what holds of every simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.engine.simulator import simulate
from pipelines.simulation.measures.job_metrics import job_metrics
from pipelines.simulation.measures.metrics import (
    Uses,
    dominant_share_s,
    jain,
    summarise,
    user_means,
)
from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from tests.examples import examples
from tests.pipelines.simulation.engine.schedules import Came, Ran, machines, schedule, schedules, workload

HALF = {"request": (4.0, 8.0, 2.0), "granted": (2.0, 4.0, 1.0)}


def uses(*amounts: tuple[float, float, float]) -> Uses:
    return Uses(mean=np.array(amounts) * np.array([1000.0, 1024.0, 1000.0]))


def test_one_job_by_hand() -> None:
    ran = schedule([Came(at_s=10.0, run_s=50.0)], [Ran(job=0, start_s=15.0, end_s=65.0)])

    figures = summarise(ran, uses=uses((1.0, 2.0, 0.5)))

    assert (figures.submitted, figures.deployed, figures.completed, figures.running, figures.waiting) == (1, 1, 1, 0, 0)
    assert (figures.failed, figures.never_fits, figures.users) == (0, 0, 1)
    assert figures.complete_rate == 1.0
    assert figures.cpu_allocated_frac == pytest.approx(4 * 50 / (8 * 100))
    assert figures.mem_allocated_frac == pytest.approx(8 * 50 / (16 * 100))
    assert figures.gpu_allocated_frac == pytest.approx(2 * 50 / (4 * 100))
    assert figures.cpu_used_frac == pytest.approx(1 * 50 / (8 * 100))
    assert figures.mem_used_frac == pytest.approx(2 * 50 / (16 * 100))
    assert figures.gpu_used_frac == pytest.approx(0.5 * 50 / (4 * 100))
    assert (figures.jct_mean_s, figures.wait_mean_s, figures.stretch_p99, figures.makespan_s) == (55.0, 5.0, 1.0, 55.0)
    assert figures.slowdown_mean == pytest.approx(55 / 50)
    assert (figures.killed, figures.reclaimed_gpu_h, figures.killed_gpu_h) == (0, 0.0, 0.0)


def test_finished_over_finished_plus_queued_leaves_out_what_runs_and_what_failed() -> None:
    came = [Came(at_s=float(i), run_s=40.0, fails=i == 4) for i in range(6)]
    ran = [
        Ran(job=0, start_s=0.0, end_s=40.0),
        Ran(job=4, start_s=4.0, end_s=44.0, ending=Ending.FAILED),
        Ran(job=1, start_s=40.0, end_s=80.0),
        Ran(job=2, start_s=80.0, end_s=120.0, ending=Ending.RUNNING),
    ]

    figures = summarise(schedule(came, ran))

    assert (figures.completed, figures.failed, figures.running, figures.waiting) == (2, 1, 1, 2)
    assert figures.complete_rate == 0.5
    assert figures.wait_mean_s == pytest.approx((0 + 0 + 39 + 78) / 4)
    assert figures.wait_at_least_mean_s == pytest.approx((0 + 0 + 39 + 78 + 97 + 95) / 6)
    assert figures.jct_p50_s == pytest.approx((40 + 79) / 2)
    assert math.isnan(figures.makespan_s)


def test_stretch_slows_the_work_and_reclaims_the_rest() -> None:
    slow = Came(**HALF, run_s=40.0, granted_run_s=80.0)

    figures = summarise(schedule([slow], [Ran(job=0, start_s=0.0, end_s=80.0)]), uses=uses((4.0, 2.0, 0.5)))

    assert figures.stretch_mean == pytest.approx(2.0)
    assert figures.stretched_share == 1.0
    assert figures.cpu_used_frac == pytest.approx(4 * 40 / (8 * 100)), "the same work, over twice the time"
    assert figures.gpu_used_frac == pytest.approx(0.5 * 40 / (4 * 100))
    assert figures.mem_used_frac == pytest.approx(2 * 80 / (16 * 100))
    assert figures.reclaimed_cpu_core_h == pytest.approx(2 * 80 / 3600)
    assert figures.reclaimed_mem_gib_h == pytest.approx(4 * 80 / 3600)
    assert figures.reclaimed_gpu_h == pytest.approx(1 * 80 / 3600)
    assert figures.slowdown_mean == pytest.approx(2.0)


def test_a_kill_is_harm() -> None:
    killed = Came(**HALF, run_s=40.0, granted_run_s=20.0, dies=True)
    ran = [
        Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.KILLED),
        Ran(job=0, start_s=20.0, end_s=60.0, full=True),
    ]

    figures = summarise(schedule([killed], ran), uses=uses((1.5, 6.0, 0.5)))

    assert (figures.killed, figures.retried, figures.completed) == (1, 1, 1)
    assert figures.stretch_mean == pytest.approx(1.5)
    assert figures.jct_mean_s == pytest.approx(60.0)
    assert figures.killed_gpu_h == pytest.approx(1 * 20 / 3600)
    assert figures.reclaimed_gpu_h == pytest.approx(1 * 20 / 3600)
    # It dies half-way through a run of 40 s, so it is not stretched; memory is bounded by what it was given.
    assert figures.cpu_used_frac == pytest.approx(1.5 * 60 / (8 * 100))
    assert figures.mem_used_frac == pytest.approx((4 * 20 + 6 * 40) / (16 * 100))


def test_a_run_cut_before_its_kill_is_harm_though_no_kill_is_counted() -> None:
    doomed = Came(**HALF, run_s=40.0, granted_run_s=20.0, dies=True)

    figures = summarise(schedule([doomed], [Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.RUNNING)], end_s=10.0))

    assert (figures.deployed, figures.killed, figures.running) == (1, 0, 1)
    # All 20 s until it dies, and 40 s from the beginning.
    assert figures.stretch_mean == pytest.approx(1.5)
    assert figures.killed_gpu_h == pytest.approx(1 * 10 / 3600)
    assert math.isnan(figures.jain_served), "nobody was served anything that lasts"


def test_a_preempted_job_keeps_its_work_until_a_kill_takes_all_of_it() -> None:
    came = [Came(run_s=50.0), Came(run_s=50.0)]
    ran = [
        Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.PREEMPTED),
        Ran(job=1, start_s=0.0, end_s=10.0, ending=Ending.PREEMPTED),
        Ran(job=1, start_s=30.0, end_s=50.0, ending=Ending.KILLED),
    ]

    figures = summarise(schedule(came, ran))

    assert (figures.preempted, figures.killed, figures.waiting, figures.completed) == (2, 1, 2, 0)
    assert figures.killed_gpu_h == pytest.approx(2 * (10 + 20) / 3600), "what was preempted before is lost too"
    # 20 s held and 30 s to come; 30 s held and 50 s to come.
    assert figures.stretch_mean == pytest.approx((50 / 50 + 80 / 50) / 2)
    assert figures.jain_served == pytest.approx(1.0)


@pytest.mark.parametrize(("start_s", "slowdown"), [(0.0, 1.0), (8.0, 1.0), (39.0, 4.0)])
def test_slowdown_counts_run_times_below_ten_seconds_as_ten(start_s: float, slowdown: float) -> None:
    figures = summarise(schedule([Came(run_s=1.0)], [Ran(job=0, start_s=start_s, end_s=start_s + 1.0)]))

    assert figures.slowdown_mean == slowdown


def test_work_served_weighs_jobs_by_their_size_and_counts_what_is_half_done() -> None:
    came = [
        Came(run_s=100.0, request=(0.0, 0.0, 1.0), user=0),
        Came(run_s=20.0, request=(0.0, 0.0, 1.0), user=1),
        Came(run_s=60.0, request=(0.0, 0.0, 1.0), user=1),
    ]
    ran = [
        Ran(job=0, start_s=50.0, end_s=150.0, ending=Ending.RUNNING),
        Ran(job=1, start_s=50.0, end_s=70.0),
    ]

    figures = summarise(schedule(came, ran))

    # One user had 50 s of 100 s, the other 20 s of 80 s.
    assert figures.jain_served == pytest.approx((0.5 + 0.25) ** 2 / (2 * (0.5**2 + 0.25**2)))


def test_warm_up_leaves_out_what_came_before() -> None:
    came = [Came(at_s=0.0, run_s=60.0, request=(1.0, 1.0, 4.0)), Came(at_s=50.0, run_s=20.0, request=(1.0, 1.0, 4.0))]
    ran = [Ran(job=0, start_s=0.0, end_s=60.0), Ran(job=1, start_s=60.0, end_s=80.0)]

    figures = summarise(schedule(came, ran), warm_up_s=40.0)

    assert (figures.submitted, figures.completed) == (1, 1)
    assert figures.wait_mean_s == 10.0
    assert figures.gpu_allocated_frac == pytest.approx((20 + 20) / 60)


def test_unknown_use_is_left_out_and_its_share_is_told() -> None:
    came = [Came(run_s=30.0), Came(run_s=50.0)]
    ran = [Ran(job=0, start_s=0.0, end_s=30.0), Ran(job=1, start_s=30.0, end_s=80.0)]

    figures = summarise(schedule(came, ran), uses=uses((1.0, math.nan, 0.5), (math.nan, math.nan, 0.5)))

    assert figures.cpu_used_frac == pytest.approx(30 / (8 * 100))
    assert figures.cpu_use_known_frac == pytest.approx(30 / 80)
    assert figures.gpu_use_known_frac == 1.0
    assert figures.mem_use_known_frac == 0.0
    assert math.isnan(figures.mem_used_frac)


@pytest.mark.parametrize("warm_up_s", [-1.0, 100.0, math.nan])
def test_a_warm_up_outside_the_run_is_refused(warm_up_s: float) -> None:
    with pytest.raises(BadInput, match="warm-up"):
        summarise(schedule([]), warm_up_s=warm_up_s)


def test_uses_of_other_jobs_are_refused() -> None:
    with pytest.raises(BadInput, match="uses of shape"):
        summarise(schedule([Came()]), uses=uses((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)))


@settings(max_examples=examples(40), deadline=None)
@given(ran=schedules(), draws=st.tuples(*[st.floats(0, 20)] * 3))
def test_fractions_are_what_an_integral_run_by_run_says(ran: Schedule, draws: tuple[float, float, float]) -> None:
    amounts = np.minimum(np.tile(np.array(draws) * 1000, (len(ran.workload), 1)), ran.workload.request_units)
    known = Uses(mean=amounts)

    figures = summarise(ran, uses=known)

    for at, name in enumerate(("cpu", "mem", "gpu")):
        capacity = len(ran.machines) * (8000, 16 * 1024, 4000)[at] * ran.end_s
        allocated, used = brute_force(ran, known, at)
        assert getattr(figures, f"{name}_allocated_frac") == pytest.approx(allocated / capacity)
        assert getattr(figures, f"{name}_allocated_frac") <= 1.0 + 1e-9
        if len(ran.job):
            assert getattr(figures, f"{name}_used_frac") == pytest.approx(used / capacity)
            assert used <= allocated + 1e-6


def brute_force(ran: Schedule, known: Uses, at: int) -> tuple[float, float]:
    """Add up what runs held and drew, one by one; every granted run takes twice its time."""
    allocated = used = 0.0
    for run, job in enumerate(ran.job.tolist()):
        lasts_s = max(min(ran.end_run_s[run], ran.end_s) - ran.start_s[run], 0.0)
        amounts = ran.workload.request_units if ran.full[run] else ran.workload.granted_units
        slower = 1.0 if ran.full[run] or at == 1 else 2.0
        allocated += float(amounts[job, at]) * lasts_s
        used += min(float(known.mean[job, at]) / slower, float(amounts[job, at])) * lasts_s
    return allocated, used


@settings(max_examples=examples(40), deadline=None)
@given(ran=schedules())
def test_counts_are_consistent(ran: Schedule) -> None:
    figures = summarise(ran)

    assert figures.submitted == figures.completed + figures.failed + figures.running + figures.waiting
    assert figures.completed <= figures.deployed <= figures.submitted
    assert figures.retried <= figures.killed <= figures.deployed
    assert figures.preempted <= figures.deployed
    for index in (figures.jain_slowdown, figures.jain_served):
        assert math.isnan(index) or 1 / 3 - 1e-9 <= index <= 1.0 + 1e-9


def test_a_simulated_kill_is_measured_as_worked_by_hand() -> None:
    came = [
        Came(at_s=0.0, **HALF, run_s=40.0, granted_run_s=20.0, dies=True),
        Came(at_s=0.0, request=(4.0, 8.0, 4.0), run_s=100.0, user=1),
        Came(at_s=50.0, request=(4.0, 8.0, 4.0), run_s=10.0, user=2),
        Came(at_s=60.0, request=(9.0, 1.0, 1.0)),
    ]
    columns = workload(came)
    foresight = replace(columns, predicted_s=columns.run_s)

    rules = Discipline(policy="srtf", quantum_s=5.0, restart_cost_s=0.0)
    ran = simulate(foresight, machines(), rules, horizon_s=200.0, engine="python")

    # The first dies at 20 and runs 20..60 on all it asked for; the third runs 60..70, the second 70..170.
    figures = summarise(ran)
    assert (figures.submitted, figures.never_fits, figures.completed) == (3, 1, 3)
    assert (figures.killed, figures.retried, figures.preempted) == (1, 1, 0)
    assert figures.killed_gpu_h == pytest.approx(1 * 20 / 3600)
    assert figures.wait_mean_s == pytest.approx((0 + 70 + 10) / 3)
    assert figures.jct_mean_s == pytest.approx((60 + 170 + 20) / 3)
    assert figures.stretch_mean == pytest.approx((60 / 40 + 1 + 1) / 3)
    assert figures.makespan_s == 170.0
    assert figures.gpu_allocated_frac == pytest.approx((1 * 20 + 2 * 40 + 4 * 10 + 4 * 100) / (4 * 200))


DOOMED = Came(granted=(2.0, 4.0, 1.0), run_s=40.0, granted_run_s=20.0, dies=True)
"""It would run 40 s, and dies 20 s into what it is given."""


def test_what_waits_on_its_way_to_a_kill_still_has_the_full_run_before_it() -> None:
    ran = [Ran(job=0, start_s=0.0, end_s=10.0, ending=Ending.PREEMPTED)]

    became = job_metrics(schedule([DOOMED], ran, end_s=30.0))

    assert became.waiting.all()
    # 10 s held, 10 s to the kill, and the full 40 s after it.
    assert became.stretch.tolist() == [pytest.approx((10 + 10 + 40) / 40)]


def test_after_the_kill_only_the_full_run_is_to_come() -> None:
    ran = [
        Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.KILLED),
        Ran(job=0, start_s=20.0, end_s=30.0, ending=Ending.PREEMPTED, full=True),
    ]

    became = job_metrics(schedule([DOOMED], ran, end_s=50.0))

    assert became.stretch.tolist() == [pytest.approx((20 + 40) / 40)]


def test_what_was_lost_counts_from_the_end_of_the_warm_up() -> None:
    ran = schedule([DOOMED], [Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.KILLED)], end_s=30.0)

    assert summarise(ran).killed_gpu_h == pytest.approx(1 * 20 / 3600)
    assert summarise(ran, warm_up_s=15.0).killed_gpu_h == pytest.approx(1 * 5 / 3600)


def test_what_never_fits_counts_only_where_it_came_after_the_warm_up() -> None:
    ran = schedule([Came(never_fits=True), Came(at_s=50.0, never_fits=True)])

    assert summarise(ran).never_fits == 2
    assert summarise(ran, warm_up_s=40.0).never_fits == 1


@pytest.mark.parametrize(
    ("values", "index"), [([5.0], 1.0), ([1.0, 1.0, 1.0, 1.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 0.8)]
)
def test_jain_by_hand(values: list[float], index: float) -> None:
    assert jain(np.array(values)) == pytest.approx(index)


@pytest.mark.parametrize("values", [[], [0.0, 0.0]])
def test_jain_of_nothing_is_nan(values: list[float]) -> None:
    assert math.isnan(jain(np.array(values)))


def test_users_without_weight_have_no_mean() -> None:
    means = user_means(np.array([1.0, 3.0, 5.0]), np.array([2, 2, 0]), np.array([1.0, 3.0, 0.0]))

    assert means.tolist() == [2.5]


def test_work_is_run_time_times_the_dominant_share_of_the_gang() -> None:
    gang = Came(request=(1.0, 2.0, 1.0), run_s=40.0, instances=2)

    assert dominant_share_s(schedule([gang])).tolist() == [pytest.approx(40.0 * 2 * max(1 / 8, 2 / 16, 1 / 4))]


def test_unserved_users_have_none_of_their_work() -> None:
    came = [Came(run_s=20.0, user=0), Came(run_s=20.0, user=1)]
    served = schedule(came, [Ran(job=0, start_s=0.0, end_s=20.0)])

    assert summarise(served).jain_served == pytest.approx(0.5)
