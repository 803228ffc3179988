"""Compiled reservation of one running job, and free capacity under a bound on risk, as `reserve` and `risk` define."""

import math
from typing import Final, NamedTuple

from scheduler_core.kernels.kernel import kept, kernel
from scheduler_core.types import BoolArray, FloatArray, IntArray

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
    "reserve_all",
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
    """Return whether a sample lifts recent use far above the mean of the samples before it, which is below the request.

    `recent` is the recent mean after the sample; mean, sum of squared deviations and count are those before it.
    """
    return bool(
        recent > mean + limits.press_z * max(_deviation(squares, count), limits.least_spread * mean) and mean < request
    )


@kernel
def free_under_risk(capacity: float, mean: float, variance: float, z: float) -> float:
    """Return what may be allocated besides reservations of this mean and variance; it can be negative."""
    return capacity - mean - z * math.sqrt(max(variance, 0.0))


@kept
def reserve_all(
    requests: FloatArray,
    age_s: FloatArray,
    silent_s: FloatArray,
    pressed_ago_s: FloatArray,
    count: FloatArray,
    mean: FloatArray,
    squares: FloatArray,
    recent: FloatArray,
    largest: FloatArray,
    held: BoolArray,
    limits: Limits,
    out_mean: FloatArray,
    out_spread: FloatArray,
    out_memory: FloatArray,
    out_reason: IntArray,
) -> None:
    """Write the reservations of all jobs to the last four arrays; see `reserve.reserve`."""
    for job in range(len(age_s)):
        reason = reason_of(held[job], age_s[job], count[job], silent_s[job], limits)
        for at in range(2):
            compute, memory = requests[job, 2 * at], requests[job, 1 + at]
            seen_mean, seen_recent, seen_squares = mean[job, at], recent[job, at], squares[job, at]
            measured = reason in (MEASURED, PRESSING)
            out_mean[job, at], out_spread[job, at] = compute, 0.0
            out_memory[job, at] = memory_of(memory, largest[job, at], limits.memory_margin, measured)
            if not measured:
                continue
            if pressed_ago_s[job, at] < limits.press_s:
                reason = PRESSING
                continue
            kept_mean, spread = compute_of(compute, seen_mean, seen_recent, seen_squares, count[job], limits)
            out_mean[job, at], out_spread[job, at] = kept_mean, spread
        out_reason[job] = reason
