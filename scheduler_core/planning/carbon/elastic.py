"""Elastic jobs, which can run with several GPU counts and frequencies; plans for one period; their times and emissions.

Plans are made in `allocator`. Called by every module of this package, by the carbon study and by tests.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["CountsAndFrequencies", "ElasticJobs", "least_plan_s", "mean_completion_s"]

ELASTIC: Final = 0
"""Value of `rigid_gpus` for a job whose GPU count the allocator may choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobs:
    """J waiting or running jobs, each on up to N GPUs at one of F frequencies.

    `steps_left` (J,) is the remaining work in training steps. `steps_per_s` (J, N+1) is the speed at the reference
    frequency with 0..N GPUs: 0 in column 0, NaN for a count that is not allowed. `perf` (J, F) is the speed at each
    frequency divided by that at the reference, `watts` (J, F) the power of one running GPU, and `mhz` (F,) the
    frequencies, ascending. `age_s` (J,) is the time since submission. `rigid_gpus` (J,) is the only count allowed, or 0
    (`ELASTIC`).

    The speed with n GPUs at frequency f is thr(n)·perf(f), as in the carbon patent: `steps_per_s` times `perf`.

    Raises
    ------
    BadInput
        If shapes disagree, a number is out of range, or a job has no allowed count.

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

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_numbers()
        without = np.flatnonzero(~self.allowed.any(axis=1))
        if without.size:
            raise BadInput(
                f"elastic jobs: found {without.size} without a GPU count they may run with (first: row {without[0]}), "
                "expected a speed above 0 for at least one count, and for the count of a rigid job"
            )

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

    @property
    def optimal_step(self) -> IntArray:
        """Return the index of each job's frequency with least energy per unit of work, the lowest in a tie (J,)."""
        return np.asarray(np.argmin(self.watts / self.perf, axis=1), dtype=np.int64)

    def rows(self, rows: IntArray) -> "ElasticJobs":
        """Return the jobs of the given rows, in that order."""
        return ElasticJobs(
            steps_left=self.steps_left[rows],
            steps_per_s=self.steps_per_s[rows],
            perf=self.perf[rows],
            watts=self.watts[rows],
            mhz=self.mhz,
            age_s=self.age_s[rows],
            rigid_gpus=self.rigid_gpus[rows],
        )

    def _check_shapes(self) -> None:
        jobs, steps = len(self.steps_left), len(self.mhz)
        expected = {
            "steps_left": (jobs,),
            "steps_per_s": (jobs, max(self.steps_per_s.shape[-1], 2)),
            "perf": (jobs, max(steps, 1)),
            "watts": (jobs, max(steps, 1)),
            "age_s": (jobs,),
            "rigid_gpus": (jobs,),
        }
        for name, shape in expected.items():
            found = getattr(self, name).shape
            if found != shape:
                raise BadInput(f"elastic jobs: found {name} of shape {found}, expected {shape}")

    def _check_numbers(self) -> None:
        speeds = self.steps_per_s
        fine = {
            "steps_left above 0": np.isfinite(self.steps_left) & (self.steps_left > 0.0),
            "steps_per_s of 0 without GPUs": speeds[:, 0] == 0.0,
            "steps_per_s above 0 or NaN": ~(speeds[:, 1:] <= 0.0) & ~np.isinf(speeds[:, 1:]),
            "perf above 0": np.isfinite(self.perf) & (self.perf > 0.0),
            "watts above 0": np.isfinite(self.watts) & (self.watts > 0.0),
            "mhz ascending": np.diff(self.mhz) > 0.0,
            "age_s of 0 or more": np.isfinite(self.age_s) & (self.age_s >= 0.0),
            "rigid_gpus within 0..N": (self.rigid_gpus >= 0) & (self.rigid_gpus <= self.most_gpus),
        }
        for expected, holds in fine.items():
            if not holds.all():
                raise BadInput(f"elastic jobs: found {np.sum(~holds)} other values, expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsAndFrequencies:
    """A plan for one period: GPU count `gpus` (J,) and index `step` (J,) into `ElasticJobs.mhz` of every job.

    `postponed` (J,) marks jobs that get no GPU in this period. `notes` are messages for the user: how many jobs are
    postponed and why, and whether a stage stopped at a limit.
    """

    gpus: IntArray
    step: IntArray
    postponed: BoolArray
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


def completion_s(jobs: ElasticJobs, plan: CountsAndFrequencies, *, period_s: float) -> FloatArray:
    """Return the time in seconds from submission to completion under the plan (J,).

    A postponed job is assumed to start after this period on GPUs freed by other jobs and to run for `least_plan_s`;
    postponed jobs start shortest first (ours: the carbon patent does not define their completion). No GPU is used
    twice, so postponing gains nothing where speed is proportional to the GPU count. If a postponed job needs more GPUs
    than are in use now, it starts when all other jobs have ended.
    """
    left_s = remaining_s(jobs, plan)
    running = plan.gpus > 0
    later_s, fewest = least_plan_s(jobs), jobs.allowed.argmax(axis=1)
    free_s = np.repeat(np.maximum(left_s[running], period_s), plan.gpus[running]).tolist()
    for row in sorted(np.flatnonzero(~running), key=lambda row: float(later_s[row])):
        free_s.sort()
        taken = int(fewest[row])
        start_s = free_s[min(taken, len(free_s)) - 1] if free_s else period_s
        left_s[row] = start_s + later_s[row]
        free_s[:taken] = [left_s[row]] * taken
    return np.asarray(jobs.age_s + left_s, dtype=np.float64)


def least_plan_s(jobs: ElasticJobs) -> FloatArray:
    """Return each job's remaining run time on its fewest allowed GPUs at its energy-optimal frequency (J,)."""
    rows = np.arange(len(jobs))
    fewest = jobs.allowed.argmax(axis=1)
    return np.asarray(
        jobs.steps_left / (jobs.steps_per_s[rows, fewest] * jobs.perf[rows, jobs.optimal_step]), dtype=np.float64
    )


def mean_completion_s(jobs: ElasticJobs, plan: CountsAndFrequencies, *, period_s: float) -> float:
    """Return the mean of `completion_s` over jobs, the measure by which plans are compared; 0 without jobs.

    Examples
    --------
    >>> jobs = ElasticJobs(
    ...     steps_left=np.array([100.0, 100.0]),
    ...     steps_per_s=np.array([[0.0, 1.0], [0.0, 1.0]]),
    ...     perf=np.ones((2, 1)),
    ...     watts=np.full((2, 1), 200.0),
    ...     mhz=np.array([1500.0]),
    ...     age_s=np.array([10.0, 0.0]),
    ...     rigid_gpus=np.array([0, 0]),
    ... )
    >>> one = CountsAndFrequencies(gpus=np.array([1, 0]), step=np.array([0, 0]), postponed=np.array([False, True]))
    >>> mean_completion_s(jobs, one, period_s=60.0)
    155.0
    """
    return float(completion_s(jobs, plan, period_s=period_s).mean()) if len(jobs) else 0.0
