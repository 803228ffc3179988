"""Metrics against figures worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.models import metrics
from pipelines.models.metrics import Forecast

HOUR = 3600.0


def test_run_times_below_a_second_count_as_one_second() -> None:
    assert metrics.log_run(np.array([0.0, 0.3, 1.0, np.e])).tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("y", "q", "tau", "loss"),
    [(2.0, 1.0, 0.9, 0.9), (1.0, 2.0, 0.9, 0.1), (2.0, 1.0, 0.5, 0.5), (1.0, 2.0, 0.5, 0.5), (1.0, 1.0, 0.9, 0.0)],
)
def test_pinball_charges_tau_below_and_one_minus_tau_above(y: float, q: float, tau: float, loss: float) -> None:
    assert metrics.pinball(np.array([y]), np.array([q]), tau) == pytest.approx(loss)


def test_a_forecast_is_scored_as_by_hand() -> None:
    # run 1 h, 2 h, 100 h; p50 2 h, 2 h, 10 h; p90 2 h, 4 h, 20 h
    run_s = np.array([1.0, 2.0, 100.0]) * HOUR
    forecast = Forecast(p50=np.log(np.array([2.0, 2.0, 10.0]) * HOUR), p90=np.log(np.array([2.0, 4.0, 20.0]) * HOUR))

    scores = metrics.score(run_s, forecast)

    ln2, ln10, ln5 = np.log(2), np.log(10), np.log(5)
    p50 = 0.5 * (ln2 + 0 + ln10) / 3
    p90 = (0.1 * ln2 + 0.1 * ln2 + 0.9 * ln5) / 3
    assert scores == pytest.approx(
        {
            "mae_h": (1 + 0 + 90) / 3,
            "wmape": 91 / 103,
            "pinball": (p50 + p90) / 2,
            "pinball_p50": p50,
            "coverage_p90": 2 / 3,
            "within_2x": 2 / 3,
        }
    )


def test_wmape_of_jobs_that_all_ran_no_time_is_not_a_number() -> None:
    assert np.isnan(metrics.wmape(np.zeros(3), np.ones(3)))


@given(st.lists(st.floats(-5, 15), min_size=1, max_size=40), st.sampled_from([0.5, 0.9]))
def test_no_constant_beats_the_empirical_quantile(values: list[float], tau: float) -> None:
    y = np.array(values)
    best = metrics.pinball(y, np.full_like(y, np.quantile(y, tau, method="inverted_cdf")), tau)

    others = [metrics.pinball(y, np.full_like(y, c), tau) for c in np.linspace(-6, 16, 45)]

    assert best <= min(others) + 1e-9
