"""The nouns of a round under a carbon budget: jobs that can run on several GPU counts and frequencies, and a plan.

Columns and checks only; what a plan emits is in `emissions`, who makes one is `allocator`.
Called by every module here, and by the simulation of elastic jobs.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray, IntArray

ELASTIC: Final = 0
"""What `rigid_gpus` holds for a job whose count may be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobs:
    """J jobs that wait or run, with up to N GPUs each, at one of F frequencies.

    `steps_left` (J,) is work in the job's own steps, `steps_per_s` (J, N+1) its speed at the reference frequency with
    0..N GPUs: column 0 is 0, NaN is a count that is not allowed. `perf` (J, F) is the speed at a frequency relative to
    the reference, `watts` (J, F) the power of one GPU while it runs, `mhz` (F,) ascending. `age_s` (J,) is the time
    since submission. `rigid_gpus` (J,) is the only count allowed, 0 where the count may be chosen.

    Speed with n GPUs at frequency f is thr(n)·perf(f), as the source's models have it.

    Raises
    ------
    BadInput
        If shapes disagree, a number is not what it can be, or a job has no count that it may run with.

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
        """Return N, the largest count that speeds are given for."""
        return int(self.steps_per_s.shape[1]) - 1

    @property
    def allowed(self) -> BoolArray:
        """Return which counts a job may run with (J, N+1); 0 is none of them."""
        known = self.steps_per_s > 0.0
        counts = np.arange(self.steps_per_s.shape[1])
        known &= (self.rigid_gpus[:, None] == ELASTIC) | (counts == self.rigid_gpus[:, None])
        return np.asarray(known, dtype=np.bool_)

    @property
    def optimal_step(self) -> IntArray:
        """Return the frequency of least energy per unit of work (J,), the source's f0; the lower of equal ones."""
        return np.asarray(np.argmin(self.watts / self.perf, axis=1), dtype=np.int64)

    def rows(self, rows: IntArray) -> "ElasticJobs":
        """Return some of the jobs, or all in another order."""
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
    """A plan for one period: GPUs (J,) and frequency (J,) of every job, as an index into `ElasticJobs.mhz`.

    `postponed` (J,) marks jobs that get no GPU this period. `notes` say in words what a reader has to know: that a
    budget was below the minimum plan, that a stage stopped at it.
    """

    gpus: IntArray
    step: IntArray
    postponed: BoolArray
    notes: tuple[str, ...] = ()
