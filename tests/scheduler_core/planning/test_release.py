"""Forecasts of an hourly series: they repeat known hours and never see ahead. Releases are tested with sites."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.planning.release import forecast
from tests.pipelines.simulation.energy.sites import hourly


@given(now=st.integers(0, 95), ahead=st.integers(0, 200), seed=st.integers(0, 99))
def test_truncating_the_future_changes_no_forecast(now: int, ahead: int, seed: int) -> None:
    series = hourly(np.random.default_rng(seed).uniform(0.0, 500.0, 96))
    hours = np.array([now])

    known = series.truncated((now + 1) * HOUR_S)
    assert forecast(known, hours, ahead).tolist() == forecast(series, hours, ahead).tolist()


def test_recent_days_weigh_newer_days_more_and_keep_part_of_what_the_newest_hour_departs() -> None:
    # Four days of 100, then one of 200 and an hour of 230: usual 100 + 100 w, where w is the newest day's weight.
    series = hourly([100.0] * 96 + [200.0] * 24 + [230.0])
    weights = 0.85 ** np.arange(5)
    usual = 100.0 + 100.0 / weights.sum()

    found = [forecast(series, np.array([120]), ahead)[0] for ahead in (0, 1, 3)]

    assert found == pytest.approx([230.0, *(usual + (230.0 - usual) * 0.97**ahead for ahead in (1, 3))])
    assert forecast(hourly([3.0, 8.0]), np.array([1]), 2).tolist() == [8.0]
