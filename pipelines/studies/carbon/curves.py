"""Curves of mean completion time over energy: what is worth having of them, and two of them compared at equal energy.

Pure functions on arrays. Called by the tables of the carbon experiment.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.types import FloatArray

AT_POINTS: Final = 9
"""Energies at which two curves are compared, evenly spaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Points of which none is as good as another in both: `spent` ascending, `mean_s` descending."""

    spent: FloatArray
    mean_s: FloatArray

    @classmethod
    def of(cls, spent: FloatArray, mean_s: FloatArray) -> "Front":
        """Keep the points worth having; points that are not finite are none.

        >>> front = Front.of(np.array([3.0, 1.0, 2.0]), np.array([5.0, 9.0, 10.0]))
        >>> front.spent.tolist(), front.mean_s.tolist()
        ([1.0, 3.0], [9.0, 5.0])
        """
        fine = np.isfinite(spent) & np.isfinite(mean_s)
        order = np.lexsort([mean_s[fine], spent[fine]])
        spent, mean_s = spent[fine][order], mean_s[fine][order]
        before = np.concatenate([[np.inf], np.minimum.accumulate(mean_s)[:-1]])[: len(mean_s)]
        better = mean_s < before
        return cls(spent=spent[better], mean_s=mean_s[better])

    def at(self, spent: FloatArray) -> FloatArray:
        """Return the least mean time for no more than so much, on lines between points; NaN for less than any has."""
        if not len(self.spent):
            return np.full(len(spent), np.nan)
        # What rounding takes from a point does not take the point.
        within = spent >= self.spent[0] * (1.0 - 1e-12)
        return np.where(within, np.interp(spent, self.spent, self.mean_s), np.nan)

    def for_mean(self, mean_s: FloatArray) -> FloatArray:
        """Return the least spent for no longer than a mean time, on lines between points; NaN for less than any has."""
        if not len(self.spent):
            return np.full(len(mean_s), np.nan)
        within = mean_s >= self.mean_s[-1] * (1.0 - 1e-12)
        return np.where(within, np.interp(mean_s, self.mean_s[::-1], self.spent[::-1]), np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How many times shorter the mean time of one is than another's at equal energy.

    `mean`, `least` and `most` are over `AT_POINTS` energies from the least that both can do with to the most that is
    of use to the other: `tightest` and `loosest` are at the two ends. `ceiling` is the mean of what the curve that no
    scheduler passes would be compared as, at the same energies.
    """

    mean: float
    tightest: float
    loosest: float
    ceiling: float


def compared(ours: Front, theirs: Front, bound: Front) -> Compared:
    """Compare at energies of the other's curve; NaN where it has none that we can do with.

    Where we cannot make use of as much, what we have at our most counts, for less energy.
    """
    if not len(ours.spent) or not len(theirs.spent) or theirs.spent[-1] < ours.spent[0]:
        return Compared(mean=np.nan, tightest=np.nan, loosest=np.nan, ceiling=np.nan)
    at = np.linspace(max(ours.spent[0], theirs.spent[0]), theirs.spent[-1], AT_POINTS)
    ratio = theirs.at(at) / ours.at(at)
    return Compared(
        mean=float(ratio.mean()),
        tightest=float(ratio[0]),
        loosest=float(ratio[-1]),
        ceiling=float((theirs.at(at) / bound.at(at)).mean()),
    )
