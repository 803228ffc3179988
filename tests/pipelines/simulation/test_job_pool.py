"""Canonical tables to the pool of a simulation."""

import math

import pytest

from pipelines.errors import LakeError
from pipelines.simulation.job_pool import job_pool, recorded_pool, submissions
from scheduler_core.types import Request
from tests.pipelines.lake.canonical import T0, altered, measured_tables


def test_pool_joins_request_and_use() -> None:
    jobs, usage = measured_tables(3)

    pool = job_pool(jobs, usage)

    first, row, used = pool.jobs[0], jobs.row(0, named=True), usage.row(0, named=True)
    assert first.job.request == Request(cpu_cores=6.0, mem_gib=29.3, gpus=row["req_gpus"])
    assert first.job.submit_ts == T0.timestamp()
    assert (first.measured.mem_gib, first.measured.mem_avg_gib) == (used["mem_max_gib"], used["mem_avg_gib"])
    assert [entry.measured.device_mem_gib for entry in pool.jobs] == [16.0, 16.0, 16.0]
    assert pool.known == (False, True, True)
    assert pool.measured == (True, True, True)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"role": "ps"}, "role"),
        ({"run_s": None}, "no_run_time"),
        ({"run_s": 0.0}, "no_run_time"),
        ({"run_s_censored": True}, "run_time_censored"),
        ({"req_gpus": None}, "no_request"),
        ({"job_id": "elsewhere"}, "not_measured"),
    ],
)
def test_what_is_left_out_is_counted_by_why(values: dict[str, object], why: str) -> None:
    jobs, usage = measured_tables(5)

    pool = job_pool(altered(jobs, 2, **values), usage)

    assert len(pool.jobs) == 4
    assert {name: count for name, count in pool.dropped.items() if count} == {why: 1}


def test_nothing_measured_is_an_error_that_says_why() -> None:
    jobs, usage = measured_tables(5)

    with pytest.raises(LakeError, match=r"among 5 jobs \(5 not_measured\)"):
        job_pool(jobs, usage.clear())


def test_permuting_rows_changes_no_pool() -> None:
    jobs, usage = measured_tables(20)

    assert job_pool(jobs.sample(fraction=1.0, shuffle=True, seed=1), usage.reverse()) == job_pool(jobs, usage)


def test_a_recorded_pool_keeps_every_job_and_says_which_were_measured() -> None:
    jobs, usage = measured_tables(5)
    jobs = altered(altered(jobs, 1, role="ps", req_gpus=None), 3, run_s_censored=True)
    usage = altered(usage, 1, role="ps").filter(usage["job_id"] != "j002")

    pool = recorded_pool(submissions(jobs.reverse()).jobs, usage)

    assert [entry.job.job_id for entry in pool.jobs] == ["j000", "j001", "j002", "j003", "j004"]
    assert pool.measured == (True, False, False, True, True)
    assert pool.known == (False, True, True, True, True)
    assert (pool.jobs[2].measured.cpu_cores, pool.jobs[2].measured.mem_gib) == (0.0, 0.0)
    assert math.isnan(pool.jobs[1].job.request.gpus)
    assert pool.frame["job_id"].to_list() == [entry.job.job_id for entry in pool.jobs]
