"""What no scheduler passes: the least mean completion time of jobs that have all GPUs to themselves, by energy (ours).

A bound and no plan: that GPUs are shared is left out. Called by the runs of the carbon experiment.
"""

from typing import Final

import numpy as np

from pipelines.studies.carbon.arriving import ArrivingJobs
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray

BOUND: Final = "bound"
"""Its name among arms."""

PRICES_S_PER_KWH: Final = np.concatenate([[0.0], np.geomspace(1.0, 1e8, 120)])
"""Prices whose bounds are taken together; more of them make the bound tighter, none makes it wrong."""


def least_mean(jobs: ArrivingJobs, *, round_s: float) -> tuple[FloatArray, FloatArray]:
    """Return the curve below which no mean completion time is: all jobs' busy kWh and seconds, a point a price.

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
    """Return seconds and kWh of every count and frequency (J, N·F); endless where a count is not allowed."""
    speed = jobs.steps_per_s[:, 1:, None] * jobs.perf[:, None, :]
    counts = np.arange(1, jobs.steps_per_s.shape[1])
    seconds = np.where(np.isnan(speed), np.inf, jobs.steps[:, None, None] / speed)
    kwh = np.where(np.isinf(seconds), 0.0, seconds) * counts[:, None] * jobs.watts[:, None, :] / JOULES_PER_KWH
    return seconds.reshape(len(jobs), -1), kwh.reshape(len(jobs), -1)


def _greatest(prices: FloatArray, seconds: FloatArray, kwh: FloatArray, jobs: int) -> tuple[FloatArray, FloatArray]:
    """Return where the lines seconds + price·(kwh - x) cross, of each with the next that is steeper."""
    bounds = seconds + prices * kwh
    crossings = np.diff(bounds) / np.diff(prices)
    heights = bounds[:-1] - prices[:-1] * crossings
    # The least energy is a point too: below it there is nothing.
    spent = np.append(crossings, kwh[-1])
    mean_s = np.append(heights, bounds[-1] - prices[-1] * kwh[-1]) / jobs
    return spent, mean_s
