"""Curves of mean completion time by energy: Pareto-optimal points, comparison at equal energy, and a lower bound."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.studies.carbon.jobs import ArrivingJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray

AT_POINTS: Final = 9
"""Number of evenly spaced energies at which two curves are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Pareto-optimal points of energy `spent` (ascending) and mean completion time `mean_s` (descending)."""

    spent: FloatArray
    mean_s: FloatArray

    @classmethod
    def of(cls, spent: FloatArray, mean_s: FloatArray) -> "Front":
        """Return the Pareto-optimal points of the given ones; points that are not finite are dropped.

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
        """Return the least mean time at a given energy or less, interpolated linearly; NaN below the least energy."""
        if not len(self.spent):
            return np.full(len(spent), np.nan)
        # Tolerate rounding, so that the end point itself is within the curve.
        within = spent >= self.spent[0] * (1.0 - 1e-12)
        return np.where(within, np.interp(spent, self.spent, self.mean_s), np.nan)

    def for_mean(self, mean_s: FloatArray) -> FloatArray:
        """Return the least energy at a given mean time or less, interpolated linearly; NaN below the least time."""
        within = mean_s >= self.mean_s[-1] * (1.0 - 1e-12)
        return np.where(within, np.interp(mean_s, self.mean_s[::-1], self.spent[::-1]), np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Ratios of another arm's mean completion time to our arm's, at equal energy.

    `mean` is the mean ratio at `AT_POINTS` energies, `tightest` the ratio at the least energy that suffices for both
    arms, and `loosest` the ratio at the most energy that the other arm uses. `ceiling` is the mean ratio of the other
    arm to the lower bound at the same energies: no arm can reach a higher `mean`.
    """

    mean: float
    tightest: float
    loosest: float
    ceiling: float


def compared(ours: Front, theirs: Front, bound: Front) -> Compared:
    """Compare two arms at energies of the other arm's curve; ratios are NaN if our arm needs more energy than these.

    At energies above the maximum of our arm, our arm has its mean time at that maximum.
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


PRICES_S_PER_KWH: Final = np.concatenate([[0.0], np.geomspace(1.0, 1e8, 120)])
"""Prices at which the bound is computed. More prices make the bound tighter; any set gives a valid bound."""


def least_mean(jobs: ArrivingJobs, *, round_s: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return points of a lower bound on the mean completion time: kWh of busy GPUs, and seconds.

    A job may change its count and frequency at any time, so every mixture of its options is possible. For any price p
    in seconds per kWh, the sum over jobs of time + p·energy is at least the sum of each job's minimum of time +
    p·energy. The curve is the greatest of these bounds over all prices (weak duality). A job starts at the first
    round after its arrival at the earliest, or at once if `round_s` is 0.
    """
    many = len(jobs)
    waits_s = np.zeros(many) if round_s == 0.0 else -jobs.submit_s % round_s
    seconds, kwh = _choices(jobs)
    rows = np.arange(many)
    sums = np.empty((len(PRICES_S_PER_KWH), 2))
    for at, price in enumerate(PRICES_S_PER_KWH):
        best = np.argmin(seconds + price * kwh, axis=1)
        sums[at] = (seconds[rows, best] + waits_s).sum(), kwh[rows, best].sum()
    return _greatest(PRICES_S_PER_KWH, sums[:, 0], sums[:, 1], many)


def _choices(jobs: ArrivingJobs) -> tuple[FloatArray, FloatArray]:
    """Return seconds and kWh of every count and frequency (J, N·F); infinite where a count is not allowed."""
    speed = jobs.steps_per_s[:, 1:, None] * jobs.perf[:, None, :]
    counts = np.arange(1, jobs.steps_per_s.shape[1])
    seconds = np.where(np.isnan(speed), np.inf, jobs.steps[:, None, None] / speed)
    kwh = np.where(np.isinf(seconds), 0.0, seconds) * counts[:, None] * jobs.watts[:, None, :] / JOULES_PER_KWH
    return seconds.reshape(len(jobs), -1), kwh.reshape(len(jobs), -1)


def _greatest(prices: FloatArray, seconds: FloatArray, kwh: FloatArray, jobs: int) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the upper envelope of the lines seconds + price·(kwh - x), x being energy."""
    bounds = seconds + prices * kwh
    crossings = np.diff(bounds) / np.diff(prices)
    heights = bounds[:-1] - prices[:-1] * crossings
    # The curve ends at the least energy, which is its last point.
    spent = np.append(crossings, kwh[-1])
    mean_s = np.append(heights, bounds[-1] - prices[-1] * kwh[-1]) / jobs
    return spent, mean_s
