"""Fitting with few rows and many, and what the combination learns from."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.combination import Combination
from pipelines.models import boosting, fitted
from pipelines.models.examples import Examples
from pipelines.models.fitted import LEAST_TRAINED, UNTRAINED, Fitted, combination_at, combined, fit_runtime
from pipelines.models.metrics import FloatArray
from pipelines.models.splits import random_split
from tests.pipelines.models.few_jobs import LATER, QUICK, case


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
    _, split, _ = case(200)
    found = fit(200)

    answered = ~np.isnan(found.forecasts)
    assert answered.all(axis=(1, 2))[split.stop].all()
    assert not answered[split.fit][:, :2].any()
    assert answered[split.test].all()
    final = boosting.predict(found.booster, found.matrix[split.stop]) + case(200)[0].reference[split.stop]
    assert quantiles(found, "xgboost", split.stop).tolist() != np.sort(final, axis=1).tolist()


def test_a_stopping_rows_run_time_changes_no_forecast_of_its_own() -> None:
    # Its forecast comes from trees that did not see it; only the number of rounds may, so one round is given.
    examples, split, until = case(LEAST_TRAINED)
    recipe = replace(QUICK, boosting=replace(QUICK.boosting, rounds=1))
    row = int(split.stop[-1])
    changed = examples.log_y.copy()
    changed[row] += 3.0

    one, other = (
        fit_runtime(each, split, recipe, until=until, seed=0, nthread=1)
        for each in (examples, replace(examples, log_y=changed))
    )

    assert one.forecasts[split.stop].tobytes() == other.forecasts[split.stop].tobytes()
    assert one.booster.save_raw("ubj") != other.booster.save_raw("ubj")


def test_the_members_that_need_no_training_are_the_reference_and_the_history() -> None:
    examples, split, _ = case(200)
    rows = split.test

    assert quantiles(fit(200), "reference", rows).tolist() == examples.reference[rows].tolist()
    for place, name in enumerate(("similar_jobs", "same_gpus", "newest_jobs")):
        assert quantiles(fit(200), name, rows).tolist() == examples.history[rows, place].tolist()


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


def test_one_member_alone_answers_with_its_own_forecasts_and_an_offset_of_its_own() -> None:
    examples, split, _ = case(200)

    answer = combined(examples, fit(200), only=("forest",))

    own = fit(200).of_member("forest", split.test)
    assert answer.p50.tolist() == own.p50.tolist()
    assert (answer.p90 >= own.p90).all()


def test_splits_that_are_not_ordered_by_time_learn_from_stopping_rows_alone() -> None:
    examples, _, _ = case(200)
    split = random_split(examples.jobs, seed=1)
    found = fit_runtime(examples, split, QUICK, until=None, seed=0, nthread=1)

    answer = combined(examples, found)

    stop = sorted(split.stop.tolist(), key=lambda row: examples.end_us[row])
    expected = taught(found.start, examples, found, stop).combined(found.forecasts[split.test])
    assert np.stack([answer.p50, answer.p90], axis=1).tolist() == expected.tolist()
