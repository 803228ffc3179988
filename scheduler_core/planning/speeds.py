"""Speed of recurring jobs by GPU count and GPU type, fitted to run times of earlier runs of the same groups.

Only runs of one group are compared with each other, so groups of long jobs do not look slow.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray, IntArray

__all__ = ["SpeedModel", "fit_speeds"]

PRIOR_RUNS: Final = 20.0
"""Weight of the prior (GPUs and types do not change speed), as a number of runs with e times the group's usual GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedModel:
    """Speed proportional to gpus ^ elasticity, times a factor of the GPU type.

    `elasticity` (groups,) is from 0 (more GPUs do not help) to 1 (twice the GPUs are twice as fast). `log_factor`
    (types,) is the logarithm of each GPU type's factor; only differences between types have a meaning.
    """

    elasticity: FloatArray
    log_factor: FloatArray

    def with_gpus(self, group: int, times: float) -> float:
        """Return the speed of a group's job with a multiple of its GPUs, relative to the speed with its usual GPUs."""
        return float(times ** self.elasticity[group])

    def on_type(self, kind: int, base: int) -> float:
        """Return the speed of a job on GPUs of one type, relative to those of the type `base`."""
        return float(np.exp(self.log_factor[kind] - self.log_factor[base]))


def fit_speeds(group: IntArray, gpus: FloatArray, kind: IntArray, run_s: FloatArray) -> SpeedModel:
    """Fit to n runs: `group` and `kind` (GPU type) are codes from 0, `gpus` and `run_s` positive.

    Ridge regression within groups of log speed on log GPUs and on types; each group's elasticity is shrunk towards that
    of all groups. It is 0 for a group whose larger runs take longer, because they do more work.

    Examples
    --------
    >>> runs = np.tile([1.0, 2.0, 4.0], 200)
    >>> model = fit_speeds(np.zeros(600, int), runs, np.zeros(600, int), 3600.0 / runs**0.8)
    >>> round(float(model.elasticity[0]), 2)
    0.79
    """
    if not len(group) or not len(group) == len(gpus) == len(kind) == len(run_s):
        raise BadInput(f"speeds: found {len(group)} runs with {len(gpus)} counts of GPUs, expected as many, 1 or more")
    if not (np.all(gpus > 0.0) and np.all(run_s > 0.0)):
        raise BadInput("speeds: found GPUs or run times of 0 or less, expected positive ones")
    many = np.bincount(group)
    types = int(kind.max()) + 1
    columns = np.column_stack([np.log(gpus), np.eye(types)[kind]])
    columns, speed = _within(columns, group, many), _within(-np.log(run_s)[:, None], group, many)[:, 0]
    prior = np.full(1 + types, PRIOR_RUNS / 4.0)
    prior[0] = PRIOR_RUNS
    pooled = np.linalg.solve(columns.T @ columns + np.diag(prior), columns.T @ speed)
    rest = speed - columns[:, 1:] @ pooled[1:]
    along = np.bincount(group, weights=columns[:, 0] * rest) + PRIOR_RUNS * pooled[0]
    spread = np.bincount(group, weights=columns[:, 0] ** 2) + PRIOR_RUNS
    return SpeedModel(elasticity=np.clip(along / spread, 0.0, 1.0), log_factor=np.asarray(pooled[1:], dtype=np.float64))


def _within(values: FloatArray, group: IntArray, many: IntArray) -> FloatArray:
    """Return values (n, k) less the mean of their group."""
    means = np.column_stack([np.bincount(group, weights=column) for column in values.T]) / np.maximum(many, 1)[:, None]
    return np.asarray(values - means[group])
