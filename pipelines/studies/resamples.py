"""Intervals of replays: weeks of submissions drawn again and again, the same weeks for every order and source of sizes.

Sums over jobs are taken in `rows`, which calls this; nothing is simulated again.

References: Politis and Romano, "A circular block-resampling procedure for stationary data" (1992); Künsch, "The
jackknife and the bootstrap for general stationary observations" (1989).
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from scheduler_core.types import FloatArray, IntArray

LEVEL: Final = 0.95
DRAWS: Final = 2000
BLOCK_DAYS: Final = 7
"""A queue outlives the day and has weekdays: blocks are weeks, which may begin on any day."""

LEAST_BLOCKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Resamples:
    """How often each calendar day from `first_day` on is drawn in each resample (draws, days).

    Runs of seven consecutive days are drawn with replacement, the calendar taken as a circle, until they make as many
    days as there are. What became of a job stays with the day it was submitted on, in every run alike: figures of two
    orders are compared over the same days, and what a busy week does to both cancels out of their ratio.

    The outcomes are those of one queue over one log: intervals tell how far figures rest on single weeks, not what
    other arrivals would have come to. A week drawn twice is no longer queue.
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

        Nothing is said of a calendar shorter than two blocks, nor of what cannot be told (NaN) in more resamples than
        are left out at one end.
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
