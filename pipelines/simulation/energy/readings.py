"""Readings at odd moments to one value an hour: merged where there are several, filled from before where there is none.

Nothing is filled from what came later, so that no forecast can see it. Called by
`pipelines.simulation.energy.grid_files`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, HourlySeries
from scheduler_core.types import FloatArray, IntArray

LONGEST_GAP_H: Final = 7 * HOURS_PER_DAY
"""A hole beyond a week is not filled: what is missing then is data, not hours."""

MOST_HOURS: Final = 100 * 366 * HOURS_PER_DAY
"""A century: more is a mistake in the stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """What had to be done to readings: hours made of several, hours that had none, and stamps out of order."""

    merged: int
    filled: int
    unsorted: int


def hourly(moments_s: FloatArray, values: FloatArray, unit: str) -> tuple[HourlySeries, Repairs]:
    """Return one value for every hour from the first reading to the last, and what was repaired.

    Readings within an hour (half-hourly ones, or the same hour twice) are averaged. An hour without any, or with an
    empty one, takes that of the day before, where there is none that of the hour before; both rules are ours.

    Parameters
    ----------
    moments_s
        Unix time (n), in any order.
    values
        One per moment (n); NaN where the reading is empty.

    Raises
    ------
    BadInput
        If no reading holds a value, or a hole is longer than `LONGEST_GAP_H`.

    Examples
    --------
    >>> series, repairs = hourly(np.array([0.0, 1800.0, 7200.0]), np.array([1.0, 3.0, 5.0]), "g/kWh")
    >>> series.values.tolist(), series.filled.tolist(), repairs.merged, repairs.filled
    ([2.0, 2.0, 5.0], [False, True, False], 1, 1)
    """
    known = ~np.isnan(values)
    if not known.any():
        raise BadInput(f"readings: found {len(values)}, none with a value; expected at least one")
    unsorted = int((np.diff(moments_s) < 0.0).sum())
    hours = np.floor(moments_s[known] / HOUR_S).astype(np.int64)
    first, count = int(hours.min()), int(hours.max() - hours.min()) + 1
    if count > MOST_HOURS:
        raise BadInput(f"readings: found them spread over {count} hours, expected at most {MOST_HOURS} (a century)")
    times = np.bincount(hours - first, minlength=count)
    sums = np.bincount(hours - first, weights=values[known], minlength=count)
    _check_holes(times, first)
    merged = sums / np.maximum(times, 1)
    for hour in np.flatnonzero(times == 0).tolist():
        # In the order of time: what was filled may fill on.
        merged[hour] = merged[hour - HOURS_PER_DAY if hour >= HOURS_PER_DAY else hour - 1]
    series = HourlySeries(start_s=first * HOUR_S, values=merged, unit=unit, filled=times == 0)
    return series, Repairs(merged=int((times > 1).sum()), filled=int((times == 0).sum()), unsorted=unsorted)


def _check_holes(times: IntArray, first: int) -> None:
    there = np.flatnonzero(times)
    holes = np.diff(there) - 1
    if len(holes) and holes.max() > LONGEST_GAP_H:
        at = int(holes.argmax())
        begin = np.datetime64(int((first + there[at] + 1) * HOUR_S), "s")
        raise BadInput(
            f"readings: found a hole of {holes[at]} hours from {begin} (UTC) on, expected none longer than "
            f"{LONGEST_GAP_H}; complete the file, or take a part of it"
        )
