"""Weights of training rows: censoring by hand and on a known population, and recency."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.history import History
from pipelines.models import examples, splits, weighting
from pipelines.models.examples import Examples
from tests.pipelines.models.conftest import T0, make_jobs


def test_survival_is_the_product_over_earlier_events() -> None:
    # at risk 5 at t=1 (event), 4 at t=2 (two events), 2 at t=3 (none), 1 at t=4 (event)
    times = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    events = np.array([True, True, True, False, True])

    survival = weighting.survival_before(times, events, np.array([0.5, 1.0, 2.0, 3.0, 4.0, 9.0]))

    assert survival == pytest.approx([1, 1, 4 / 5, 4 / 5 * 2 / 4, 4 / 5 * 2 / 4, 0])


def test_nothing_censored_weighs_nothing() -> None:
    weights = weighting.censoring_weights(np.array([3.0, 1.0, 2.0]), np.zeros(0))

    assert weights.tolist() == [1.0, 1.0, 1.0]


def test_weights_are_bounded() -> None:
    weights = weighting.censoring_weights(np.array([1.0, 100.0]), np.full(1000, 50.0))

    assert weights.max() == weighting.WEIGHT_LIMIT


def test_weights_undo_a_cut_on_a_known_population() -> None:
    rng = np.random.default_rng(4)
    run_s = rng.exponential(1.0, size=40_000)
    until_cut_s = rng.uniform(0.0, 6.0, size=40_000)
    ended = run_s < until_cut_s

    weights = weighting.censoring_weights(run_s[ended], until_cut_s[~ended])

    naive = run_s[ended].mean()
    weighted = np.average(run_s[ended], weights=weights)
    assert naive < 0.85
    assert weighted == pytest.approx(1.0, abs=0.04)


def examples_of(jobs: pl.DataFrame) -> Examples:
    return examples.examples_of(jobs, None, "ctr", by="kind", history=History.of(jobs), names="request")


def long_at_the_cut() -> pl.DataFrame:
    """Return jobs of which a fifth run for days, so that many long ones have not ended at the cut."""
    jobs = make_jobs(1500, seed=5, span_days=20)
    long = pl.int_range(pl.len()) % 5 == 0
    run_s = pl.when(long).then(pl.col("run_s") + 8 * 86400).otherwise("run_s")
    return jobs.with_columns(run_s=run_s).with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))


@pytest.mark.parametrize("censored", ["weights", "absent"])
def test_censoring_weights_favour_the_long_jobs_that_did_end(censored: str) -> None:
    jobs, until = long_at_the_cut(), T0 + timedelta(days=15)
    made = examples_of(jobs)
    split = splits.time_later(made.jobs, until=until)

    weights = weighting.row_weights(made, split.train, split, until, censored=censored, half_life_days=None)

    long = made.run_s[split.train] > 8 * 86400
    ratio = weights[split.train][long].mean() / weights[split.train][~long].mean()
    assert len(split.censored) > 50
    assert ratio > 1.3 if censored == "weights" else ratio == 1.0
    assert weights[split.train].mean() == pytest.approx(1.0)
    assert not weights[split.test].any()


def test_recency_halves_the_weight_with_every_half_life(jobs: pl.DataFrame) -> None:
    made = examples_of(jobs)
    split = splits.time_later(made.jobs, until=T0 + timedelta(days=30))

    weights = weighting.row_weights(made, split.train, split, None, censored="weights", half_life_days=5.0)

    days = made.submit_us[split.train] / 86_400e6
    slope = np.polyfit(days, np.log2(weights[split.train]), 1)[0]
    assert slope == pytest.approx(0.2)
