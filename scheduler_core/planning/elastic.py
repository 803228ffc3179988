"""Elastic jobs, which can run with several GPU counts and frequencies; periods under a budget, and plans for one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from scheduler_core.planning.hourly import JOULES_PER_KWH
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["BudgetRule", "CountsAndFrequencies", "ElasticJobs", "Period", "Planner"]

BudgetRule = Literal["period", "to-completion"]
"""Which emissions a budget limits: those of one period (ours), or those until the jobs end (carbon patent)."""

ELASTIC: Final = 0
"""Value of `rigid_gpus` for a job whose GPU count the allocator may choose."""

OVERRUN_FRAC: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobs:
    """J waiting or running jobs, each on up to N GPUs at one of F frequencies.

    `steps_left` (J,) is the remaining work in training steps. `steps_per_s` (J, N+1) is the speed at the reference
    frequency with 0..N GPUs: 0 in column 0, NaN for a count that is not allowed. `perf` (J, F) is the speed at each
    frequency divided by that at the reference, `watts` (J, F) the power of one running GPU, and `mhz` (F,) the
    frequencies, ascending. `age_s` (J,) is the time since submission. `rigid_gpus` (J,) is the only count allowed, or 0
    (`ELASTIC`).

    The speed with n GPUs at frequency f is thr(n)·perf(f), as in the carbon patent: `steps_per_s` times `perf`.

    Examples
    --------
    >>> jobs = ElasticJobs(
    ...     steps_left=np.array([100.0]),
    ...     steps_per_s=np.array([[0.0, 1.0, 1.8]]),
    ...     perf=np.array([[0.8, 1.0]]),
    ...     watts=np.array([[100.0, 200.0]]),
    ...     mhz=np.array([900.0, 1500.0]),
    ...     age_s=np.array([0.0]),
    ...     rigid_gpus=np.array([0]),
    ... )
    >>> jobs.allowed
    array([[False,  True,  True]])
    >>> jobs.optimal_step
    array([0])
    """

    steps_left: FloatArray
    steps_per_s: FloatArray
    perf: FloatArray
    watts: FloatArray
    mhz: FloatArray
    age_s: FloatArray
    rigid_gpus: IntArray

    def __len__(self) -> int:
        return len(self.steps_left)

    @property
    def most_gpus(self) -> int:
        """Return N, the largest GPU count in `steps_per_s`."""
        return int(self.steps_per_s.shape[1]) - 1

    @property
    def allowed(self) -> BoolArray:
        """Return which GPU counts each job may run with (J, N+1); a count of 0 is never allowed."""
        known = self.steps_per_s > 0.0
        counts = np.arange(self.steps_per_s.shape[1])
        known &= (self.rigid_gpus[:, None] == ELASTIC) | (counts == self.rigid_gpus[:, None])
        return np.asarray(known, dtype=np.bool_)

    def after(self, steps_done: FloatArray, age_s: FloatArray) -> "ElasticJobs":
        """Return the jobs with the work left after `steps_done` (J,), and their ages.

        Work is predicted and can be too small: a job that still runs after all its steps has at least `OVERRUN_FRAC` of
        the steps done left (ours).
        """
        return replace(
            self, steps_left=np.maximum(self.steps_left - steps_done, OVERRUN_FRAC * steps_done), age_s=age_s
        )

    @property
    def optimal_step(self) -> IntArray:
        """Return the index of each job's frequency with least energy per unit of work, the lowest in a tie (J,)."""
        return np.asarray(np.argmin(self.watts / self.perf, axis=1), dtype=np.int64)

    def rows(self, rows: IntArray) -> "ElasticJobs":
        """Return the jobs of the given rows, in that order."""
        by_job = ("steps_left", "steps_per_s", "perf", "watts", "age_s", "rigid_gpus")
        return replace(self, **{name: getattr(self, name)[rows] for name in by_job})


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period to plan: carbon intensity, budget in grams (may be infinite), length, and what the budget limits.

    By the rule ``"to-completion"`` the budget limits the emissions until the jobs end at this intensity, as in the
    carbon patent: Σ I·P·T. By the rule ``"period"`` (ours) it limits those of the period: Σ I·P·min(T, period).
    """

    intensity_g_per_kwh: float
    budget_g: float
    period_s: float
    pue: float = 1.0
    rule: BudgetRule = "period"

    def grams(self, watts: FloatArray, left_s: FloatArray) -> FloatArray:
        """Return the grams that the budget limits, for power P and remaining time T; 0 where T is infinite."""
        counted_s = np.where(np.isinf(left_s), 0.0, left_s)
        if self.rule == "period":
            counted_s = np.minimum(counted_s, self.period_s)
        g_per_j = self.intensity_g_per_kwh * self.pue / JOULES_PER_KWH
        return np.asarray(g_per_j * watts * counted_s, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsAndFrequencies:
    """A plan for one period: GPU count `gpus` (J,) and index `step` (J,) into `ElasticJobs.mhz` of every job.

    A job with 0 GPUs is postponed. `notes` are messages for the user: how many jobs are postponed and why, and whether
    a stage stopped at a limit.
    """

    gpus: IntArray
    step: IntArray
    notes: tuple[str, ...] = ()


def remaining_s(jobs: ElasticJobs, plan: CountsAndFrequencies) -> FloatArray:
    """Return each job's remaining run time under the plan (J,), steps_left / (thr(n)·perf(f)); inf if postponed."""
    rows = np.arange(len(jobs))
    speed = jobs.steps_per_s[rows, plan.gpus] * jobs.perf[rows, plan.step]
    with np.errstate(divide="ignore"):
        return np.asarray(jobs.steps_left / speed, dtype=np.float64)


def drawn_w(jobs: ElasticJobs, plan: CountsAndFrequencies) -> FloatArray:
    """Return the power of each job's GPUs together (J,), P(n, f) = n·watts(f)."""
    return np.asarray(plan.gpus * jobs.watts[np.arange(len(jobs)), plan.step], dtype=np.float64)


Planner = Callable[[ElasticJobs, int, Period], CountsAndFrequencies]
"""Function that plans one period for jobs, given the number of free GPUs: `allocate`, or another rule."""
