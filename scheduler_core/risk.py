"""Free capacity under a bound on risk: the chance that running jobs together want more than a machine has.

Each job's use is a mean with a standard deviation; jobs are taken as independent, so on a machine variances add up and
peaks do not. Pure and vectorised. The simulation of shared machines uses the compiled form in `kernels.reserving`.

References
----------
Bashir et al.: Take it to the Limit: Peak Prediction-driven Resource Overcommitment in Datacenters, EuroSys 2021 (the
N-sigma predictor).
"""

from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["admits", "free_capacity"]

SLACK: Final = 1e-9
"""Amount that a demand may exceed the free capacity by, against rounding."""


def free_capacity(
    capacity: FloatArray, machine: IntArray, instances: FloatArray, mean: FloatArray, spread: FloatArray, z: float
) -> FloatArray:
    """Return the capacity (m,) that newcomers of constant use may take on each machine; it can be negative.

    It is the capacity minus the sum of means minus z times the root of the summed variances. Entry i of the other
    arrays (k,) is a job with `instances[i]` instances on machine `machine[i]`, each with the reserved mean and standard
    deviation. A job on several machines has several entries.

    Raises
    ------
    BadInput
        If a machine index is out of range, columns differ in length, or an amount or `z` is negative, infinite or NaN.

    Examples
    --------
    >>> ones = np.ones(2)
    >>> free_capacity(np.array([10.0]), np.array([0, 0]), np.array([3.0, 1.0]), ones, 0.5 * ones, 2.0).tolist()
    [4.0]
    """
    amounts = (capacity, instances, mean, spread, np.array([z]))
    if any(not (np.isfinite(values).all() and (values >= 0.0).all()) for values in amounts):
        raise BadInput("risk: found an amount below 0, infinite or NaN; expected finite amounts of at least 0")
    if any(np.shape(values) != np.shape(machine) for values in (instances, mean, spread)):
        raise BadInput(f"risk: found columns of different lengths; expected {np.shape(machine)}, as machines")
    if len(machine) and not 0 <= int(machine.min()) <= int(machine.max()) < len(capacity):
        raise BadInput(f"risk: found a machine out of range; expected indices from 0 to {len(capacity) - 1}")
    means = np.bincount(machine, weights=instances * mean, minlength=len(capacity))
    variances = np.bincount(machine, weights=instances * spread * spread, minlength=len(capacity))
    return np.asarray(capacity - means - z * np.sqrt(variances), dtype=np.float64)


def admits(free: FloatArray, variance: FloatArray, mean: float, spread: float, instances: int, z: float) -> BoolArray:
    """Return which machines (m,) can host a gang whose instances reserve `mean` and `spread`, each machine all of it.

    `free` (m,) is what `free_capacity` returned, and `variance` (m,) the sum of variances of the jobs already there.

    >>> admits(np.array([4.0, 3.5]), np.array([1.0, 0.0]), 3.0, 0.5, 1, 2.0).tolist()
    [True, False]
    """
    more = np.sqrt(variance + instances * spread * spread) - np.sqrt(variance)
    fits: BoolArray = instances * mean + z * more <= free + SLACK
    return fits
