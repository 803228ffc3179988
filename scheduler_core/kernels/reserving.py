"""The rules that size the reservation of one running job, and free capacity under a bound on risk.

`reserve` calls them uncompiled for the jobs of a cluster, the simulation of shared machines compiled.
"""

import math
from typing import Final, NamedTuple

from scheduler_core.kernels.kernel import kernel

__all__ = [
    "HELD",
    "MEASURED",
    "PRESSING",
    "RECENT",
    "STALE",
    "YOUNG",
    "Limits",
    "compute_of",
    "free_under_risk",
    "memory_of",
    "presses",
    "reason_of",
    "recent_of",
]

YOUNG: Final = 0
STALE: Final = 1
PRESSING: Final = 2
HELD: Final = 3
MEASURED: Final = 4
"""Codes of the reasons of a reservation, in the order of `reserve.REASONS`."""

RECENT: Final = 1.0 / 3.0
"""Weight of the newest sample in the recent mean."""


class Limits(NamedTuple):
    """The fields of `reserve.ReservePolicy`, as numbers for compiled code."""

    probation_s: float
    min_samples: float
    stale_s: float
    press_s: float
    press_z: float
    z: float
    least_spread: float
    memory_margin: float
    close_s: float
    device_load: float


@kernel
def reason_of(held: bool, age_s: float, samples: float, silent_s: float, limits: Limits) -> int:
    """Return the code of the rule that sizes a job's reservation; `silent_s` is the time since its newest sample."""
    if held:
        return HELD
    if age_s < limits.probation_s or samples < limits.min_samples:
        return YOUNG
    return STALE if silent_s > limits.stale_s else MEASURED


@kernel
def _deviation(squares: float, count: float) -> float:
    """Return the standard deviation of samples from the sum of their squared deviations."""
    return math.sqrt(squares / max(count - 1.0, 1.0))


@kernel
def compute_of(
    request: float, mean: float, recent: float, squares: float, count: float, limits: Limits
) -> tuple[float, float]:
    """Return mean and standard deviation to reserve; mean + z deviations is at most the request.

    The mean is that of all samples or the recent one, whichever is larger, because use rises after the start.
    """
    kept = min(max(mean, recent), request)
    deviation = max(_deviation(squares, count), limits.least_spread * kept)
    most = (request - kept) / limits.z if limits.z > 0.0 else math.inf
    return kept, min(deviation, most)


@kernel
def memory_of(request: float, largest: float, margin: float, measured: bool) -> float:
    """Return the memory to reserve: the request or, if `measured`, at most `largest` times `margin` of it.

    It is never below `largest`. Without a request it is `largest` times `margin`.
    """
    wanted = largest * margin
    if request <= 0.0:
        return wanted
    return max(min(request, wanted) if measured else request, largest)


@kernel
def recent_of(recent: float, sample: float, count: float) -> float:
    """Return the recent mean after one more sample; `count` is the number of samples before it."""
    return sample if count == 0.0 else recent + RECENT * (sample - recent)


@kernel
def presses(recent: float, mean: float, squares: float, count: float, request: float, limits: Limits) -> bool:
    """Return whether a sample raises recent use far above the mean of earlier samples, if that is below the request.

    `recent` is the recent mean after the sample; mean, sum of squared deviations and count are those before it.
    """
    return bool(
        recent > mean + limits.press_z * max(_deviation(squares, count), limits.least_spread * mean) and mean < request
    )


@kernel
def free_under_risk(capacity: float, mean: float, variance: float, z: float) -> float:
    """Return the capacity that is left beside reservations of this mean and variance; it can be negative."""
    return capacity - mean - z * math.sqrt(max(variance, 0.0))
