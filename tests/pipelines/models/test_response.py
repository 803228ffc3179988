"""The response model: what it finds on jobs whose run time depends on known resources, and when it is not trusted."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.build import build
from features.columns.request import REQUEST_COLUMNS
from features.contract import RESPONSE_CONTRACT
from features.history import History
from modelserve.bundle.served import five_resources
from pipelines.models.boosting import predict
from pipelines.models.examples import examples_of
from pipelines.models.response import Response, response_of
from tests.pipelines.models.conftest import T0, make_jobs


def found(jobs: pl.DataFrame) -> Response:
    history = History.of(jobs)
    examples = examples_of(jobs, None, "ctr", by="kind", history=history, names="request", relative=True)
    return response_of(examples, history, np.arange(jobs.height), seed=0, nthread=1)


def responding(n: int = 600) -> pl.DataFrame:
    """Return jobs of 60 groups that run shorter with more GPUs, whatever else they request."""
    rng = np.random.default_rng(5)
    jobs = make_jobs(n, seed=5).with_columns(group=pl.format("g{}", pl.int_range(n) % 60))
    log_s = 8.0 - np.log2(jobs["req_gpus"].to_numpy()) + rng.normal(0.0, 0.5, n)
    return jobs.with_columns(run_s=pl.Series(np.exp(log_s)), role=pl.lit("worker"))


def test_a_resource_that_shortens_runs_is_found_with_its_sign_on_groups_not_trained_on() -> None:
    response, _, important = found(responding())

    of = {each.resource: each for each in response.importances}
    assert list(of) == ["cpu_cores", "mem_gib", "gpus", "net_bytes_per_s", "gpu_mem_gib"]
    assert response.trusted
    assert 0.6 < response.lead_lo < response.lead < response.lead_hi < 0.95  # noise alone leaves 0.25 of 1.5
    assert of["gpus"].sign < -0.9
    assert of["gpus"].mean > 10 * max(abs(of[name].mean) for name in of if name != "gpus")
    assert important == ("gpus",)
    assert of["cpu_cores"].note is None
    assert of["gpu_mem_gib"].note == "unknown of all jobs"
    assert response == found(responding())[0]


def test_a_resource_of_which_all_jobs_ask_the_same_says_so() -> None:
    jobs = responding().with_columns(req_cpu_cores=pl.lit(6.0), role=pl.Series(["chief", "worker"] * 300))
    jobs = jobs.with_columns(req_mem_gib=pl.when(pl.col("role") == "chief").then(8.0).otherwise(4.0))

    cores, gib, *_ = found(jobs)[0].importances

    assert [(each.mean, each.sign) for each in (cores, gib)] == [(0.0, None)] * 2
    assert cores.note == "all jobs have 6: run some with another amount to know"
    assert gib.note == "all jobs of a role have the same amount: run some with another amount to know"


def test_the_model_that_serves_answers_as_the_jobs_respond() -> None:
    resources = np.array([[6.0, 29.0, gpus, np.nan, np.nan] for gpus in (1.0, 0.5)], np.float32)

    half = np.diff(predict(found(responding())[1], resources)[:, 0])

    assert half == pytest.approx(1.0, abs=0.25)  # a log2 of GPUs


def test_a_response_to_nothing_is_not_trusted_and_shows_its_interval() -> None:
    jobs = responding()
    response, *rest = found(jobs.with_columns(run_s=jobs["run_s"].shuffle(seed=1)))

    assert (response.trusted, *rest) == (False, None, ())
    assert response.lead_lo <= 0.0
    assert response.why.startswith(f"removes {response.lead:.1%} [{response.lead_lo:.1%}, {response.lead_hi:.1%}]")


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        (make_jobs(59), "59 ended jobs, expected 60"),
        (make_jobs(80).with_columns(group=pl.lit("g0")), "fewer than 5 groups to judge by"),
    ],
)
def test_without_enough_jobs_or_groups_there_is_a_reason_and_no_importance(jobs: pl.DataFrame, why: str) -> None:
    response, *_ = found(jobs)

    assert (response.trusted, response.why, response.lead, response.importances) == (False, why, None, ())


def test_similar_use_is_of_the_group_then_of_the_user_and_of_jobs_that_ended_before() -> None:
    hours = [0, 1, 2, 3, 4, 5]
    at = pl.Series([T0 + timedelta(hours=h) for h in hours])
    jobs = make_jobs(6).with_columns(
        group=pl.Series(["a", "a", "b", "a", "c", "a"]),
        user=pl.Series(["u", "u", "u", "u", "v", "u"]),
        role=pl.lit("worker"),
        submit_ts=at,
        start_ts=at,
        # The second job ends exactly when the fourth is submitted: that is not before.
        end_ts=pl.Series([T0 + timedelta(hours=h) for h in (0.5, 3, 2.5, 3.5, 4.5, 5.5)]),
    )
    unknown = dict.fromkeys(("used_cpu_cores", "used_gpus", "mem_max_gib"), pl.lit(None, pl.Float64))
    usage = jobs.select("trace", "cluster", "job_id", "role").with_columns(
        **unknown,
        net_read_bytes_per_s=pl.Series([10.0, 30.0, 50.0, None, 90.0, 0.0]),
        gpu_mem_max_gib=pl.Series([1.0, 3.0, None, 4.0, 5.0, 6.0]),
    )

    resources = five_resources(RESPONSE_CONTRACT.encode(build(jobs, History.of(jobs, usage), RESPONSE_CONTRACT.names)))

    nan = np.nan
    expected = [
        (nan, nan),
        (10.0, 1.0),
        (10.0, 1.0),  # the group is new, the user is not
        (10.0, 1.0),
        (nan, nan),  # group and user are new
        (20.0, 3.0),
    ]
    np.testing.assert_array_equal(resources[:, 3:], np.array(expected, np.float32))
    assert resources[:, :3].tolist() == jobs.select(REQUEST_COLUMNS).to_numpy().astype(np.float32).tolist()
