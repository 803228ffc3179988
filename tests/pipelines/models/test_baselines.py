"""History baselines: by hand, against a brute-force oracle, and blind to the future."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models import baselines
from tests.examples import examples
from tests.pipelines.models.conftest import make_jobs


def brute_force(jobs: pl.DataFrame, key: tuple[str, ...], window: int) -> list[tuple[float, float] | None]:
    """Answer one job at a time by looking at all others."""
    rows = jobs.with_columns(gpus=pl.col("req_gpus") * pl.col("instances")).to_dicts()
    answers: list[tuple[float, float] | None] = []
    for asked in rows:
        like = [r for r in rows if all(r[c] is not None and r[c] == asked[c] for c in key)]
        ended = [(r["end_ts"], i, r["run_s"]) for i, r in enumerate(like) if r["end_ts"] < asked["submit_ts"]]
        last = np.log(np.maximum([run for _, _, run in sorted(ended)[-window:]], 1.0))
        answers.append((float(np.quantile(last, 0.5)), float(np.quantile(last, 0.9))) if len(last) else None)
    return answers


@pytest.mark.parametrize("key", [(), ("user",), ("user", "group", "gpus")])
@pytest.mark.parametrize("window", [4, 1000])
def test_windows_agree_with_looking_at_every_other_job(key: tuple[str, ...], window: int) -> None:
    jobs = make_jobs(150, seed=8, span_days=2).with_columns(
        user=pl.when(pl.int_range(pl.len()) % 9 == 0).then(None).otherwise(pl.col("user"))
    )

    answer = baselines.window_quantiles(jobs, key, window)

    for row, expected in enumerate(brute_force(jobs, key, window)):
        if expected is None:
            assert np.isnan(answer.p50[row])
            assert answer.ended[row] == 0
        else:
            assert (answer.p50[row], answer.p90[row]) == pytest.approx(expected)


def test_a_job_that_ends_at_the_instant_of_a_submission_is_not_its_history() -> None:
    first, second, third = make_jobs(3, seed=1).sort("submit_ts").iter_slices(1)
    second = second.with_columns(submit_ts=first["end_ts"])
    third = third.with_columns(submit_ts=first["end_ts"] + timedelta(microseconds=1))

    answer = baselines.window_quantiles(pl.concat([first, second, third]), (), 10)

    assert np.isnan(answer.p50[1])
    assert answer.p50[2] == pytest.approx(np.log(first["run_s"][0]))


def test_a_key_with_little_history_falls_back_along_its_chain(jobs: pl.DataFrame) -> None:
    newcomer = jobs[-1:].with_columns(user=pl.lit("nobody"), group=pl.lit("none"), job_id=pl.lit("new"))
    both = pl.concat([jobs, newcomer])

    forecasts = baselines.history_forecasts(both, ["user_median", "global_median"])

    assert forecasts["user_median"].p50[-1] == forecasts["global_median"].p50[-1]
    assert forecasts["user_median"].p50[-2] != forecasts["global_median"].p50[-2]


def test_before_anything_ended_the_answer_is_the_uninformed_one(jobs: pl.DataFrame) -> None:
    first = jobs.sort("submit_ts")[:1]

    forecast = baselines.history_forecasts(first, ["recent_20"])["recent_20"]

    assert np.exp(forecast.p50) == pytest.approx([baselines.UNINFORMED_S[0.5]])
    assert np.exp(forecast.p90) == pytest.approx([baselines.UNINFORMED_S[0.9]])


def test_a_trace_without_users_has_no_user_median(jobs: pl.DataFrame) -> None:
    anonymous = jobs.with_columns(user=pl.lit(None, pl.String), group=pl.lit(None, pl.String))

    assert baselines.applicable(anonymous) == ["gpus_median", "recent_20", "global_median"]
    assert "user_group_gpus_median" in baselines.applicable(jobs)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 50), st.integers(10, 110))
def test_truncating_the_future_changes_no_answer(seed: int, kept: int) -> None:
    jobs = make_jobs(120, seed=seed, span_days=3).sort("submit_ts")
    names = baselines.applicable(jobs)
    now = jobs["submit_ts"][kept - 1]
    unfinished = pl.col("end_ts") >= now
    truncated = jobs[:kept].with_columns(
        end_ts=pl.when(unfinished).then(None).otherwise(pl.col("end_ts")),
        run_s=pl.when(unfinished).then(None).otherwise(pl.col("run_s")),
        status=pl.when(unfinished).then(pl.lit("running")).otherwise(pl.col("status")),
    )

    order = np.random.default_rng(seed).permutation(jobs.height)

    full, cut, shuffled = (baselines.history_forecasts(frame, names) for frame in (jobs, truncated, jobs[order]))

    for name in names:
        assert full[name].p50[:kept].tolist() == cut[name].p50.tolist()
        assert full[name].p90[:kept].tolist() == cut[name].p90.tolist()
        assert full[name].p90[order].tolist() == shuffled[name].p90.tolist()
