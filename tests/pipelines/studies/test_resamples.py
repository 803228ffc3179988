"""Blocks of days drawn on a circle, and the intervals they give: counts, pairing, and where nothing is said."""

import numpy as np
import pytest

from pipelines.studies.intervals import BLOCK_DAYS, DRAWS, Resamples, day_counts


def resamples(days: int, *, seed: int = 0) -> Resamples:
    return Resamples.of(np.array([100, 100 + days - 1]), seed=seed)


def test_days_come_in_runs_on_a_circle() -> None:
    counts = day_counts(30, rng=np.random.default_rng(1), draws=50, block=7)

    begun = np.diff(counts, axis=1, prepend=counts[:, -1:])
    assert (counts.sum(axis=1) == 35.0).all()
    # As many runs end as begin, and every run of five that begins raises the count by one.
    assert (np.maximum(begun, 0.0).sum(axis=1) <= 5.0).all()
    assert (begun.sum(axis=1) == 0.0).all()


def test_every_day_is_as_likely_as_another() -> None:
    counts = day_counts(14, rng=np.random.default_rng(2), draws=20_000)

    assert counts.mean(axis=0) == pytest.approx(np.ones(14), abs=0.03)


def test_sums_by_day_hold_days_without_jobs() -> None:
    found = resamples(20).by_day(np.array([100, 102, 102]), np.array([1.0, 2.0, 3.0]))

    assert found[:4].tolist() == [1.0, 0.0, 5.0, 0.0]
    assert len(found) == 20


def test_an_interval_of_independent_days_is_about_that_of_the_normal() -> None:
    rng, days = np.random.default_rng(3), 700
    own = resamples(days)
    means = own.drawn(np.array([rng.normal(10.0, 2.0, days)]))[0] / own.counts.sum(axis=1)

    low, high = own.interval(means)

    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(2.0 * 1.96 * 2.0 / np.sqrt(days), rel=0.25)


def test_days_alike_within_a_week_make_intervals_as_wide_as_weeks_do() -> None:
    weeks = 100
    own = resamples(weeks * BLOCK_DAYS)
    by_day = np.random.default_rng(4).normal(0.0, 1.0, weeks).repeat(BLOCK_DAYS)

    low, high = own.interval(own.drawn(by_day[None, :])[0] / own.counts.sum(axis=1))

    assert low is not None
    assert high is not None
    # Runs that begin within a week hold parts of two, hence less than weeks drawn whole; days alone give 0.15.
    assert 0.25 < high - low < 2.0 * 1.96 / np.sqrt(weeks)


def test_the_same_seed_draws_the_same_days_and_another_draws_others() -> None:
    first, again, other = (resamples(60, seed=seed).counts for seed in (5, 5, 6))

    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(("days", "untold", "said"), [(13, 0, False), (14, 0, True), (60, 40, True), (60, 60, False)])
def test_nothing_is_said_of_a_fortnight_cut_short_or_of_what_cannot_be_told(days: int, untold: int, said: bool) -> None:
    values = np.arange(DRAWS, dtype=np.float64)
    values[:untold] = np.nan

    assert (resamples(days).interval(values) != (None, None)) is said
