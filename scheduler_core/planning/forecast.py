"""Forecasts of an hourly series that anyone can make: the newest value, or that of the same hour yesterday.

A forecast is a known hour whose value is repeated, so none can look ahead. Called by `slack` and `taut experiment`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray, IntArray

Forecast = Callable[[IntArray, int], IntArray]
"""`(hours that are now, hours ahead) -> the known hours` whose values are forecast, none later than now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastError:
    """How far forecasts lay from what came (reported hours only); the unit is the series'.

    `bias` is the mean of forecast minus truth; `mae_frac` the mean absolute error over the mean absolute truth.
    """

    hours: int
    mae: float
    rmse: float
    bias: float
    mae_frac: float


def persistence(hours: IntArray, ahead_h: int) -> IntArray:
    """Repeat the newest value, whichever hour is asked for."""
    del ahead_h
    return hours


def yesterday(hours: IntArray, ahead_h: int) -> IntArray:
    """Repeat the newest known value of the same hour of the day: yesterday's for the next 24 hours, and so on.

    >>> yesterday(np.array([100]), 3).tolist(), yesterday(np.array([100]), 24).tolist()
    ([79], [100])
    """
    return np.asarray(hours + ahead_h - HOURS_PER_DAY * -(-ahead_h // HOURS_PER_DAY), dtype=np.int64)


FORECASTS: Final[dict[str, Forecast]] = {"persistence": persistence, "yesterday": yesterday}


def forecast(series: HourlySeries, hours: IntArray, ahead_h: int, how: str) -> FloatArray:
    """Return what is expected `ahead_h` hours after each of the hours (n,), indices into the series.

    What holds in the running hour is known. Before a day is known, `yesterday` repeats the newest value; a series that
    wraps is known before its begin.

    Raises
    ------
    BadInput
        If there is no such forecast, or it is asked of the past.
    """
    if how not in FORECASTS or ahead_h < 0:
        raise BadInput(
            f"forecast: found {how!r} {ahead_h} h ahead, expected one of {', '.join(FORECASTS)} and at least 0 h"
        )
    known = FORECASTS[how](hours, ahead_h)
    known = known % len(series) if series.wrap else np.where(known < 0, hours, known)
    return np.asarray(series.values[known], dtype=np.float64)


def forecast_error(series: HourlySeries, ahead_h: int, how: str) -> ForecastError:
    """Judge a forecast over every hour of the series from which it can be made and judged.

    The first day is left out for every forecast, so that all are judged over the same hours; wrapping is not used.

    Raises
    ------
    BadInput
        If the series is too short to judge any.
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
