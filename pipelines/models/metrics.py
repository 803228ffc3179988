"""Metrics of run-time forecasts: pinball loss of log run time, errors in hours, coverage.

Reference: Koenker and Bassett, "Regression Quantiles", Econometrica 46 (1978), for the pinball loss.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray"]

FloatArray = npt.NDArray[np.float64]

QUANTILES: Final = (0.5, 0.9)
"""Quantile levels of every run-time model and baseline."""

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted p50 and p90 of log run time (natural log of seconds), one pair per job (n,); never NaN."""

    p50: FloatArray
    p90: FloatArray

    def take(self, rows: npt.NDArray[np.int64]) -> "Forecast":
        """Return the forecasts with these row numbers, in this order."""
        return Forecast(p50=self.p50[rows], p90=self.p90[rows])


def log_run(run_s: FloatArray) -> FloatArray:
    """Return log(max(run_s, 1)): a job of zero seconds counts as one second."""
    return np.log(np.maximum(run_s, 1.0))


def pinball_rows(log_y: FloatArray, log_q: FloatArray, tau: float) -> FloatArray:
    """Return the pinball loss of each row: tau·(y - q) where y >= q, else (1 - tau)·(q - y)."""
    gap = log_y - log_q
    return np.maximum(tau * gap, (tau - 1.0) * gap)


def pinball(log_y: FloatArray, log_q: FloatArray, tau: float) -> float:
    """Return the mean pinball loss: (1/n) Σ max(tau·(y - q), (tau - 1)·(y - q))."""
    return float(np.mean(pinball_rows(log_y, log_q, tau)))


def primary_rows(log_y: FloatArray, forecast: Forecast) -> FloatArray:
    """Return the primary loss of each row: the mean of the pinball losses of p50 and p90."""
    p50, p90 = QUANTILES
    return 0.5 * (pinball_rows(log_y, forecast.p50, p50) + pinball_rows(log_y, forecast.p90, p90))


def mae_h(run_s: FloatArray, predicted_s: FloatArray) -> float:
    """Return the mean absolute error (1/n) Σ|ŷ - y|, in hours."""
    return float(np.mean(np.abs(predicted_s - run_s)) / _SECONDS_PER_HOUR)


def wmape(run_s: FloatArray, predicted_s: FloatArray) -> float:
    """Return the weighted absolute percentage error Σ|ŷ - y| / Σy, or NaN if all run times are zero."""
    total = float(np.sum(run_s))
    return float(np.sum(np.abs(predicted_s - run_s))) / total if total > 0 else float("nan")


def score(run_s: FloatArray, forecast: Forecast) -> dict[str, float]:
    """Return every metric of a forecast, by its column name in the evaluation table.

    `coverage_p90` is the share of rows with y <= p90, `within_2x` the share with y/2 <= p50 <= 2y.
    """
    log_y = log_run(run_s)
    predicted_s = np.exp(forecast.p50)
    return {
        "mae_h": mae_h(run_s, predicted_s),
        "wmape": wmape(run_s, predicted_s),
        "pinball": float(np.mean(primary_rows(log_y, forecast))),
        "pinball_p50": pinball(log_y, forecast.p50, QUANTILES[0]),
        "coverage_p90": float(np.mean(log_y <= forecast.p90)),
        # A factor of exactly 2 counts as within, however the logarithms round.
        "within_2x": float(np.mean(np.abs(log_y - forecast.p50) <= np.log(2.0) + 1e-9)),
    }
