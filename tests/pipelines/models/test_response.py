"""The response model: what it finds on jobs whose run time depends on known resources, and when it is not trusted."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.history import History
from modelserve.bundle.card import ResponseState
from pipelines.models.examples import examples_of
from pipelines.models.response import resources, response_of, similar_use
from tests.pipelines.models.conftest import T0, make_jobs


def found(jobs: pl.DataFrame, usage: pl.DataFrame | None = None) -> ResponseState:
    examples = examples_of(jobs, usage, "ctr", by="kind", history=History.of(jobs), names="request", relative=True)
    return response_of(examples, np.arange(jobs.height), seed=0, nthread=1)


def responding(n: int = 600) -> pl.DataFrame:
    """Return jobs of 60 groups that run shorter with more GPUs, whatever else they request."""
    rng = np.random.default_rng(5)
    jobs = make_jobs(n, seed=5).with_columns(group=pl.format("g{}", pl.int_range(n) % 60))
    log_s = 8.0 - np.log2(jobs["req_gpus"].to_numpy()) + rng.normal(0.0, 0.5, n)
    return jobs.with_columns(run_s=pl.Series(np.exp(log_s)), role=pl.lit("worker"))


def test_a_resource_that_shortens_runs_is_found_with_its_sign_on_groups_not_trained_on() -> None:
    response = found(responding())

    of = {each.resource: each for each in response.importances}
    assert list(of) == ["cpu_cores", "mem_gib", "gpus", "net_bytes_per_s", "gpu_mem_gib"]
    assert response.trusted
    assert 0.6 < response.lead_lo < response.lead < response.lead_hi < 0.95  # noise alone leaves 0.25 of 1.5
    assert of["gpus"].sign < -0.9
    assert of["gpus"].mean > 10 * max(abs(of[name].mean) for name in of if name != "gpus")
    assert response == found(responding())


def test_a_response_to_nothing_is_not_trusted_and_shows_its_interval() -> None:
    jobs = responding()
    response = found(jobs.with_columns(run_s=jobs["run_s"].shuffle(seed=1)))

    assert not response.trusted
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
    response = found(jobs)

    assert (response.trusted, response.why, response.lead, response.importances) == (False, why, None, ())


def test_similar_jobs_are_of_the_group_then_of_the_user_then_of_the_role_and_ended_before() -> None:
    hours = [0, 1, 2, 3, 4, 5]
    jobs = make_jobs(6).with_columns(
        group=pl.Series(["a", "a", "b", "a", "c", "a"]),
        user=pl.Series(["u", "u", "u", "u", "v", "u"]),
        submit_ts=pl.Series([T0 + timedelta(hours=h) for h in hours]),
        start_ts=pl.Series([T0 + timedelta(hours=h) for h in hours]),
        # The second job ends exactly when the fourth is submitted: that is not before.
        end_ts=pl.Series([T0 + timedelta(hours=h) for h in (0.5, 3, 2.5, 3.5, 4.5, 5.5)]),
        net_read_bytes_per_s=pl.Series([10.0, 30.0, 50.0, None, 90.0, 0.0]),
        gpu_mem_max_gib=pl.Series([1.0, 3.0, None, 4.0, 5.0, 6.0]),
    )

    assert similar_use(jobs).rows() == [
        (None, None),
        (10.0, 1.0),
        (10.0, 1.0),  # the group is new, the user is not
        (10.0, 1.0),
        (30.0, 8.0 / 3.0),  # group and user are new: all that ended
        (20.0, 8.0 / 3.0),
    ]
    assert resources(jobs.drop("net_read_bytes_per_s"))[:, 3].tolist() == pytest.approx([np.nan] * 6, nan_ok=True)
