"""The day-block bootstrap: days stay together, pairs stay paired."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from pipelines.models import judging


def test_rows_of_one_utc_day_share_a_block() -> None:
    at = datetime(2020, 8, 1, 23, 59, tzinfo=UTC)
    submitted = pl.Series([at, at + timedelta(minutes=2), at - timedelta(hours=20), at + timedelta(days=9)])

    assert judging.day_blocks(submitted).tolist() == [0, 1, 0, 2]


def test_every_resample_draws_as_many_days_as_there_are() -> None:
    draws = judging.day_draws(7, seed=3, draws=50)

    assert draws.shape == (50, 7)
    assert (draws.sum(axis=1) == 7).all()


def test_the_same_seed_gives_the_same_interval_and_another_another() -> None:
    blocks, rows = np.repeat(np.arange(10), 5), np.random.default_rng(0).normal(size=50)

    def interval(seed: int) -> judging.Interval:
        return judging.mean_interval(blocks, rows, judging.day_draws(10, seed=seed))

    assert interval(1) == interval(1)
    assert interval(1) != interval(2)


def test_rows_that_fail_by_the_day_give_a_wider_interval_than_rows_that_fail_alone() -> None:
    rng = np.random.default_rng(5)
    day_effect = np.repeat(rng.normal(size=30), 100)
    together = np.repeat(np.arange(30), 100)
    apart = rng.permutation(together)
    draws = judging.day_draws(30, seed=0)

    by_day = judging.mean_interval(together, day_effect, draws)
    alone = judging.mean_interval(apart, day_effect, draws)

    assert by_day.hi - by_day.lo > 3 * (alone.hi - alone.lo)


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide() -> None:
    rows = np.random.default_rng(2).normal(size=400)
    draws = judging.day_draws(400, seed=0, draws=4000)

    interval = judging.mean_interval(np.arange(400), rows, draws)

    error = rows.std() / 20
    assert interval.hi - interval.lo == pytest.approx(2 * 1.96 * error, rel=0.06)


def test_a_ratio_resamples_both_sums_over_the_same_days() -> None:
    bottom = np.array([1.0, 10.0, 100.0, 1000.0])

    interval = judging.ratio_interval(np.arange(4), 3 * bottom, bottom, judging.day_draws(4, seed=0))

    assert (interval.value, interval.lo, interval.hi) == pytest.approx((3.0, 3.0, 3.0))


def test_one_day_alone_says_nothing_about_other_days() -> None:
    interval = judging.mean_interval(np.zeros(5, dtype=np.int64), np.ones(5), judging.day_draws(1, seed=0))

    assert (interval.value, interval.lo, interval.hi) == (1.0, -np.inf, np.inf)
