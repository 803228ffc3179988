"""What is late on an empty cluster: worked by hand, and no more than any method's tardiness."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.studies.cost.arms import BASELINES
from pipelines.studies.cost.runs import unavoidable
from pipelines.studies.cost.simulation import Site, SubmittedJobs, simulate
from pipelines.studies.cost.workload import cluster
from scheduler_core.planning.hourly import HourlySeries

HOUR = 3600.0


def three() -> SubmittedJobs:
    """Return jobs of 4 and 2 hours with one GPU of either type, half as long with two, due 1, 1.5 and 9 h later."""
    run_s = np.full((3, 2, 9), np.nan)
    run_s[:, :, 1] = np.array([4.0, 2.0]) * HOUR
    run_s[:, :, 2] = np.array([2.0, 1.0]) * HOUR
    submit_s = np.array([0.0, 1.0, 1.0]) * HOUR
    return SubmittedJobs(
        submit_s=submit_s,
        due_s=submit_s + np.array([1.0, 1.5, 9.0]) * HOUR,
        weight_usd_per_s=np.array([1.0, 2.0, 4.0]) / HOUR,
        run_s=run_s,
        asked_gpus=np.array([2, 1, 1]),
        off_by=np.ones(3),
    )


def test_with_the_gpus_asked_for_only_the_job_of_one_gpu_and_a_near_due_date_is_late() -> None:
    found = unavoidable(three(), as_asked=True)

    # 0: two GPUs, 1 h, due in 1 h; 1: one GPU, 2 h, due in 1.5 h at 2 USD an hour; 2: due late
    assert (found.late_share, found.usd) == pytest.approx((1 / 3, 1.0))


def test_with_any_number_nobody_is_late_unless_run_times_are_off() -> None:
    exact = unavoidable(three(), as_asked=False)
    slow = unavoidable(replace(three(), off_by=np.full(3, 1.1)), as_asked=False)

    assert (exact.late_share, exact.usd) == (0.0, 0.0)
    assert (slow.late_share, slow.usd) == pytest.approx((1 / 3, 0.1))


@pytest.mark.parametrize("name", [name for name in BASELINES if "fixed" in name])
def test_a_method_on_an_empty_cluster_is_as_late_as_could_not_be_avoided(name: str) -> None:
    price = HourlySeries(start_s=0.0, values=np.full(24, 0.1), unit="USD/kWh", wrap=True)

    outcome = simulate(
        three(), Site(nodes=cluster(3), price=price, start_ts=0.0), BASELINES[name], np.random.default_rng(0)
    )

    assert outcome.tardiness_usd == pytest.approx(unavoidable(three(), as_asked=True).usd)
