"""Choose when waiting jobs enter the queue: within their slack, in an hour of low forecast carbon or price."""

from typing import Final

import numpy as np

from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray, IntArray

__all__ = ["forecast", "foreseen", "released_s"]

RECENT_DAYS: Final = 14
DAY_WEIGHT: Final = 0.85
"""Weight of a day relative to the day after it."""
KEPT: Final = 0.97
"""Factor by which a departure from the usual value shrinks each hour."""

_BETTER: Final = 1e-9
"""Minimum relative gain for a later hour to count as better than an earlier one."""


def forecast(series: HourlySeries, ahead_h: IntArray) -> FloatArray:
    """Return the values expected `ahead_h` hours (n,), less than a day, after the last hour of the series (n,).

    A forecast is the usual value of its hour plus a departure (ours). The usual value is the weighted mean of the same
    hour of the last `RECENT_DAYS` known days; newer days weigh more. The departure is the last value minus its own
    usual value, times `KEPT` for each hour ahead. The constants were chosen on January to June 2023 of eight zones.
    """
    departure = series.values[-1] - _usual(series, np.zeros(1, dtype=np.int64))
    return np.asarray(_usual(series, ahead_h) + departure * KEPT**ahead_h, dtype=np.float64)


def _usual(series: HourlySeries, ahead_h: IntArray) -> FloatArray:
    """Return the weighted means of the hours a day before those `ahead_h`, and earlier days; the last value if none."""
    known = len(series) - 1 + ahead_h[:, None] - HOURS_PER_DAY * np.arange(1, RECENT_DAYS + 1)
    weights = DAY_WEIGHT ** np.arange(RECENT_DAYS) * (known >= 0)
    total = weights.sum(axis=1)
    mean = (weights * series.values[known % len(series)]).sum(axis=1) / np.where(total > 0.0, total, 1.0)
    return np.asarray(np.where(total > 0.0, mean, series.values[-1]), dtype=np.float64)


def foreseen(series: HourlySeries, until_s: float) -> HourlySeries:
    """Return the known series extended to `until_s` (Unix time) by the forecast of a day, repeated.

    A forecast is at least 0, or the lowest known value if that is negative.

    >>> days = HourlySeries(start_s=0.0, values=np.tile(np.arange(24.0), 3)[:-1], unit="g/kWh")
    >>> foreseen(days, 74 * 3600.0).values[-3:].round(3).tolist()
    [23.0, 0.0, 1.0]
    """
    more = max(int(np.ceil((until_s - series.until_s) / HOUR_S)), 0)
    day = forecast(series, np.array([*range(1, HOURS_PER_DAY), 0]))
    values = np.concatenate([series.values, np.resize(day.clip(min(series.values.min(), 0.0)), more)])
    return HourlySeries(start_s=series.start_s, values=values, unit=series.unit)


def released_s(now_s: float, slack_s: FloatArray, run_s: FloatArray, series: HourlySeries) -> FloatArray:
    """Return when each job enters the queue (n,): now, or at a later full hour; all are Unix times in seconds.

    A job is released when the mean of the series during its run is lowest, assuming that it starts at its release. In a
    tie the earliest time is taken. `slack_s` and `run_s` (n,) are longest delay and predicted run time of each job, in
    seconds. The series must last until all jobs have ended.

    Examples
    --------
    >>> day = HourlySeries(start_s=0.0, values=np.array([500.0, 400.0, 100.0] + [600.0] * 21), unit="g/kWh")
    >>> released_s(600.0, np.array([7200.0, 3600.0]), np.array([60.0, 60.0]), day).tolist()
    [7200.0, 3600.0]
    """
    release = np.full(len(run_s), now_s)
    best = series.integral(release, release + run_s) / run_s
    hours = np.arange(np.floor(now_s / HOUR_S) + 1.0, np.floor((now_s + slack_s.max(initial=0.0)) / HOUR_S) + 1.0)
    for start_s in hours * HOUR_S:
        open_ = np.flatnonzero(start_s - now_s <= slack_s)
        starts = np.full(len(open_), start_s)
        mean = series.integral(starts, starts + run_s[open_]) / run_s[open_]
        better = mean < best[open_] - _BETTER * np.abs(best[open_])
        best[open_[better]], release[open_[better]] = mean[better], start_s
    return release
