"""Intervals that respect the day: a paired block bootstrap over calendar days of submission.

No metrics are defined here and nothing is fitted; rows of one day stay together because they fail together.
Called by `training.evaluate`.

References: Davison and Hinkley, "Bootstrap Methods and their Application" (1997), chapter 8 (block resampling).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.models.metrics import FloatArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A statistic on all rows, and the range that holds 95 % of its resampled values."""

    value: float
    lo: float
    hi: float


def day_blocks(submit_ts: pl.Series) -> IntArray:
    """Return the UTC calendar day of submission of each row, numbered 0..k-1 (n,)."""
    days = submit_ts.dt.epoch("d").to_numpy()
    return np.unique(days, return_inverse=True)[1].astype(np.int64)


def day_draws(days: int, *, seed: int, draws: int = 1000) -> FloatArray:
    """Return how often each day is drawn in each resample (draws, days); each row sums to `days`."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(days, np.full(days, 1.0 / days), size=draws).astype(np.float64)


def day_sums(blocks: IntArray, rows: FloatArray) -> FloatArray:
    """Return the sum of `rows` over each day (days,)."""
    return np.bincount(blocks, weights=rows).astype(np.float64)


def mean_interval(blocks: IntArray, rows: FloatArray, draws: FloatArray) -> Interval:
    """Return the mean of `rows` with its interval; pairs are compared by passing row-wise differences."""
    return ratio_interval(blocks, rows, np.ones_like(rows), draws)


def ratio_interval(blocks: IntArray, top: FloatArray, bottom: FloatArray, draws: FloatArray) -> Interval:
    """Return Σtop / Σbottom with its interval, both sums over the same resampled days.

    With one day only there is nothing to resample and the interval is the whole line.
    """
    tops, bottoms = day_sums(blocks, top), day_sums(blocks, bottom)
    total = float(bottoms.sum())
    value = float(tops.sum()) / total if total > 0 else float("nan")
    if len(tops) < 2:
        return Interval(value=value, lo=float("-inf"), hi=float("inf"))
    below = draws @ bottoms
    drawn = (draws @ tops)[below > 0] / below[below > 0]
    lo, hi = np.percentile(drawn, [2.5, 97.5])
    return Interval(value=value, lo=float(lo), hi=float(hi))
