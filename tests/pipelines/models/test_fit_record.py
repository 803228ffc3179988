"""The record of a fit: loss by boosting round and by week, and calibration by prediction."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from features.history import History
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Examples, examples_of
from pipelines.models.fit_record import calibration, record_of, weekly
from pipelines.models.fitted import Fitted, Recipe, combined, fit_runtime
from pipelines.models.judging import COMBINED
from pipelines.models.metrics import Forecast, primary_rows
from pipelines.models.splits import time_later
from tests.pipelines.models.conftest import T0, make_jobs

CUT = T0 + timedelta(days=30)
QUICK = Recipe(boosting=Boosting(rounds=25, patience=8, learning_rate=0.15, max_depth=3))


@pytest.fixture(scope="module", params=[True, False], ids=["relative", "plain"])
def fit(request: pytest.FixtureRequest) -> tuple[Examples, Fitted, dict[str, Forecast]]:
    recipe = replace(QUICK, relative=request.param)
    jobs = make_jobs(500, 8)
    examples = examples_of(
        jobs, None, "ctr", by="kind", history=History.of(jobs), names=recipe.features, relative=recipe.relative
    )
    fitted = fit_runtime(examples, time_later(examples.jobs, until=CUT), recipe, until=CUT, seed=0, nthread=1)
    return examples, fitted, {COMBINED: combined(examples, fitted)}


def test_a_learning_curve_ends_at_the_loss_of_the_whole_booster(
    fit: tuple[Examples, Fitted, dict[str, Forecast]],
) -> None:
    examples, fitted, forecasts = fit

    rounds = record_of(examples, fitted, forecasts).rounds

    test = fitted.split.test
    whole = primary_rows(examples.log_y[test], fitted.of_member("xgboost", test))
    assert rounds["round"].to_list() == list(range(1, fitted.rounds + 1))
    assert rounds["later"][-1] == pytest.approx(float(whole.mean()), rel=1e-5)
    assert rounds["later"][0] > 1.1 * rounds["later"][-1]
    assert rounds["latest_trained"][-1] < rounds["latest_trained"][0]


def test_weeks_add_up_to_the_loss_of_all_jobs(fit: tuple[Examples, Fitted, dict[str, Forecast]]) -> None:
    examples, fitted, forecasts = fit

    weeks = record_of(examples, fitted, forecasts).weeks

    losses = primary_rows(examples.log_y[fitted.split.test], forecasts[COMBINED])
    assert (weeks["pinball"] * weeks["jobs"]).sum() == pytest.approx(losses.sum())
    assert weeks["week"].dt.weekday().unique().to_list() == [1]
    assert weeks["week"].n_unique() == weeks.height > 1


def test_without_judged_jobs_only_the_training_curve_is_recorded(
    fit: tuple[Examples, Fitted, dict[str, Forecast]],
) -> None:
    examples, fitted, _ = fit

    record = record_of(examples, fitted, {})

    assert record.rounds["later"].null_count() == fitted.rounds
    assert record.rounds["latest_trained"].null_count() == 0
    assert record.weeks.is_empty()
    assert record.calibration.is_empty()


def test_calibration_counts_the_jobs_at_or_below_their_prediction() -> None:
    log_y = np.arange(100.0)

    rows = calibration(log_y, Forecast(p50=np.where(log_y < 40, log_y - 1.0, log_y), p90=log_y + 1.0))

    low, *_, high = rows.filter(pl.col("quantile") == 0.5)["share"]
    assert rows["jobs"].to_list() == [20] * 10
    assert (low, high) == (0.0, 1.0)
    assert rows.filter(pl.col("quantile") == 0.9)["share"].to_list() == [1.0] * 5


def test_a_week_begins_on_monday() -> None:
    days = pl.Series([T0 + timedelta(days=day) for day in (0, 6, 7)])  # T0 is a Monday

    rows = weekly("m", days, np.array([1.0, 3.0, 5.0]))

    assert rows.rows() == [(T0.date(), "m", 2, 2.0), ((T0 + timedelta(days=7)).date(), "m", 1, 5.0)]
