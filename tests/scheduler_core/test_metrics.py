"""Metrics of runs small enough to work by hand, and what holds of every run."""

import math
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.arrivals import Arrival
from scheduler_core.errors import BadInput
from scheduler_core.metrics import summarise
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.simulator import simulate
from tests.scheduler_core.cases import ToyPredictor, arrival, machines, request, workloads

HALVED = partial(shrink, predictor=ToyPredictor(peak=(0.1, 0.1, 0.01, 0.1)), policy=ShrinkPolicy())
"""Gives every job half of what it asks for: the floors lie far below."""


def test_one_job_by_hand() -> None:
    one = arrival(10.0, "a", request(4, 8, 2), run_s=50.0, cpu_cores=1.0, gpus=0.5, mem_gib=3.0, mem_avg_gib=2.0)

    figures = summarise(simulate([one], machines(count=1), horizon_s=100.0))

    assert (figures.submitted, figures.deployed, figures.completed, figures.running, figures.waiting) == (1, 1, 1, 0, 0)
    assert figures.complete_rate == 1.0
    assert figures.cpu_allocated_frac == pytest.approx(4 * 50 / (8 * 100))
    assert figures.mem_allocated_frac == pytest.approx(8 * 50 / (16 * 100))
    assert figures.gpu_allocated_frac == pytest.approx(2 * 50 / (4 * 100))
    assert figures.cpu_used_frac == pytest.approx(1 * 50 / (8 * 100))
    assert figures.mem_used_frac == pytest.approx(2 * 50 / (16 * 100))
    assert figures.gpu_used_frac == pytest.approx(0.5 * 50 / (4 * 100))
    assert (figures.jct_mean_s, figures.wait_mean_s, figures.stretch_p99) == (50.0, 0.0, 1.0)
    assert (figures.killed, figures.reclaimed_gpu_h, figures.killed_gpu_h) == (0, 0.0, 0.0)


def test_finished_over_finished_plus_queued_leaves_out_what_runs() -> None:
    jobs = [arrival(float(i), f"j{i}", request(1, 1, 2), run_s=40.0) for i in range(6)]

    figures = summarise(simulate(jobs, machines(count=1), horizon_s=50.0))

    # Two end at 40 and 41, two started then and run, two wait.
    assert (figures.completed, figures.running, figures.waiting, figures.deployed) == (2, 2, 2, 4)
    assert figures.complete_rate == 0.5
    assert figures.wait_mean_s == pytest.approx((0 + 0 + 38 + 38) / 4)
    assert figures.jct_p50_s == 40.0


def test_stretch_slows_the_work_and_reclaims_the_rest() -> None:
    slow = arrival(0.0, "a", request(4, 8, 2), run_s=50.0, cpu_cores=4.0, gpus=0.5, mem_avg_gib=2.0)

    figures = summarise(simulate([slow], machines(count=1), horizon_s=100.0, scale=HALVED))

    assert figures.stretch_mean == pytest.approx(2.0)
    assert figures.stretched_share == 1.0
    assert figures.cpu_used_frac == pytest.approx(4 * 50 / (8 * 100)), "the same work, over twice the time"
    assert figures.gpu_used_frac == pytest.approx(0.5 * 50 / (4 * 100))
    assert figures.reclaimed_cpu_core_h == pytest.approx(2 * 100 / 3600)
    assert figures.reclaimed_mem_gib_h == pytest.approx(4 * 100 / 3600)
    assert figures.reclaimed_gpu_h == pytest.approx(1 * 100 / 3600)


def test_a_kill_is_harm() -> None:
    killed = arrival(0.0, "a", request(4, 8, 2), run_s=40.0, mem_gib=6.0)

    figures = summarise(simulate([killed], machines(count=1), horizon_s=100.0, scale=HALVED))

    assert (figures.killed, figures.retried, figures.completed) == (1, 1, 1)
    assert figures.stretch_mean == pytest.approx(1.5)
    assert figures.jct_mean_s == pytest.approx(60.0)
    assert figures.killed_gpu_h == pytest.approx(1 * 20 / 3600)
    assert figures.reclaimed_gpu_h == pytest.approx(1 * 20 / 3600)


def test_a_killed_job_that_waits_again_is_queued_and_its_stretch_counts_the_run_to_come() -> None:
    killed = arrival(0.0, "a", request(8, 8, 2), run_s=40.0, mem_gib=6.0)
    blocker = arrival(1.0, "b", request(8, 8, 2), run_s=1000.0)

    figures = summarise(simulate([killed, blocker], machines(count=1), horizon_s=100.0, scale=HALVED))

    assert (figures.deployed, figures.killed, figures.retried, figures.waiting, figures.running) == (2, 1, 0, 1, 1)
    assert figures.stretch_mean == pytest.approx((1.5 + 1.0) / 2)


def test_never_fits_lies_outside_the_rates() -> None:
    jobs = [arrival(0.0, "huge", request(1, 1, 4), instances=9), arrival(0.0, "a", request(1, 1, 1), run_s=10.0)]

    figures = summarise(simulate(jobs, machines(count=1), horizon_s=50.0))

    assert (figures.never_fits, figures.submitted, figures.waiting) == (1, 1, 0)
    assert figures.complete_rate == 1.0


def test_warm_up_leaves_out_what_came_before() -> None:
    early = arrival(0.0, "early", request(1, 1, 4), run_s=60.0)
    late = arrival(50.0, "late", request(1, 1, 4), run_s=20.0)

    figures = summarise(simulate([early, late], machines(count=1), horizon_s=100.0), warm_up_s=40.0)

    assert (figures.submitted, figures.completed) == (1, 1)
    assert figures.wait_mean_s == 10.0
    assert figures.gpu_allocated_frac == pytest.approx((20 + 20) / 60)


def test_nothing_happened_is_nan_not_zero() -> None:
    figures = summarise(simulate([], machines(count=1), horizon_s=50.0))

    assert figures.submitted == 0
    assert math.isnan(figures.complete_rate)
    assert math.isnan(figures.jct_mean_s)
    assert figures.gpu_allocated_frac == 0.0


@pytest.mark.parametrize("warm_up_s", [-1.0, 50.0])
def test_a_warm_up_outside_the_run_is_refused(warm_up_s: float) -> None:
    with pytest.raises(BadInput, match="warm-up"):
        summarise(simulate([], machines(count=1), horizon_s=50.0), warm_up_s=warm_up_s)


@settings(deadline=None)
@given(arrivals=workloads(), horizon_s=st.integers(5, 100), truth=st.sampled_from(["unchanged", "contention"]))
def test_fractions_and_counts_are_consistent(arrivals: list[Arrival], horizon_s: int, truth: str) -> None:
    figures = summarise(simulate(arrivals, machines(), horizon_s=float(horizon_s), scale=HALVED, truth=truth))

    for used, allocated in (
        (figures.cpu_used_frac, figures.cpu_allocated_frac),
        (figures.mem_used_frac, figures.mem_allocated_frac),
        (figures.gpu_used_frac, figures.gpu_allocated_frac),
    ):
        assert 0.0 <= used <= allocated + 1e-9
        assert allocated <= 1.0 + 1e-9
    assert figures.submitted == figures.completed + figures.running + figures.waiting
    assert figures.completed <= figures.deployed <= figures.submitted
    assert figures.retried <= figures.killed <= figures.deployed
    if figures.deployed:
        assert figures.stretch_mean >= 1.0 - 1e-12
    if truth == "unchanged":
        assert figures.killed == 0
