"""Fitting with few rows and many, the weights of rows, and what the combination learns from."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest

from features.history import History
from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.combination import Combination
from pipelines.models import boosting, fitted
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Examples, examples_of
from pipelines.models.fitted import LEAST_TRAINED, UNTRAINED, Fitted, combination_at, combined, fit_runtime
from pipelines.models.metrics import FloatArray
from pipelines.models.recipes import Recipe
from pipelines.models.splits import Split, group_folds, time_later
from tests.pipelines.models.conftest import T0, make_jobs

QUICK = Recipe(boosting=Boosting(rounds=12, patience=6, num_parallel_tree=1, learning_rate=0.3, max_depth=3))
LATER = 30
"""Number of jobs submitted after the cut."""


def known(jobs: pl.DataFrame) -> Examples:
    """Return the examples of all jobs, with their requests as features."""
    return examples_of(jobs, None, "ctr", by="kind", history=History.of(jobs), names="request", relative=True)


@cache
def case(count: int) -> tuple[Examples, Split, datetime]:
    """Return examples of which `count` ended before the cut; every job ends before the next is submitted."""
    n = count + LATER
    jobs = make_jobs(n, seed=count).with_columns(
        submit_ts=T0 + pl.int_range(n) * timedelta(days=1), run_s=pl.min_horizontal("run_s", 50_000.0)
    )
    jobs = jobs.with_columns(start_ts=pl.col("submit_ts"), queue_s=0.0)
    examples = known(jobs.with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s"))))
    until = T0 + timedelta(days=count) - timedelta(hours=1)
    return examples, time_later(examples.jobs, until=until), until


@cache
def fit(count: int) -> Fitted:
    examples, split, until = case(count)
    return fit_runtime(examples, split, QUICK, until=until, seed=0, nthread=1)


@pytest.mark.parametrize("count", [1, LEAST_TRAINED - 1])
def test_with_few_rows_no_trees_are_grown_and_the_history_answers(count: int) -> None:
    examples, split, _ = case(count)
    found = fit(count)

    assert found.trained.tolist() == list(range(count)) == sorted(split.train.tolist())
    assert (found.forest, found.rounds) == (None, 0)
    assert found.start.members == UNTRAINED == ("reference", "similar_jobs", "same_gpus", "newest_jobs")
    assert found.start.weights(0.5).tolist() == found.start.weights(0.9).tolist() == [0.25] * 4
    assert boosting.predict(found.booster, found.matrix).tolist() == [[0.0, 0.0]] * (count + LATER)
    answer = combined(examples, found)
    assert np.isfinite([answer.p50, answer.p90]).all()
    assert (answer.p50 <= answer.p90).all()
    assert len(answer.p50) == LATER


@pytest.mark.parametrize("count", [LEAST_TRAINED, 200])
def test_with_enough_rows_trees_are_grown_and_the_final_fits_answer_for_later_jobs(count: int) -> None:
    examples, split, _ = case(count)
    found = fit(count)

    assert found.trained.tolist() == list(range(count))
    assert found.forest is not None
    assert found.rounds >= min(fitted.LEAST_ROUNDS, QUICK.boosting.rounds)
    assert found.start.members == COMBINABLE
    assert found.start.weights(0.5)[0] == pytest.approx(count / (count + 2000) / 2)
    later, reference = split.test, examples.reference[split.test]
    by_trees = np.sort(boosting.predict(found.booster, found.matrix[later]) + reference, axis=1)
    by_forest = np.sort(found.forest.forest.rows(found.matrix[later]) + reference[:, :1], axis=1)
    assert quantiles(found, "xgboost", later).tolist() == by_trees.tolist()
    assert quantiles(found, "forest", later).tolist() == by_forest.tolist()
    assert np.ptp(by_trees - reference) > 0


def quantiles(found: Fitted, member: str, rows: np.ndarray) -> FloatArray:
    answer = found.of_member(member, rows)
    return np.stack([answer.p50, answer.p90], axis=1)


def test_rows_that_trees_were_fitted_on_have_no_forecast_and_stopping_rows_one_of_the_first_fits() -> None:
    examples, split, _ = case(200)
    found = fit(200)

    answered = ~np.isnan(found.forecasts)
    assert answered.all(axis=(1, 2))[split.stop].all()
    assert not answered[split.fit][:, :2].any()
    assert answered[split.test].all()
    final = boosting.predict(found.booster, found.matrix[split.stop]) + examples.reference[split.stop]
    assert quantiles(found, "xgboost", split.stop).tolist() != np.sort(final, axis=1).tolist()
    assert quantiles(found, "reference", split.test).tolist() == examples.reference[split.test].tolist()
    for place, name in enumerate(("similar_jobs", "same_gpus", "newest_jobs")):
        assert quantiles(found, name, split.test).tolist() == examples.history[split.test, place].tolist()


def test_a_stopping_rows_run_time_changes_no_forecast_of_its_own() -> None:
    # Its forecast comes from trees that did not see it; only the number of rounds may, so one round is given.
    examples, split, until = case(LEAST_TRAINED)
    recipe = replace(QUICK, boosting=replace(QUICK.boosting, rounds=1))
    changed = examples.log_y.copy()
    changed[int(split.stop[-1])] += 3.0

    one, other = (
        fit_runtime(each, split, recipe, until=until, seed=0, nthread=1)
        for each in (examples, replace(examples, log_y=changed))
    )

    assert one.forecasts[split.stop].tobytes() == other.forecasts[split.stop].tobytes()
    assert one.booster.save_raw("ubj") != other.booster.save_raw("ubj")


def test_jobs_that_were_submitted_together_grow_no_trees() -> None:
    # All of them are the latest, so none is left to fit on before the stopping rows.
    examples, split, until = case(200)
    together = replace(split, fit=split.fit[:0], stop=split.train)

    found = fit_runtime(examples, together, QUICK, until=until, seed=0, nthread=1)

    assert found.forest is None
    assert len(found.trained) == 200
    assert np.isfinite(combined(examples, found).p90).all()


# What the combination learns from.


def taught(start: Combination, examples: Examples, found: Fitted, rows: list[int]) -> Combination:
    for row in rows:
        start = start.learnt(found.forecasts[row], float(examples.log_y[row]))
    return start


@pytest.mark.parametrize("count", [LEAST_TRAINED - 1, 200])
def test_each_later_job_is_forecast_with_what_the_jobs_before_it_taught(count: int) -> None:
    # Every job ends before the next is submitted. Rows that trees were fitted on teach nothing.
    examples, split, _ = case(count)
    found = fit(count)
    first = split.stop.tolist() if count >= LEAST_TRAINED else list(range(count))

    answer = combined(examples, found)

    for place, row in enumerate(split.test.tolist()):
        then = taught(found.start, examples, found, [*first, *split.test[:place].tolist()])
        assert [answer.p50[place], answer.p90[place]] == then.combined(found.forecasts[row : row + 1])[0].tolist()


@pytest.mark.parametrize("count", [2, 200])
def test_the_combination_at_the_cut_has_learnt_from_what_ended_before_it(count: int) -> None:
    examples, split, until = case(count)
    found = fit(count)

    at_cut = combination_at(examples, found, until)
    alone = combination_at(examples, found, until, only=("reference",))

    rows = split.stop.tolist() if count >= LEAST_TRAINED else list(range(count))
    assert at_cut.state.tobytes() == taught(found.start, examples, found, rows).state.tobytes()
    assert at_cut.state.any()
    assert (alone.members, alone.weights(0.9).tolist()) == (("reference",), [1.0])


def test_splits_that_are_not_ordered_by_time_learn_from_stopping_rows_alone() -> None:
    examples, _, _ = case(200)
    split = group_folds(examples.jobs, folds=3, seed=1)[0]
    found = fit_runtime(examples, split, QUICK, until=None, seed=0, nthread=1)

    answer = combined(examples, found)

    stop = sorted(split.stop.tolist(), key=lambda row: examples.end_us[row])
    expected = taught(found.start, examples, found, stop).combined(found.forecasts[split.test])
    assert np.stack([answer.p50, answer.p90], axis=1).tolist() == expected.tolist()


# Weights of training rows.


def test_survival_is_the_product_over_earlier_events() -> None:
    # at risk 5 at t=1 (event), 4 at t=2 (two events), 2 at t=3 (none), 1 at t=4 (event)
    times = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    events = np.array([True, True, True, False, True])

    survival = fitted.survival_before(times, events, np.array([0.5, 1.0, 2.0, 3.0, 4.0, 9.0]))

    assert survival == pytest.approx([1, 1, 4 / 5, 4 / 5 * 2 / 4, 4 / 5 * 2 / 4, 0])


def test_weights_are_equal_without_censored_jobs_and_bounded_with_many() -> None:
    bounded = fitted.censoring_weights(np.array([1.0, 100.0]), np.full(1000, 50.0))

    assert fitted.censoring_weights(np.array([3.0, 1.0, 2.0]), np.zeros(0)).tolist() == [1.0, 1.0, 1.0]
    assert bounded.max() == fitted.WEIGHT_LIMIT


def test_weights_undo_a_cut_on_a_known_population() -> None:
    rng = np.random.default_rng(4)
    run_s, until_cut_s = rng.exponential(1.0, size=40_000), rng.uniform(0.0, 6.0, size=40_000)
    ended = run_s < until_cut_s

    weights = fitted.censoring_weights(run_s[ended], until_cut_s[~ended])

    assert run_s[ended].mean() < 0.85
    assert np.average(run_s[ended], weights=weights) == pytest.approx(1.0, abs=0.04)


def test_censoring_weights_favour_the_long_jobs_that_did_end() -> None:
    run_s = pl.when(pl.int_range(pl.len()) % 5 == 0).then(pl.col("run_s") + 8 * 86400).otherwise("run_s")
    jobs = make_jobs(1500, seed=5, span_days=20).with_columns(run_s=run_s)
    made = known(jobs.with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s"))))
    until = T0 + timedelta(days=15)
    split = time_later(made.jobs, until=until)

    weights = fitted.row_weights(made, split, until, half_life_days=None)

    long = made.run_s[split.train] > 8 * 86400
    assert len(split.censored) > 50
    assert weights[split.train][long].mean() > 1.3 * weights[split.train][~long].mean()
    assert weights[split.train].mean() == pytest.approx(1.0)
    assert not weights[split.test].any()


def test_recency_halves_the_weight_with_every_half_life(jobs: pl.DataFrame) -> None:
    made = known(jobs)
    split = time_later(made.jobs, until=T0 + timedelta(days=30))

    weights = fitted.row_weights(made, split, None, half_life_days=5.0)

    days = made.submit_us[split.train] / 86_400e6
    assert np.polyfit(days, np.log2(weights[split.train]), 1)[0] == pytest.approx(0.2)
