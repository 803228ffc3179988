"""Jain's index and finish-time fairness: worked by hand, and against a plain loop."""

import math

import numpy as np
import pytest

from pipelines.simulation.measures.metrics import (
    dominant_share_s,
    finish_time_fairness,
    jain,
    summarise,
    user_means,
)
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule


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


def test_a_private_share_serves_one_job_after_the_other() -> None:
    # Two users: half of the cluster each. Every job asks for all GPUs for 10 s: 20 s in half a cluster.
    came = [Came(at_s=at_s, request=(1.0, 1.0, 4.0), run_s=10.0, user=user) for at_s, user in ((0, 0), (0, 0), (5, 1))]
    ran = [Ran(job=job, start_s=10.0 * job, end_s=10.0 * job + 10.0) for job in (0, 1, 2)]

    rho = finish_time_fairness(schedule(came, ran), np.arange(3))

    assert rho.tolist() == pytest.approx([10 / 20, 20 / 40, 25 / 20])


def test_a_small_job_alone_takes_its_run_time() -> None:
    came = [Came(request=(1.0, 1.0, 1.0), run_s=20.0, user=0), Came(request=(1.0, 1.0, 1.0), run_s=20.0, user=1)]
    ran = [Ran(job=0, start_s=0.0, end_s=20.0), Ran(job=1, start_s=20.0, end_s=40.0)]

    figures = summarise(schedule(came, ran))

    assert (figures.ftf_mean, figures.ftf_max) == (1.5, 2.0)
    assert figures.unfair_share == 0.5
    assert figures.jain_slowdown == pytest.approx(9 / (2 * 5))


def test_unfinished_jobs_have_no_rho_and_unserved_users_none_of_their_work() -> None:
    came = [Came(run_s=20.0, user=0), Came(run_s=20.0, user=1)]
    served = schedule(came, [Ran(job=0, start_s=0.0, end_s=20.0)])

    assert np.isnan(finish_time_fairness(served, np.arange(2))).tolist() == [False, True]
    assert summarise(served).jain_served == pytest.approx(0.5)
