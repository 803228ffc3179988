"""Curves of mean completion time over energy: the best points of an arm, comparison at equal energy, and a lower bound.

Pure functions on arrays. Called by `tables`, `months` and `runs`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.studies.carbon.jobs import ArrivingJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray

AT_POINTS: Final = 9
"""Energies at which two curves are compared, evenly spaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Points of which none is better than another in both energy and time: `spent` ascending, `mean_s` descending."""

    spent: FloatArray
    mean_s: FloatArray

    @classmethod
    def of(cls, spent: FloatArray, mean_s: FloatArray) -> "Front":
        """Return the points that no other point beats in both; points that are not finite are dropped.

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
        # What rounding takes from a point does not take the point.
        within = spent >= self.spent[0] * (1.0 - 1e-12)
        return np.where(within, np.interp(spent, self.spent, self.mean_s), np.nan)

    def for_mean(self, mean_s: FloatArray) -> FloatArray:
        """Return the least energy for a given mean time or less, interpolated linearly; NaN below the least time."""
        if not len(self.spent):
            return np.full(len(mean_s), np.nan)
        within = mean_s >= self.mean_s[-1] * (1.0 - 1e-12)
        return np.where(within, np.interp(mean_s, self.mean_s[::-1], self.spent[::-1]), np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Ratio of another arm's mean time to ours at equal energy.

    `mean`, `tightest` and `loosest` are taken over `AT_POINTS` energies: their mean, and the values at the least energy
    that suffices for both and at the most energy that the other arm can use. `ceiling` is the mean ratio to the lower
    bound at the same energies.
    """

    mean: float
    tightest: float
    loosest: float
    ceiling: float


def compared(ours: Front, theirs: Front, bound: Front) -> Compared:
    """Return the ratio at energies of the other arm's curve; NaN if none of them suffices for our arm.

    If our arm cannot use that much energy, its time at its most energy counts.
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


BOUND: Final = "bound"
"""Its name among arms."""

PRICES_S_PER_KWH: Final = np.concatenate([[0.0], np.geomspace(1.0, 1e8, 120)])
"""Prices whose bounds are taken together; more of them make the bound tighter, none makes it wrong."""


def least_mean(jobs: ArrivingJobs, *, round_s: float) -> tuple[FloatArray, FloatArray]:
    """Return a lower bound on the mean completion time: points of busy GPUs' kWh and seconds, one line per price.

    A job may change its count and frequency whenever it likes, so that its time and energy are anything between those
    of its choices. For any price p in seconds a kWh, ΣT + p·ΣkWh is at least what each job's best choice makes of it;
    the curve is the greatest of these bounds (weak duality). No job starts before the round after its arrival; with
    `round_s` of 0 it may at once. Rigid jobs are bounded as if they were elastic.

    Examples
    --------
    >>> from pipelines.studies.carbon.curves import Front
    >>> jobs = ArrivingJobs(
    ...     submit_s=np.array([0.0]), steps=np.array([3600.0]), predicted_steps=np.array([3600.0]),
    ...     steps_per_s=np.array([[0.0, 1.0, 1.5]]), perf=np.ones((1, 1)), modelled_perf=np.ones((1, 1)),
    ...     watts=np.full((1, 1), 100.0), modelled_watts=np.full((1, 1), 100.0), mhz=np.array([1500.0]),
    ...     requested=np.array([1]), elastic=np.array([True]),
    ... )
    >>> front = Front.of(*least_mean(jobs, round_s=0.0))
    >>> front.at(np.array([0.1, 0.2])).round().tolist()
    [3600.0, 2400.0]
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
    """Return the corners of the upper envelope of the lines seconds + price·(kwh - x)."""
    bounds = seconds + prices * kwh
    crossings = np.diff(bounds) / np.diff(prices)
    heights = bounds[:-1] - prices[:-1] * crossings
    # The least energy is a point too: below it there is nothing.
    spent = np.append(crossings, kwh[-1])
    mean_s = np.append(heights, bounds[-1] - prices[-1] * kwh[-1]) / jobs
    return spent, mean_s
