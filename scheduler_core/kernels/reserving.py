"""Compiled reservation of one running job, and free capacity under a bound on risk, as `reserve` and `risk` define.

Called by `reserve`, `risk` and the simulation of shared machines.
"""

import math
from typing import Final, NamedTuple

from scheduler_core.kernels.kernel import SOURCES, Compiled, kept, kernel
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "HELD",
    "MEASURED",
    "NOT_MEASURED",
    "PRESSING",
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
NOT_MEASURED: Final = (YOUNG, STALE, PRESSING, HELD)
"""Codes of the reasons of a reservation, in the order of `reserve.Reason`."""

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
def reason_of(held: bool, age_s: float, samples: float, silent_s: float, pressed_ago_s: float, limits: Limits) -> int:
    """Return the code of the rule that sizes a job's reservation.

    `silent_s` is the time since its last sample, and `pressed_ago_s` that since it last pressed on its reservation.
    """
    if held:
        return HELD
    if age_s < limits.probation_s or samples < limits.min_samples:
        return YOUNG
    if silent_s > limits.stale_s:
        return STALE
    return PRESSING if pressed_ago_s < limits.press_s else MEASURED


@kernel
def compute_of(
    request: float, mean: float, recent: float, squares: float, count: float, limits: Limits
) -> tuple[float, float]:
    """Return mean and standard deviation to reserve; mean + z deviations is at most the request.

    The mean is that of all samples or the recent one, whichever is larger, because use rises after the start.
    """
    kept = min(max(mean, recent), request)
    deviation = max(math.sqrt(squares / max(count - 1.0, 1.0)), limits.least_spread * kept)
    most = (request - kept) / limits.z if limits.z > 0.0 else math.inf
    return kept, min(deviation, most)


@kernel
def memory_of(request: float, largest: float, margin: float) -> float:
    """Return the memory to reserve: the largest sample with a margin, at most the request, at least the sample."""
    return max(min(request, largest * margin), largest)


@kernel
def recent_of(recent: float, sample: float, count: float) -> float:
    """Return the recent mean after one more sample; `count` is the number of samples before it."""
    return sample if count == 0.0 else recent + RECENT * (sample - recent)


@kernel
def presses(recent: float, mean: float, spread: float, request: float, limits: Limits) -> bool:
    """Return whether recent use is far above the mean of all samples, which is below the request."""
    return bool(recent > mean + limits.press_z * spread and mean < request)


@kernel
def free_under_risk(capacity: float, mean: float, variance: float, z: float) -> float:
    """Return what may be allocated besides reservations of this mean and variance; it can be negative."""
    return capacity - mean - z * math.sqrt(max(variance, 0.0))


def _reserving(sources: str) -> Compiled:
    """Compile the reservations of many jobs, or load them from the cache if no source has changed since."""

    @kept
    def reserve_all(
        compute: FloatArray,
        memory: FloatArray,
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
        out_pressing: BoolArray,
    ) -> None:
        """Write the reservations of all jobs to the last five arrays; see `reserve.reserve`."""
        _ = sources  # captured, so that changed sources give a new cache key for the compiled code
        for job in range(len(age_s)):
            reason = reason_of(held[job], age_s[job], count[job], silent_s[job], pressed_ago_s[job], limits)
            out_reason[job] = reason
            for at in range(2):
                if reason != MEASURED:
                    out_mean[job, at], out_spread[job, at] = compute[job, at], 0.0
                    out_memory[job, at] = max(memory[job, at], largest[job, at])
                    continue
                kept_mean, spread = compute_of(
                    compute[job, at], mean[job, at], recent[job, at], squares[job, at], count[job], limits
                )
                out_mean[job, at], out_spread[job, at] = kept_mean, spread
                out_memory[job, at] = memory_of(memory[job, at], largest[job, at], limits.memory_margin)
                out_pressing[job] |= presses(recent[job, at], mean[job, at], spread, compute[job, at], limits)

    return reserve_all


reserve_all = _reserving(SOURCES)
"""Write the reservations of all jobs to the last five arrays; see `reserve.reserve`."""
