"""Forecasts of an hourly series repeat known hours; jobs are released within their slack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.planning.release import forecast, released_s
from tests.pipelines.simulation.energy.sites import hourly


def test_recent_days_weigh_newer_days_more_and_keep_part_of_what_the_newest_hour_departs() -> None:
    # Four days of 100, then one of 200 and an hour of 230: usual 100 + 100 w, where w is the newest day's weight.
    series = hourly([100.0] * 96 + [200.0] * 24 + [230.0])
    weights = 0.85 ** np.arange(5)
    usual = 100.0 + 100.0 / weights.sum()

    found = forecast(series, np.array([0, 1, 3])).tolist()

    assert found == pytest.approx([230.0, *(usual + (230.0 - usual) * 0.97**ahead for ahead in (1, 3))])
    assert forecast(hourly([3.0, 8.0]), np.array([2])).tolist() == [8.0]


DAY = [300.0] * 10 + [100.0] * 4 + [400.0] * 10


def one(arrive_h: float, slack_h: float, run_h: float, days: list[float] = DAY * 4) -> float:
    times = (np.array([each * HOUR_S]) for each in (slack_h, run_h))
    return float(released_s(arrive_h * HOUR_S, *times, hourly(days, wrap=True))[0]) / HOUR_S


@pytest.mark.parametrize(
    ("arrive_h", "slack_h", "run_h", "released_h"),
    [
        (32.25, 6.0, 1.0, 34.0),  # the clean hours begin at 34
        (32.25, 1.7, 1.0, 32.25),  # too far off
        (32.25, 1.75, 1.0, 34.0),  # just within
        (35.5, 20.0, 1.0, 35.5),  # clean already
        (39.0, 6.0, 1.0, 48.0 - 9.0),  # 400 now, and 400 until 48 where 300 begins: not within 6 h
        (39.0, 9.0, 1.0, 48.0),
        (32.0, 6.0, 4.0, 34.0),
        (32.0, 12.0, 8.0, 32.0),  # two of 300 before are better than those of 400 after
        (32.0, 12.0, 24.0, 32.0),  # a whole day is the same from anywhere
        (30.0, 24.0, 30.0, 32.0),  # 24 h cost the same from anywhere; of the 6 h beyond, four are clean and two of 300
        (38.0, 36.0, 4.0, 58.0),  # the next clean hours lie 20 h off
    ],
)
def test_a_job_waits_for_the_cleanest_run_within_its_slack(
    arrive_h: float, slack_h: float, run_h: float, released_h: float
) -> None:
    assert one(arrive_h, slack_h, run_h) == pytest.approx(released_h)


@given(seed=st.integers(0, 500))
def test_no_job_waits_beyond_its_slack_or_gets_worse_hours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = hourly(rng.uniform(-50.0, 500.0, 24 * 20), wrap=True)
    now_s, slack_s = float(rng.uniform(0, 8e5)), rng.uniform(0, 4e4, 30) * rng.integers(0, 2, 30)
    run_s = rng.uniform(1.0, 2e5, 30)

    found = released_s(now_s, slack_s, run_s, series)

    now = np.full(30, now_s)
    assert ((found >= now) & (found <= now + slack_s + 1e-6)).all()
    assert (series.integral(found, found + run_s) <= series.integral(now, now + run_s) + 1e-6).all()
