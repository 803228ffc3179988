"""Choose at a job's arrival when it enters the queue: within its slack, in an hour of low forecast carbon or price."""

from collections.abc import Callable
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

UNKNOWN_RUN_S: Final = HOUR_S
"""Run time in seconds assumed for a job without a prediction: one hour, the hour of its start (our choice)."""

LONGEST_RUN_S: Final = 366 * HOURS_PER_DAY * HOUR_S
"""Maximum run time in seconds; of a longer or endless run, only the first year counts."""

_BETTER: Final = 1e-9
"""Minimum relative gain for a later hour to count as better than an earlier one."""


def forecast(series: HourlySeries, hours: IntArray, ahead_h: int | IntArray) -> FloatArray:
    """Return the values expected `ahead_h` hours (one or n) after the current `hours`, indices into the series (n,).

    A forecast is the usual value of its hour plus a departure (ours). The usual value is the weighted mean of the same
    hour of the last `RECENT_DAYS` known days; newer days weigh more. The departure is the newest value minus its own
    usual value, times `KEPT` for each hour ahead. Only hours up to the current one are used; in a series that wraps,
    all earlier hours are known. The constants were chosen on January to June 2023 of eight zones.
    """
    departure = series.values[hours] - _usual(series, hours, hours - HOURS_PER_DAY)
    newest = hours + ahead_h - HOURS_PER_DAY * np.maximum(-(-ahead_h // HOURS_PER_DAY), 1)
    return np.asarray(_usual(series, hours, newest) + departure * KEPT**ahead_h, dtype=np.float64)


def _usual(series: HourlySeries, hours: IntArray, newest: IntArray) -> FloatArray:
    """Return the weighted means of the hours `newest` and the same hours of earlier days, or else current values."""
    known = newest[:, None] - HOURS_PER_DAY * np.arange(RECENT_DAYS)
    weights = DAY_WEIGHT ** np.arange(RECENT_DAYS) * (series.wrap | (known >= 0))
    total = weights.sum(axis=1)
    mean = (weights * series.values[known % len(series)]).sum(axis=1) / np.where(total > 0.0, total, 1.0)
    return np.where(total > 0.0, mean, series.values[hours])


def foreseen(series: HourlySeries, until_s: float) -> HourlySeries:
    """Return the known series extended to `until_s` (Unix time) by the forecast of a day, repeated.

    A forecast is at least 0, or the lowest known value if that is negative.

    >>> days = HourlySeries(start_s=0.0, values=np.tile(np.arange(24.0), 3)[:-1], unit="g/kWh")
    >>> foreseen(days, 74 * 3600.0).values[-3:].round(3).tolist()
    [23.0, 0.0, 1.0]
    """
    more = max(int(np.ceil((until_s - series.until_s) / HOUR_S)), 0)
    aheads = np.array([*range(1, HOURS_PER_DAY), 0])
    day = forecast(series, np.full(HOURS_PER_DAY, len(series) - 1), aheads)
    values = np.concatenate([series.values, np.resize(day.clip(min(series.values.min(), 0.0)), more)])
    return HourlySeries(start_s=series.start_s, values=values, unit=series.unit)


def released_s(
    arrive_s: FloatArray,
    slack_s: FloatArray,
    run_s: FloatArray,
    series: HourlySeries,
    start_ts: float,
    *,
    clairvoyant: bool = False,
) -> FloatArray:
    """Return when each job enters the queue, in seconds of the simulation: at its arrival, or at a later full hour.

    A job is released when the forecast mean of the series during its run is lowest, assuming that it starts at its
    release. In a tie the earliest time is taken. Each job's release is decided once, at its arrival (our choice).

    `arrive_s` and `slack_s` (n,) are arrival and longest delay of each job, in seconds of the simulation. `run_s` (n,)
    is its predicted run time in seconds; NaN means `UNKNOWN_RUN_S`. `start_ts` is the Unix time at second 0 of the
    simulation. With `clairvoyant`, the actual series replaces the forecast, which bounds what any forecast can save.

    Examples
    --------
    >>> day = HourlySeries(start_s=0.0, values=np.array([500.0, 400.0, 100.0] + [600.0] * 21), unit="g/kWh", wrap=True)
    >>> come, may_wait, runs = np.array([600.0, 600.0]), np.array([7200.0, 3600.0]), np.array([60.0, 60.0])
    >>> released_s(come, may_wait, runs, day, 0.0).tolist()
    [7200.0, 3600.0]
    """
    moments = start_ts + arrive_s
    begins = np.floor(moments / HOUR_S) * HOUR_S
    lasts_s = np.where(np.isnan(run_s), UNKNOWN_RUN_S, np.clip(run_s, 1.0, LONGEST_RUN_S))
    mean_of = _actual(series, begins) if clairvoyant else _expected(series, begins)
    best = mean_of(np.arange(len(begins)), moments - begins, lasts_s)
    release = arrive_s.copy()
    for hour in range(1, int(slack_s.max(initial=0.0) / HOUR_S) + 2):
        wait_s = begins + hour * HOUR_S - moments
        open_ = np.flatnonzero(wait_s <= slack_s)
        if not len(open_):
            break
        mean = mean_of(open_, np.full(len(open_), hour * HOUR_S), lasts_s[open_])
        better = mean < best[open_] - _BETTER * np.abs(best[open_])
        rows = open_[better]
        best[rows], release[rows] = mean[better], arrive_s[rows] + wait_s[rows]
    return release


_MeanOf = Callable[[IntArray, FloatArray, FloatArray], FloatArray]
"""Mean of the series during runs of the jobs `rows` (k,), by seconds from the hour of arrival to the start, and length.

The hour of arrival is the one in which the job arrives."""


def _actual(series: HourlySeries, begins: FloatArray) -> _MeanOf:
    def mean(rows: IntArray, from_s: FloatArray, lasts_s: FloatArray) -> FloatArray:
        starts = begins[rows] + from_s
        return np.asarray(series.integral(starts, starts + lasts_s) / (lasts_s / HOUR_S), dtype=np.float64)

    return mean


def _expected(series: HourlySeries, begins: FloatArray) -> _MeanOf:
    """Return the means by forecast: the 24 hours from each job's arrival, repeated every day after."""
    now = series.hour(begins)
    day = np.column_stack([forecast(series, now, ahead) for ahead in range(HOURS_PER_DAY)])
    sums = np.concatenate([np.zeros((len(begins), 1)), np.cumsum(day, axis=1)], axis=1)

    def mean(rows: IntArray, from_s: FloatArray, lasts_s: FloatArray) -> FloatArray:
        total = _through(sums[rows], (from_s + lasts_s) / HOUR_S) - _through(sums[rows], from_s / HOUR_S)
        return np.asarray(total / (lasts_s / HOUR_S), dtype=np.float64)

    return mean


def _through(sums: FloatArray, hours: FloatArray) -> FloatArray:
    """Return the integral of each job's repeated 24-hour series from 0 to `hours`, by its cumulative `sums` (n, 25)."""
    days = np.floor(hours / HOURS_PER_DAY)
    left = hours - days * HOURS_PER_DAY
    whole = np.minimum(left.astype(np.int64), HOURS_PER_DAY - 1)
    row = np.arange(len(hours))
    before = sums[row, whole]
    return np.asarray(days * sums[:, -1] + before + (left - whole) * (sums[row, whole + 1] - before), dtype=np.float64)
