"""Intervals of 95 %: means and ratios of means over paired seeds, and the rate of an event among rows.

Pure functions on arrays; which figures are compared is `claims`' and `goal`'s matter, who call this.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import beta, t

from scheduler_core.types import FloatArray

LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate, and where its 95 % interval begins and ends; NaN where nothing can be said."""

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

    The spread is that of `over - ratio * under`: what the two have in common under a seed cancels out.

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
