"""Canonical jobs to the columns of a workload, and which of a trace's submissions are replayed."""

import doctest
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import Jobs
from pipelines.errors import BadUsage, LakeError
from pipelines.simulation import workloads
from pipelines.simulation.job_pool import submissions
from pipelines.simulation.workloads import arriving, as_requested, gangs_of, submitted_s, units_of
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from tests.examples import examples
from tests.pipelines.lake.canonical import T0, canonical, job_row


def jobs(*rows: dict[str, object]) -> pl.DataFrame:
    return canonical([job_row(at, **fields) for at, fields in enumerate(rows)], Jobs)


def test_examples_are_true() -> None:
    assert doctest.testmod(workloads) == (0, 1)


def test_recorded_jobs_arrive_as_they_were_submitted() -> None:
    frame = jobs({"user": "b", "req_gpus": 0.5}, {"user": "a", "status": "failed", "run_s": 60.0}, {"priority": 3})

    gangs = gangs_of(frame)
    workload = arriving(gangs, as_requested(gangs, np.array([1.0, 2.0, np.nan])), submitted_s(frame))

    assert workload.arrive_s.tolist() == [0.0, 60.0, 120.0]
    assert workload.request_units.tolist() == [[0, 0, 500], [0, 0, 1000], [0, 0, 1000]]
    assert workload.granted_units.tolist() == workload.request_units.tolist()
    assert workload.user.tolist() == [2, 1, 0]
    assert workload.fails.tolist() == [False, True, False]
    assert (workload.run_s.tolist(), workload.granted_run_s.tolist()) == ([600.0, 60.0, 600.0],) * 2
    assert workload.priority.tolist() == [0.0, 0.0, 3.0]
    assert workload.predicted_s.tolist()[:2] == [1.0, 2.0]
    assert np.isnan(workload.predicted_s[2])
    assert not workload.dies.any()


def test_gpu_types_are_codes_of_their_sorted_names() -> None:
    gangs = gangs_of(jobs({"gpu_type": "V100"}, {"gpu_type": None}, {"gpu_type": "P100"}))

    assert gangs.gpu_types == ("P100", "V100")
    assert gangs.gpu_type.tolist() == [1, ANY_GPU_TYPE, 0]


@pytest.mark.parametrize(
    ("gpus", "instances", "expected"),
    [
        (16.0, 1, (2, 8000)),
        (12.0, 1, (3, 4000)),
        (9.0, 1, (9, 1000)),
        (8.0, 1, (1, 8000)),
        (0.5, 1, (1, 500)),
        (16.0, 2, (2, 16000)),
    ],
)
def test_what_no_machine_hosts_is_divided_into_equal_instances(
    gpus: float, instances: int, expected: tuple[int, int]
) -> None:
    gangs = gangs_of(jobs({"req_gpus": gpus, "instances": instances}), gpus_per_machine=8)

    assert (int(gangs.instances[0]), int(gangs.request_units[0, 2])) == expected


@settings(max_examples=examples(25), deadline=None)
@given(
    gpus=st.integers(1, 300),
    cores=st.integers(0, 100_000),
    most=st.sampled_from([1, 2, 4, 8, 10]),
)
def test_dividing_keeps_the_gpus_and_takes_no_less_of_the_rest(gpus: int, cores: int, most: int) -> None:
    gangs = gangs_of(jobs({"req_gpus": float(gpus), "req_cpu_cores": cores / 1000}), gpus_per_machine=most)

    total = gangs.request_units[0] * gangs.instances[0]
    assert total[2] == gpus * 1000
    assert cores <= total[0] < cores + gangs.instances[0]
    assert gangs.request_units[0, 2] <= most * 1000


@pytest.mark.parametrize("amount", [-1.0, np.inf])
def test_amounts_out_of_range_are_refused(amount: float) -> None:
    with pytest.raises(BadInput, match="expected a finite amount"):
        units_of(np.array([[0.0, amount, 0.0]]))


def test_jobs_out_of_order_are_refused() -> None:
    frame = jobs({}, {}).reverse()
    gangs = gangs_of(frame)

    with pytest.raises(BadInput, match="arrive_s"):
        arriving(gangs, as_requested(gangs), submitted_s(frame))


def test_submissions_are_sorted_counted_and_cut_to_the_window() -> None:
    frame = jobs({}, {"run_s": None}, {"run_s_censored": True}, {"status": "running", "end_ts": None}, {"run_s": 0.0})

    found = submissions(frame.reverse(), since=T0 + timedelta(minutes=1))

    assert found.jobs["job_id"].to_list() == ["j002", "j003"]
    assert found.dropped == {"without a run time": 2}
    assert found.lower_bounds == 2
    assert found.notes() == [
        "2 recorded jobs, at their recorded submission times",
        "left out: 2 without a run time",
        "2 run times are lower bounds (cut, clamped or running): used as they are",
    ]


def test_until_is_exclusive_and_a_vc_takes_its_own() -> None:
    frame = jobs({"vc": "x"}, {"vc": "y"}, {"vc": "x"})

    assert submissions(frame, until=T0 + timedelta(minutes=2)).jobs.height == 2
    assert submissions(frame, vc="x").jobs["job_id"].to_list() == ["j000", "j002"]


def test_an_unknown_vc_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadUsage, match=r"found no job of 'z', expected one of x"):
        submissions(jobs({"vc": "x"}), vc="z")


def test_an_empty_window_says_what_to_do() -> None:
    with pytest.raises(LakeError, match=r"among 0 in the window, of 1 in all; .* widen"):
        submissions(jobs({}), since=T0 + timedelta(days=1))
