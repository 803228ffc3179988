"""95 % confidence intervals: of means and ratios over paired seeds, of event rates, and by resampling weeks.

References: Politis and Romano, "A circular block-resampling procedure for stationary data" (1992); Künsch, "The
jackknife and the bootstrap for general stationary observations" (1989), for `Resamples`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.stats import beta, t

from scheduler_core.types import FloatArray, IntArray

LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with the ends of its 95 % interval; NaN where the data do not determine them."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float, *, less: float = 0.0) -> "Interval":
        """Return the interval with `less` subtracted from the estimate and both ends, then multiplied by `factor`."""
        return Interval(
            value=(self.value - less) * factor, low=(self.low - less) * factor, high=(self.high - less) * factor
        )

    def columns(self, name: str) -> dict[str, float]:
        """Return the estimate as the column `name`, and the ends as `name_lo` and `name_hi`."""
        return {name: self.value, f"{name}_lo": self.low, f"{name}_hi": self.high}


NOTHING: Final = Interval(value=math.nan, low=math.nan, high=math.nan)


def mean(values: Sequence[float] | FloatArray) -> Interval:
    """Return the mean of one value per seed, with Student's interval; the interval of a single seed is NaN.

    >>> mean([1.0, 2.0, 3.0])
    Interval(value=2.0, low=-0.484..., high=4.484...)
    """
    found = np.asarray(values, dtype=np.float64)
    if not len(found) or np.isnan(found).any():
        return NOTHING
    return _around(float(found.mean()), found)


def ratio(over: Sequence[float] | FloatArray, under: Sequence[float] | FloatArray) -> Interval:
    """Return the mean of `over` divided by the mean of `under`, with its interval by the delta method.

    Both have one value per seed, in the same order. The interval comes from the spread of `over - ratio * under`, so
    an effect of a seed on both cancels out.

    >>> ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    Interval(value=2.0, low=2.0, high=2.0)
    """
    tops, bottoms = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    if not len(tops) or np.isnan(tops).any() or np.isnan(bottoms).any() or bottoms.mean() == 0.0:
        return NOTHING
    value = float(tops.mean() / bottoms.mean())
    return _around(value, (tops - value * bottoms) / bottoms.mean())


def ratio_difference(over: FloatArray, under: FloatArray, less_over: FloatArray, less_under: FloatArray) -> Interval:
    """Return `over` / `under` minus `less_over` / `less_under`, as ratios of means, with a delta-method interval.

    All four have one value per seed, in the same order.

    >>> ratio_difference(*(np.array(each) for each in ([3.0, 6.0], [1.0, 2.0], [2.0, 4.0], [2.0, 4.0])))
    Interval(value=2.0, low=2.0, high=2.0)
    """
    first, second = ratio(over, under), ratio(less_over, less_under)
    if math.isnan(first.value) or math.isnan(second.value):
        return NOTHING
    spread = (over - first.value * under) / under.mean()
    return _around(first.value - second.value, spread - (less_over - second.value * less_under) / less_under.mean())


def clopper_pearson(hits: int, of: int) -> Interval:
    """Return the share `hits` / `of` of independent trials, with its exact interval.

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
"""Days per resampled block: a week, because queues last longer than a day and differ by weekday."""

LEAST_BLOCKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resamples:
    """Block-bootstrap resamples of the calendar days of a log.

    `counts` (draws, days) is how often each day from `first_day` on is drawn in each resample. Blocks of seven
    consecutive days are drawn with replacement until they make up the length of the calendar; a block that passes the
    last day continues at the first. A job counts on the day of its submission. All simulation runs use the same
    resamples, so the effect of a busy week on two queue orders cancels out of their ratio.

    The log is simulated only once per queue order. So an interval shows how far a metric depends on single weeks, not
    how it would vary with other arrivals: drawing a week twice does not lengthen the queue.
    """

    first_day: int
    counts: FloatArray

    @classmethod
    def of(cls, days: IntArray, *, seed: int) -> Self:
        """Draw the resamples for the calendar from the first to the last of `days` (days since the epoch)."""
        first, last = int(days.min()), int(days.max())
        return cls(first_day=first, counts=day_counts(last - first + 1, rng=np.random.default_rng(seed)))

    def by_day(self, days: IntArray, values: FloatArray) -> FloatArray:
        """Return the sum of `values` over the jobs submitted on each calendar day (days,)."""
        sums = np.bincount(days - self.first_day, weights=values, minlength=self.counts.shape[1])
        return np.asarray(sums, dtype=np.float64)

    def drawn(self, sums: FloatArray) -> FloatArray:
        """Return the totals in each resample (k, draws) of k statistics given as sums by day (k, days)."""
        return np.asarray(sums @ self.counts.T, dtype=np.float64)

    def interval(self, values: FloatArray) -> tuple[float | None, float | None]:
        """Return the 95 % percentile interval of a statistic from its resampled values (draws,).

        Both ends are None if the calendar is shorter than two blocks, or if more than 2.5 % of the values are NaN.
        """
        tail = (1.0 - LEVEL) / 2.0
        if self.counts.shape[1] < LEAST_BLOCKS * BLOCK_DAYS or np.isnan(values).mean() > tail:
            return None, None
        low, high = np.nanquantile(values, [tail, 1.0 - tail])
        return float(low), float(high)


def day_counts(days: int, *, rng: np.random.Generator, draws: int = DRAWS, block: int = BLOCK_DAYS) -> FloatArray:
    """Return how often each day is drawn in each resample (draws, days), by drawing blocks of consecutive days.

    A block has `block` days; one that passes the last day continues at the first.

    >>> day_counts(21, rng=np.random.default_rng(0), draws=2).sum(axis=1)
    array([21., 21.])
    """
    blocks = math.ceil(days / block)
    first = rng.integers(days, size=(draws, blocks)) + days * np.arange(draws)[:, None]
    begun = np.bincount(first.ravel(), minlength=draws * days).reshape(draws, days)
    counts: FloatArray = sum(np.roll(begun, later, axis=1) for later in range(block)) + np.zeros((draws, days))
    return counts
