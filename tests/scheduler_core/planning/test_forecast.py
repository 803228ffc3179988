"""Forecasts: they repeat known hours, never see ahead, and their errors are those of a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.forecast import FORECASTS, forecast, forecast_error
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from tests.pipelines.simulation.energy.sites import hourly


def test_yesterday_repeats_the_same_hour_and_persistence_the_newest() -> None:
    series, now = hourly(np.arange(100.0)), np.array([50])

    assert [forecast(series, now, ahead, "yesterday")[0] for ahead in (0, 1, 24, 25)] == [50.0, 27.0, 50.0, 27.0]
    assert [forecast(series, now, ahead, "persistence")[0] for ahead in (0, 1, 25)] == [50.0] * 3


def test_before_a_day_is_known_yesterday_is_the_newest_value() -> None:
    assert forecast(hourly([3.0, 8.0, 9.0]), np.array([1]), 1, "yesterday").tolist() == [8.0]
    assert forecast(hourly(np.arange(48.0), wrap=True), np.array([1]), 1, "yesterday").tolist() == [26.0]


@given(
    how=st.sampled_from(sorted(FORECASTS)), now=st.integers(0, 95), ahead=st.integers(0, 200), seed=st.integers(0, 99)
)
def test_truncating_the_future_changes_no_forecast(how: str, now: int, ahead: int, seed: int) -> None:
    series = hourly(np.random.default_rng(seed).uniform(0.0, 500.0, 96))
    hours = np.array([now])

    known = series.truncated((now + 1) * HOUR_S)
    assert forecast(known, hours, ahead, how).tolist() == forecast(series, hours, ahead, how).tolist()


@pytest.mark.parametrize("how", sorted(FORECASTS))
@pytest.mark.parametrize("ahead", [1, 6, 24, 30])
def test_errors_are_those_of_a_plain_loop_over_reported_hours(how: str, ahead: int) -> None:
    values = np.random.default_rng(3).uniform(50.0, 500.0, 120)
    filled = np.zeros(120, dtype=np.bool_)
    filled[[40, 77]] = True
    series = HourlySeries(start_s=0.0, values=values, unit="g/kWh", filled=filled)

    found = forecast_error(series, ahead, how)

    off, truths = [], []
    for now in range(24, 120 - ahead):
        if not filled[now + ahead]:
            off.append(
                forecast(series.truncated((now + 1) * HOUR_S), np.array([now]), ahead, how)[0] - values[now + ahead]
            )
            truths.append(values[now + ahead])
    assert found.hours == len(off)
    assert found.mae == pytest.approx(np.mean(np.abs(off)))
    assert found.rmse == pytest.approx(np.sqrt(np.mean(np.square(off))))
    assert found.bias == pytest.approx(np.mean(off))
    assert found.mae_frac == pytest.approx(found.mae / np.mean(truths))


def test_a_day_that_repeats_is_forecast_without_error() -> None:
    series = hourly(np.tile(np.arange(24.0), 5))

    assert forecast_error(series, 7, "yesterday").mae == 0.0
    assert forecast_error(series, 7, "persistence").mae > 0.0


def test_recent_days_weigh_newer_days_more_and_keep_part_of_what_the_newest_hour_departs() -> None:
    # Four days of 100, then one of 200 and an hour of 230: usual 100 + 100 w, where w is the newest day's weight.
    series = hourly([100.0] * 96 + [200.0] * 24 + [230.0])
    weights = 0.85 ** np.arange(5)
    usual = 100.0 + 100.0 / weights.sum()

    found = [forecast(series, np.array([120]), ahead, "recent_days")[0] for ahead in (0, 1, 3)]

    assert found == pytest.approx([230.0, *(usual + (230.0 - usual) * 0.97**ahead for ahead in (1, 3))])
    assert forecast(hourly([3.0, 8.0]), np.array([1]), 2, "recent_days").tolist() == [8.0]


def test_unknown_forecasts_and_short_series_are_refused() -> None:
    with pytest.raises(BadInput, match="oracle"):
        forecast(hourly([1.0]), np.array([0]), 1, "oracle")
    with pytest.raises(BadInput, match="expected more than 24"):
        forecast_error(hourly([1.0] * 25), 1, "yesterday")
