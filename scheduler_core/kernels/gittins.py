"""Remaining run time by the Gittins index of a prediction, and the levels of a multilevel feedback queue."""

import math
from functools import cache
from typing import Final

import numpy as np

from scheduler_core.types import FloatArray, IntArray

__all__ = ["AGES", "RESTARTS", "level_of", "remaining_of", "remaining_table", "spreads_of"]

SPREADS: Final[FloatArray] = 2.0 ** np.arange(0.0, 8.5, 0.5)
"""Ratios of p90 to p50 for which the table has a row; a ratio takes the row of the smallest that is not below it.

The first row, p90 = p50, is for an exact prediction.
"""

UNKNOWN_SPREAD: Final = 8.0
"""Ratio of p90 to p50 that is assumed if p90 is unknown."""

AGES: Final[FloatArray] = np.concatenate([[0.0], 2.0 ** np.arange(-8.0, 8.25, 0.25)])
"""Attained run times, in units of the predicted p50, for which the table has a column."""

Z90: Final = 1.2815515655446004
"""The p90 of the standard normal distribution."""

BROAD_SHARE: Final = 0.5
BROAD_SIGMA: Final = 5.0
"""Share of jobs whose run time is taken to be spread far beyond p90, and its standard deviation in log time.

Run times have heavier tails than a log-normal distribution with the predicted p50 and p90. Both numbers were chosen by
replaying Philly's jobs of October 2017 (docs/studies/replay.md).
"""

RESTARTS: Final = 4.0
"""Number of restarts that one preemption is taken to cost: many jobs are preempted repeatedly. Chosen likewise."""

LEAST_SURVIVAL: Final = 1e-9
SHORTEST_S: Final = 1.0
"""Smallest p50 in seconds; shorter predictions are rounded up to it."""


@cache
def remaining_table() -> FloatArray:
    """Return the reciprocal of the Gittins index, in units of p50; shape (`SPREADS`, `AGES`).

    The Gittins index of a job of age a is the largest ratio, over all d, of the probability to end within d more
    seconds to the expected run time in them. Its reciprocal is a time: for an exact prediction (the first row), the
    remaining run time. Otherwise the run time is a mixture of two log-normal distributions around p50: one with the
    predicted p90, and for `BROAD_SHARE` of jobs one with `BROAD_SIGMA`. The shortest d is about a millionth of p50.

    References
    ----------
    Gittins: Bandit Processes and Dynamic Allocation Indices, J. R. Statist. Soc. B 1979; Aalto, Ayesta, Righter: On the
    Gittins index in the M/G/1 queue, Queueing Systems 2009.
    """
    rows = [np.maximum(1.0 - AGES, 0.0)]
    rows += [_row(math.log(float(ratio)) / Z90) for ratio in SPREADS[1:]]
    table = np.array(rows)
    table.setflags(write=False)
    return table


def _row(sigma: float) -> FloatArray:
    """Return the row of the table for a prediction whose log time has the standard deviation `sigma`."""
    times = np.unique(np.concatenate([AGES, np.exp(np.arange(-14.0, 14.0 + 8.0 * sigma, 0.02))]))
    survival = (1.0 - BROAD_SHARE) * _survival(times, sigma) + BROAD_SHARE * _survival(times, BROAD_SIGMA)
    spent = np.concatenate([[0.0], np.cumsum(np.diff(times) * (survival[1:] + survival[:-1]) / 2.0)])
    row = np.empty(len(AGES))
    for at, place in enumerate(np.searchsorted(times, AGES).tolist()):
        with np.errstate(divide="ignore", invalid="ignore"):
            reciprocals = (spent[place + 1 :] - spent[place]) / (survival[place] - survival[place + 1 :])
        # Where almost no job is that old the numbers are noise: assume growth in proportion to the age.
        known = survival[place] > LEAST_SURVIVAL
        row[at] = np.nanmin(reciprocals) if known else row[at - 1] * AGES[at] / AGES[at - 1]
    return row


def _survival(times: FloatArray, sigma: float) -> FloatArray:
    """Return the share of log-normal run times with median 1 that are longer than each of `times` (n,)."""
    with np.errstate(divide="ignore"):
        z = np.log(times) / (sigma * math.sqrt(2.0))
    return 0.5 * np.array([math.erfc(value) for value in z.tolist()])


def remaining_of(table: FloatArray, ages: FloatArray, spread: int, p50_s: float, attained_s: float) -> float:
    """Return the reciprocal of the Gittins index of a job, in seconds.

    It is linear between the ages of row `spread` of the table, and in proportion to the age beyond the last. Both
    engines run these lines, so they only add, multiply, divide and compare.

    >>> remaining_of(remaining_table(), AGES, 0, 100.0, 30.0)
    70.0
    """
    p50_s = max(p50_s, SHORTEST_S)
    age = attained_s / p50_s
    last = len(ages) - 1
    if age >= ages[last]:
        return float(p50_s * table[spread, last] * (age / ages[last]))
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if ages[middle] <= age:
            low = middle
        else:
            high = middle
    share = (age - ages[low]) / (ages[high] - ages[low])
    return float(p50_s * (table[spread, low] + (table[spread, high] - table[spread, low]) * share))


def spreads_of(p50_s: FloatArray, p90_s: FloatArray) -> IntArray:
    """Return the rows of the table for predictions (n,); an unknown or infinite p90 counts as `UNKNOWN_SPREAD`.

    >>> spreads_of(np.full(5, 100.0), np.array([90.0, 100.0, 101.0, 200.0, 1e9])).tolist()
    [0, 0, 1, 2, 16]
    """
    known = np.isfinite(p50_s) & np.isfinite(p90_s)
    ratios = np.full(len(p50_s), UNKNOWN_SPREAD)
    np.divide(p90_s, np.maximum(p50_s, SHORTEST_S), out=ratios, where=known)
    return np.minimum(np.searchsorted(SPREADS, ratios), len(SPREADS) - 1).astype(np.int64)


FIRST_LEVEL_S: Final = 3600.0
LEVEL_FACTOR: Final = 4.0
"""The first level of the feedback queue ends at so many seconds, each later one at this multiple of the former."""

MOST_LEVELS: Final = 16


def level_of(run_s: float) -> float:
    """Return the level of the feedback queue, from 0, for an attained or predicted run time.

    >>> [level_of(run_s) for run_s in (0.0, 3600.0, 14_400.0, math.inf)]
    [0.0, 1.0, 2.0, 16.0]
    """
    level, end_s = 0, FIRST_LEVEL_S
    while run_s >= end_s and level < MOST_LEVELS:
        level += 1
        end_s *= LEVEL_FACTOR
    return float(level)
