"""Simple forecasts of an hourly series: the newest value, the same hour of the day before, or of recent days.

A forecast uses only hours up to the current one. Called by `release` and the studies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray, IntArray

__all__ = ["FORECASTS", "forecast", "forecast_error"]

Forecast = Callable[[HourlySeries, IntArray, int], FloatArray]
"""A function of (series, indices of the current hours (n,), hours ahead) that returns the forecast values (n,)."""

RECENT_DAYS: Final = 14
DAY_WEIGHT: Final = 0.85
"""Weight of a day relative to the day after it."""
KEPT: Final = 0.97
"""Part of a departure from the usual value that is left after an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastError:
    """Errors of a forecast on the reported hours, in the unit of the series.

    `bias` is the mean of forecast minus actual value. `mae_frac` is the mean absolute error divided by the mean
    absolute value.
    """

    hours: int
    mae: float
    rmse: float
    bias: float
    mae_frac: float


def persistence(series: HourlySeries, hours: IntArray, ahead_h: int) -> FloatArray:
    """Return the newest values, which are repeated for every hour ahead."""
    del ahead_h
    return series.values[hours]


def yesterday(series: HourlySeries, hours: IntArray, ahead_h: int) -> FloatArray:
    """Return the newest known values at the same hour of the day as the forecast hours.

    For 1 to 24 hours ahead they lie 24 hours before the forecast hour, for 25 to 48 hours ahead 48 hours, and so on.
    Where that is before the series, the newest value is repeated instead.
    """
    known = hours + ahead_h - HOURS_PER_DAY * -(-ahead_h // HOURS_PER_DAY)
    known = known % len(series) if series.wrap else np.where(known < 0, hours, known)
    return series.values[known]


def recent_days(series: HourlySeries, hours: IntArray, ahead_h: int) -> FloatArray:
    """Return the usual values of the forecast hours, plus what is left of the newest values' departure (ours).

    The usual value of an hour is the mean of the same hour of the last `RECENT_DAYS` known days, newer ones weighing
    more. The newest value's departure from its own usual value fades by `KEPT` each hour. All constants were chosen on
    January to June 2023 of eight zones, by the starts chosen within a slack.
    """
    departure = series.values[hours] - _usual(series, hours, hours - HOURS_PER_DAY)
    newest = hours + ahead_h - HOURS_PER_DAY * max(-(-ahead_h // HOURS_PER_DAY), 1)
    return _usual(series, hours, newest) + departure * KEPT**ahead_h


def _usual(series: HourlySeries, hours: IntArray, newest: IntArray) -> FloatArray:
    """Return the weighted means of the hours `newest` and the same hours of earlier days; the current ones if none."""
    known = newest[:, None] - HOURS_PER_DAY * np.arange(RECENT_DAYS)
    weights = DAY_WEIGHT ** np.arange(RECENT_DAYS) * (series.wrap | (known >= 0))
    total = weights.sum(axis=1)
    mean = (weights * series.values[known % len(series)]).sum(axis=1) / np.where(total > 0.0, total, 1.0)
    return np.where(total > 0.0, mean, series.values[hours])


FORECASTS: Final[dict[str, Forecast]] = {
    "persistence": persistence,
    "yesterday": yesterday,
    "recent_days": recent_days,
}


def forecast(series: HourlySeries, hours: IntArray, ahead_h: int, how: str) -> FloatArray:
    """Return the values forecast for `ahead_h` hours after each of the current `hours`, indices into the series (n,).

    The value of the current hour is known. In a series that wraps, all earlier hours are known.

    >>> ramp = HourlySeries(start_s=0.0, values=np.arange(100.0), unit="g/kWh")
    >>> [forecast(ramp, np.array([99]), 3, how).tolist() for how in ("persistence", "yesterday")]
    [[99.0], [78.0]]

    Raises
    ------
    BadInput
        If the forecast is unknown, or `ahead_h` is negative.
    """
    if how not in FORECASTS or ahead_h < 0:
        raise BadInput(
            f"forecast: found {how!r} {ahead_h} h ahead, expected one of {', '.join(FORECASTS)} and at least 0 h"
        )
    return np.asarray(FORECASTS[how](series, hours, ahead_h), dtype=np.float64)


def forecast_error(series: HourlySeries, ahead_h: int, how: str) -> ForecastError:
    """Return the error of a forecast on every hour of the series that has a reported value.

    The first day is left out for every forecast, so that all forecasts are tested on the same hours. A series that
    wraps is treated as one that does not.

    Raises
    ------
    BadInput
        If the series is too short.
    """
    hours = np.arange(HOURS_PER_DAY, len(series) - ahead_h, dtype=np.int64)
    hours = hours[~series.filled[hours + ahead_h]]
    if not len(hours):
        raise BadInput(f"forecast: found {len(series)} hours, expected more than {HOURS_PER_DAY} + {ahead_h}")
    known = series if not series.wrap else HourlySeries(start_s=series.start_s, values=series.values, unit=series.unit)
    truth = series.values[hours + ahead_h]
    off = forecast(known, hours, ahead_h, how) - truth
    mae, size = float(np.abs(off).mean()), float(np.abs(truth).mean())
    return ForecastError(
        hours=len(hours),
        mae=mae,
        rmse=float(np.sqrt((off**2).mean())),
        bias=float(off.mean()),
        mae_frac=mae / size if size else float("nan"),
    )
