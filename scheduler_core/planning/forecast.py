"""Simple forecasts of an hourly series: the newest value, or the value of the same hour on the day before.

A forecast repeats the value of a known hour, so it cannot use the future. Called by `release` and the studies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray, IntArray

__all__ = ["FORECASTS", "forecast", "forecast_error"]

Forecast = Callable[[IntArray, int], IntArray]
"""A function of (indices of the current hours, hours ahead) that returns indices of the known hours to repeat."""


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


def persistence(hours: IntArray, ahead_h: int) -> IntArray:
    """Return the current hours themselves: the forecast repeats the newest value for every hour ahead."""
    del ahead_h
    return hours


def yesterday(hours: IntArray, ahead_h: int) -> IntArray:
    """Return the newest known hours at the same hour of the day as the forecast hours.

    For 1 to 24 hours ahead they lie 24 hours before the forecast hour, for 25 to 48 hours ahead 48 hours, and so on.

    >>> yesterday(np.array([100]), 3).tolist(), yesterday(np.array([100]), 24).tolist()
    ([79], [100])
    """
    return np.asarray(hours + ahead_h - HOURS_PER_DAY * -(-ahead_h // HOURS_PER_DAY), dtype=np.int64)


FORECASTS: Final[dict[str, Forecast]] = {"persistence": persistence, "yesterday": yesterday}


def forecast(series: HourlySeries, hours: IntArray, ahead_h: int, how: str) -> FloatArray:
    """Return the values forecast for `ahead_h` hours after each of the current `hours`, indices into the series (n,).

    The value of the current hour is known. Where `yesterday` would need an hour before the series, the newest value is
    repeated instead. In a series that wraps, all earlier hours are known.

    Raises
    ------
    BadInput
        If the forecast is unknown, or `ahead_h` is negative.
    """
    if how not in FORECASTS or ahead_h < 0:
        raise BadInput(
            f"forecast: found {how!r} {ahead_h} h ahead, expected one of {', '.join(FORECASTS)} and at least 0 h"
        )
    known = FORECASTS[how](hours, ahead_h)
    known = known % len(series) if series.wrap else np.where(known < 0, hours, known)
    return np.asarray(series.values[known], dtype=np.float64)


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
