"""Intervals of 95 %: of means and ratios over paired seeds, of the rate of an event, and over resampled weeks.

Pure functions; which figures are compared is decided by the studies that call this.

References: Politis and Romano, "A circular block-resampling procedure for stationary data" (1992); Künsch, "The
jackknife and the bootstrap for general stationary observations" (1989), for `Resamples`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import polars as pl
from scipy.stats import beta, t

from scheduler_core.types import FloatArray, IntArray

LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate, and where its 95 % interval begins and ends; NaN where the data give none."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float, *, less: float = 0.0) -> "Interval":
        """Return (each - less) * factor."""
        return Interval(
            value=(self.value - less) * factor, low=(self.low - less) * factor, high=(self.high - less) * factor
        )


NOTHING: Final = Interval(value=math.nan, low=math.nan, high=math.nan)


def mean(values: Sequence[float] | FloatArray) -> Interval:
    """Return the mean of one value per seed, with Student's interval; of one seed alone there is no interval.

    >>> mean([1.0, 2.0, 3.0])
    Interval(value=2.0, low=-0.484..., high=4.484...)
    """
    found = np.asarray(values, dtype=np.float64)
    if not len(found) or np.isnan(found).any():
        return NOTHING
    return _around(float(found.mean()), found)


def ratio(over: Sequence[float] | FloatArray, under: Sequence[float] | FloatArray) -> Interval:
    """Return the mean of `over` by the mean of `under`, one pair per seed, with the interval of the delta method.

    The spread is that of `over - ratio * under`: effects that both share under a seed cancel out.

    >>> ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    Interval(value=2.0, low=2.0, high=2.0)
    """
    tops, bottoms = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    if not len(tops) or np.isnan(tops).any() or np.isnan(bottoms).any() or bottoms.mean() == 0.0:
        return NOTHING
    value = float(tops.mean() / bottoms.mean())
    return _around(value, (tops - value * bottoms) / bottoms.mean())


def ratio_difference(over: FloatArray, under: FloatArray, less_over: FloatArray, less_under: FloatArray) -> Interval:
    """Return one ratio of means less another, the four paired by seed, with the interval of the delta method.

    >>> ratio_difference(*(np.array(each) for each in ([3.0, 6.0], [1.0, 2.0], [2.0, 4.0], [2.0, 4.0])))
    Interval(value=2.0, low=2.0, high=2.0)
    """
    first, second = ratio(over, under), ratio(less_over, less_under)
    if math.isnan(first.value) or math.isnan(second.value):
        return NOTHING
    spread = (over - first.value * under) / under.mean()
    return _around(first.value - second.value, spread - (less_over - second.value * less_under) / less_under.mean())


def clopper_pearson(hits: int, of: int) -> Interval:
    """Return the rate of `hits` among `of` independent rows, with the exact interval.

    References
    ----------
    Clopper, Pearson: The use of confidence or fiducial limits illustrated in the case of the binomial (1934).

    >>> round(clopper_pearson(0, 583).high, 4)
    0.0063
    """
    if of == 0:
        return NOTHING
    tail = (1.0 - LEVEL) / 2.0
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(1.0 - tail, hits + 1, of - hits))
    return Interval(value=hits / of, low=low, high=high)


def _around(value: float, spread: FloatArray) -> Interval:
    if len(spread) < 2:
        return Interval(value=value, low=math.nan, high=math.nan)
    half = float(t.ppf(0.5 + LEVEL / 2.0, len(spread) - 1) * spread.std(ddof=1) / math.sqrt(len(spread)))
    return Interval(value=value, low=value - half, high=value + half)


DRAWS: Final = 2000
BLOCK_DAYS: Final = 7
"""A queue outlives the day and has weekdays: blocks are weeks, which may begin on any day."""

LEAST_BLOCKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resamples:
    """Number of times each calendar day from `first_day` on is drawn in each resample (draws, days).

    Runs of seven consecutive days are drawn with replacement, the calendar taken as a circle, until they make as many
    days as the calendar has. A job counts on the day of its submission, in every run: two orders are compared over the
    same days, and the effect of a busy week on both cancels out of their ratio.

    All outcomes are of one simulated queue over one log: an interval shows how far a figure depends on single weeks,
    not how it would vary with other arrivals. Drawing a week twice does not lengthen the queue.
    """

    first_day: int
    counts: FloatArray

    @classmethod
    def of(cls, days: IntArray, *, seed: int) -> Self:
        """Draw for the calendar that holds these days of submission, numbered since the epoch."""
        first, last = int(days.min()), int(days.max())
        return cls(first_day=first, counts=day_counts(last - first + 1, rng=np.random.default_rng(seed)))

    def by_day(self, days: IntArray, values: FloatArray) -> FloatArray:
        """Return the sum of `values` over the jobs of each calendar day (days,)."""
        sums = np.bincount(days - self.first_day, weights=values, minlength=self.counts.shape[1])
        return np.asarray(sums, dtype=np.float64)

    def drawn(self, sums: FloatArray) -> FloatArray:
        """Return the totals of sums by day (k, days) in each resample (k, draws)."""
        return np.asarray(sums @ self.counts.T, dtype=np.float64)

    def interval(self, values: FloatArray) -> tuple[float | None, float | None]:
        """Return where the middle 95 % of a statistic's resampled values (draws,) begin and end.

        Both are None for a calendar shorter than two blocks, and for a statistic that is NaN in more resamples than are
        cut off at one end.
        """
        tail = (1.0 - LEVEL) / 2.0
        if self.counts.shape[1] < LEAST_BLOCKS * BLOCK_DAYS or np.isnan(values).mean() > tail:
            return None, None
        low, high = np.nanquantile(values, [tail, 1.0 - tail])
        return float(low), float(high)


def day_counts(days: int, *, rng: np.random.Generator, draws: int = DRAWS, block: int = BLOCK_DAYS) -> FloatArray:
    """Return how often each of `days` days is drawn (draws, days) when runs of `block` days are, on a circle.

    >>> day_counts(21, rng=np.random.default_rng(0), draws=2).sum(axis=1)
    array([21., 21.])
    """
    blocks = math.ceil(days / block)
    first = rng.integers(days, size=(draws, blocks)) + days * np.arange(draws)[:, None]
    begun = np.bincount(first.ravel(), minlength=draws * days).reshape(draws, days)
    counts: FloatArray = sum(np.roll(begun, later, axis=1) for later in range(block)) + np.zeros((draws, days))
    return counts


def spreads(runs: pl.DataFrame, keys: Sequence[str], value: str) -> pl.DataFrame:
    """Return a row per group: `mean`, and `low` and `high`, null of one run alone.

    >>> runs = pl.DataFrame({"arm": ["a", "a"], "wait_s": [1.0, 3.0]})
    >>> spreads(runs, ["arm"], "wait_s").rows()
    [('a', 2.0, -10.7..., 14.7...)]
    """
    found = []
    for key, members in runs.group_by(keys, maintain_order=True):
        each = mean(members[value].to_numpy())
        found.append({**dict(zip(keys, key, strict=True)), "mean": each.value, "low": each.low, "high": each.high})
    return pl.DataFrame(found, infer_schema_length=None).with_columns(pl.col("mean", "low", "high").fill_nan(None))
