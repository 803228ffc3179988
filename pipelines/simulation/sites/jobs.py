"""Draw a week of jobs: recorded GPUs, run times and arrivals; sites of origin, due dates and data volumes are ours.

A trace is read in `pipelines.models.sites.recorded`. Called by `pipelines.models.sites` and tests.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.sites.places import Terms
from scheduler_core.kernels.sites.value import DAY
from scheduler_core.types import FloatArray, IntArray

__all__ = ["MOST_GPUS", "MOST_STEPS", "WEEK", "Pool", "drawn"]

WEEK: Final = 7 * DAY
MOST_STEPS: Final = 2 * DAY
MOST_GPUS: Final = 32
DATA_SPREAD: Final = 1.0
"""Standard deviation of the logarithm of a job's data volume (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Recorded jobs (n) of one or more weeks: step of the week of arrival, GPUs, real and predicted steps, group.

    `group` is a code of the VC (jobs of one VC have one origin), or of the job itself if the trace has no VC.
    `week` is the number of the recorded week.
    """

    week: IntArray
    arrive: IntArray
    gpus: IntArray
    run_steps: IntArray
    told_steps: IntArray
    group: IntArray

    def __len__(self) -> int:
        return len(self.week)

    def of(self, weeks: IntArray) -> "Pool":
        """Return the jobs of some weeks."""
        rows = np.isin(self.week, weeks)
        return Pool(**{name: getattr(self, name)[rows] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekJobs:
    """Jobs (n) of a week in order of arrival; `arrive`, `due`, `run_steps` and `told_steps` (predicted) in steps."""

    arrive: IntArray
    gpus: IntArray
    run_steps: IntArray
    told_steps: IntArray
    due: IntArray
    origin: IntArray
    data_gb: FloatArray


def drawn(
    pool: Pool, shares: FloatArray, capacity: int, terms: Terms, rng: np.random.Generator, *, load: float = 0.9
) -> WeekJobs:
    """Draw a week of jobs whose GPU time is `load` of what `capacity` GPUs have in a week.

    Weeks of the pool are taken in random order; jobs of the last one are left out at random. Groups are spread over
    the sites at random, with `shares` (S) of them; every slack and data volume is drawn.
    """
    wanted, taken = load * capacity * WEEK, []
    for week in rng.permutation(np.unique(pool.week)):
        rows = rng.permutation(np.flatnonzero(pool.week == week))
        work = np.cumsum(pool.gpus[rows] * pool.run_steps[rows])
        taken.append(rows[: int(np.searchsorted(work, wanted, side="right"))])
        wanted -= float(work[len(taken[-1]) - 1]) if len(taken[-1]) else 0.0
        if len(taken[-1]) < len(rows):
            break
    rows = np.concatenate(taken)
    rows = rows[np.argsort(pool.arrive[rows], kind="stable")]
    sites = rng.choice(len(shares), size=int(pool.group.max(initial=0)) + 1, p=shares / shares.sum())
    slack = rng.uniform(*terms.slack, size=len(rows))
    return WeekJobs(
        arrive=pool.arrive[rows],
        gpus=pool.gpus[rows],
        run_steps=pool.run_steps[rows],
        told_steps=pool.told_steps[rows],
        due=pool.arrive[rows] + np.ceil(slack * pool.run_steps[rows]).astype(np.int64),
        origin=sites[pool.group[rows]].astype(np.int64),
        data_gb=rng.lognormal(np.log(terms.data_gb), DATA_SPREAD, size=len(rows)),
    )
