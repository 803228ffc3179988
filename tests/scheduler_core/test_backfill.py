"""EASY backfill: hand-worked schedules, and the head that is never delayed."""

import math
from dataclasses import replace

import pytest

from scheduler_core.errors import BadInput
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import (
    gpu_machines,
    hosts_of,
    run,
    starts_of,
    workload,
)

EASY = Discipline(backfill="easy", placement="first_fit")


def test_five_jobs_run_as_worked_by_hand() -> None:
    """On 4 GPUs, A holds 3 until 100, so B (4) is promised 100; C would end at 101, D at 100, E has no prediction."""
    jobs = workload(
        {"at": 0.0, "gpus": 3, "run": 100.0},
        {"at": 1.0, "gpus": 4, "run": 50.0},
        {"at": 2.0, "gpus": 1, "run": 99.0},
        {"at": 3.0, "gpus": 1, "run": 97.0},
        {"at": 4.0, "gpus": 1, "run": 1.0, "predicted": math.nan},
    )

    assert starts_of(run(jobs, gpu_machines(4), EASY)) == {0: 0, 3: 3, 1: 100, 2: 150, 4: 150}


def test_jobs_that_outlast_the_promise_start_beside_its_machines() -> None:
    """A holds all of m0 until 100; B's two 3s are promised both machines, which leaves 1 GPU on each.

    C (1 GPU, long) takes the one of m1. D (1 GPU, long) finds 3 free there, all promised; E (2, short) may have them.
    """
    jobs = workload(
        {"at": 0.0, "gpus": 4, "run": 100.0},
        {"at": 1.0, "gpus": 3, "instances": 2, "run": 50.0},
        {"at": 2.0, "gpus": 1, "run": 500.0},
        {"at": 2.0, "gpus": 1, "run": 500.0},
        {"at": 4.0, "gpus": 2, "run": 90.0},
    )

    schedule = run(jobs, gpu_machines(4, 4), EASY)

    # At 100 the promise is kept; D takes what is left of m0.
    assert starts_of(schedule) == {0: 0, 2: 2, 4: 4, 1: 100, 3: 100}
    assert [hosts_of(schedule, at) for at in range(5)] == [{0: 1}, {1: 1}, {1: 1}, {0: 1, 1: 1}, {0: 1}]


def test_runs_expected_to_end_together_give_back_together() -> None:
    # A runs on m1 (m0 has too few cores) and B on m0. Both end at 50, so the head is promised m0, the first in order,
    # and what is left of m1 is spare for the long job; of A's end alone it would have been promised m1.
    first, second = gpu_machines(2, 2)
    machines = (replace(first, cpu_cores=4), second)
    jobs = workload(
        {"gpus": 1, "cores": 8, "run": 50.0},
        {"gpus": 2, "run": 50.0},
        {"at": 1.0, "gpus": 2, "run": 10.0},
        {"at": 2.0, "gpus": 1, "run": 400.0},
    )

    assert starts_of(run(jobs, machines, EASY)) == {0: 0, 1: 0, 3: 2, 2: 50}


def test_runs_past_their_predictions_are_expected_to_end_together() -> None:
    # The same with A predicted to end at 5 and B at 7: at 20 both should end at any moment.
    first, second = gpu_machines(2, 2)
    machines = (replace(first, cpu_cores=4), second)
    jobs = workload(
        {"gpus": 1, "cores": 8, "run": 50.0, "predicted": 5.0},
        {"gpus": 2, "run": 50.0, "predicted": 7.0},
        {"at": 1.0, "gpus": 2, "run": 10.0},
        {"at": 20.0, "gpus": 1, "run": 400.0},
    )

    assert starts_of(run(jobs, machines, EASY)) == {0: 0, 1: 0, 3: 20, 2: 50}


def test_a_run_past_its_prediction_is_expected_to_end_now() -> None:
    # A should have ended at 10. At 20 it is expected at any moment: nobody may outlast that on promised GPUs.
    jobs = workload(
        {"gpus": 3, "run": 90.0, "predicted": 10.0},
        {"at": 1.0, "gpus": 4, "run": 10.0},
        {"at": 20.0, "gpus": 1, "run": 1.0},
    )

    assert starts_of(run(jobs, gpu_machines(4), EASY)) == {0: 0, 1: 90, 2: 100}


def test_backfill_looks_so_many_jobs_behind_the_head() -> None:
    jobs = workload(
        {"gpus": 3, "run": 100.0}, {"at": 1.0, "gpus": 4}, {"at": 1.0, "gpus": 2}, {"at": 1.0, "gpus": 1, "run": 5.0}
    )

    assert starts_of(run(jobs, gpu_machines(4), Discipline(backfill="easy", backfill_depth=1)))[3] == 200.0
    assert starts_of(run(jobs, gpu_machines(4), Discipline(backfill="easy", backfill_depth=2)))[3] == 1.0


def test_a_job_that_ends_in_time_takes_nothing_of_what_is_spare_at_the_promise() -> None:
    # 2 of 4 GPUs are held until 100, when the head takes 3: one is spare. The short job gives its GPU back before that.
    jobs = workload(
        {"gpus": 2, "run": 100.0},
        {"at": 1.0, "gpus": 3, "run": 10.0},
        {"at": 1.0, "gpus": 1, "run": 50.0},
        {"at": 1.0, "gpus": 1, "run": 500.0},
    )

    assert starts_of(run(jobs, gpu_machines(4), EASY)) == {0: 0, 1: 100, 2: 1, 3: 1}


def test_drf_with_backfill_ranks_those_behind_the_head_anew() -> None:
    # User 0 heads the line with all 4 GPUs; behind it, users 1 and 2 take turns on the three that are free until 100.
    jobs = workload(
        {"gpus": 1, "run": 100.0, "user": 3},
        {"at": 1.0, "gpus": 4, "user": 0},
        *({"at": 1.0, "gpus": 1, "run": 50.0, "user": user} for user in (1, 1, 1, 2)),
    )

    schedule = run(jobs, gpu_machines(4), Discipline(policy="drf", backfill="easy"), horizon_s=1.0)

    assert schedule.job.tolist() == [0, 2, 5, 3]


def test_an_overtakes_bound_and_backfill_exclude_each_other() -> None:
    with pytest.raises(BadInput, match="both overtakes and backfill"):
        Discipline(overtakes=1, backfill="easy")
