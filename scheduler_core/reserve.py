"""Reservations of running jobs from their own samples: mean, spread and memory, job by job, without history.

A job in probation keeps its request. Then it reserves the mean and the standard deviation of its samples of CPU and GPU
compute, and its largest memory sample with a margin. The mean is the recent one where that is larger. `risk` turns
reservations into free capacity. Pure and vectorised; used by the service, and in compiled form by the simulation of
shared machines.

References
----------
Rzadca et al.: Autopilot, EuroSys 2020 (limits from a job's own use); Bashir et al.: Take it to the Limit, EuroSys 2021
(peaks of a machine instead of peaks of its jobs).
"""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from scheduler_core.kernels.reserving import Limits

__all__ = ["REASONS", "Measurements", "Reservations", "ReservePolicy", "ReserveReason", "reserve"]


class ReserveReason(StrEnum):
    """Why a job's reservation has its size."""

    PROBATION = "probation"
    STALE = "stale"
    PRESSING = "pressing"
    HELD = "held"
    MEASURED = "measured"


REASONS: Final = tuple(ReserveReason)
"""The reasons in the order of their codes."""


AT_LEAST: Final = {"min_samples": 1.0, "memory_margin": 1.0}
"""Lower bounds of a policy's numbers; the others are at least 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservePolicy:
    """When a running job is resized, and how much is reserved for it.

    Attributes
    ----------
    probation_s
        Age in seconds below which a job keeps its request.
    min_samples
        Minimum number of samples per instance; with fewer a job keeps its request.
    stale_s
        Age of the newest sample above which a job gets its request back.
    press_s, press_z
        A job presses on its reservation if a sample lifts its recent mean of CPU or GPU compute above the mean of the
        samples before by more than `press_z` of their standard deviations, and that mean is below the request. Samples
        of the probation, and the first `min_samples`, do not count. The job then has its request of that resource back
        for `press_s`.
    z
        Number of standard deviations of the sum of use that stay free on a machine or device; 1.28 is a risk of 10 %
        if the sum is normal.
    least_spread
        Least standard deviation, as a share of the mean, also for `press_z`.
    memory_margin
        Factor of the largest memory sample. Public logs show late peaks of 1.5 to 2.2 times the first minutes' peak.
    close_s
        Time for which a machine that was seen saturated gets no new job.
    """

    probation_s: float = 360.0
    min_samples: float = 3.0
    stale_s: float = 300.0
    press_s: float = 600.0
    press_z: float = 5.0
    z: float = 1.28
    least_spread: float = 0.2
    memory_margin: float = 2.2
    close_s: float = 600.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), AT_LEAST.get(each.name, 0.0)
            if not least <= value < math.inf:
                raise BadInput(
                    f"reserve policy: found {each.name} = {value!r}, expected a finite number of at least {least:g}"
                )

    def limits(self) -> "Limits":
        """Return the fields as numbers for compiled code."""
        from scheduler_core.kernels.reserving import Limits

        return Limits(**{each.name: float(getattr(self, each.name)) for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Running statistics of the samples of n running jobs, each value of one instance.

    Attributes
    ----------
    age_s, silent_s
        Time since the start, and since the newest sample (n,).
    pressed_ago_s
        Time since the job last pressed on its reservation of CPU and of GPUs, infinity if it never did; shape (n, 2).
    count
        Number of samples (n,).
    mean, squares, recent
        Mean, sum of squared deviations from it, and recent mean, of CPU cores and GPUs; shape (n, 2).
    memory
        Largest sample of memory in GiB and of GPU memory in GPUs, which is its share of a device's memory times the
        number of devices; shape (n, 2).
    held
        Whether a job keeps its request until it ends, as after a kill (n,).
    """

    age_s: FloatArray
    silent_s: FloatArray
    pressed_ago_s: FloatArray
    count: FloatArray
    mean: FloatArray
    squares: FloatArray
    recent: FloatArray
    memory: FloatArray
    held: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """What is reserved for one instance of each of n jobs.

    `mean` and `spread` (n, 2) are of CPU cores and GPUs. `memory` (n, 2) is GiB of memory, and GPU memory in GPUs.
    `reason` (n,) holds indices into `REASONS`.
    """

    mean: FloatArray
    spread: FloatArray
    memory: FloatArray
    reason: IntArray


def reserve(requests: FloatArray, seen: Measurements, policy: ReservePolicy | None = None) -> Reservations:
    """Return the reservations of n running jobs with these requests (n, 3): CPU cores, GiB of memory, GPUs.

    Memory is never reserved below the largest sample. A job without a request for memory (0) reserves the largest
    sample with its margin.

    Raises
    ------
    BadInput
        If a statistic has another shape, or is negative, infinite or NaN.

    Examples
    --------
    >>> one = np.ones((1, 2))
    >>> seen = Measurements(
    ...     age_s=np.array([3600.0]), silent_s=np.array([30.0]), pressed_ago_s=np.inf * one,
    ...     count=np.array([59.0]), mean=one, squares=5.22 * one, recent=one, memory=2.0 * one, held=np.array([False]))
    >>> found = reserve(np.array([[6.0, 29.0, 4.0]]), seen, ReservePolicy(z=1.0, least_spread=0.0, memory_margin=1.5))
    >>> found.mean[0].tolist(), found.spread[0].round(3).tolist(), found.memory[0].tolist()
    ([1.0, 1.0], [0.3, 0.3], [3.0, 3.0])
    """
    from scheduler_core.kernels.reserving import reserve_all

    policy = policy or ReservePolicy()
    _check(requests, seen)
    count = len(requests)
    made = Reservations(
        mean=np.empty((count, 2)),
        spread=np.empty((count, 2)),
        memory=np.empty((count, 2)),
        reason=np.empty(count, dtype=np.int64),
    )
    columns = {
        each.name: np.ascontiguousarray(getattr(seen, each.name), np.bool_ if each.name == "held" else np.float64)
        for each in fields(seen)
    }
    reserve_all(
        np.ascontiguousarray(requests, np.float64),
        columns["age_s"],
        columns["silent_s"],
        columns["pressed_ago_s"],
        columns["count"],
        columns["mean"],
        columns["squares"],
        columns["recent"],
        columns["memory"],
        columns["held"],
        policy.limits(),
        made.mean,
        made.spread,
        made.memory,
        made.reason,
    )
    return made


def _check(requests: FloatArray, seen: Measurements) -> None:
    count = len(requests)
    pairs = ("mean", "squares", "recent", "memory", "pressed_ago_s")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(pairs, (count, 2))
    shapes["requests"] = (count, 3)
    for name in ("age_s", "silent_s", "count", "held"):
        shapes[name] = (count,)
    for name, shape in shapes.items():
        values = requests if name == "requests" else getattr(seen, name)
        known = name == "pressed_ago_s" or bool(np.isfinite(values).all())
        if np.shape(values) != shape or not known or not bool((values >= 0.0).all()):
            raise BadInput(
                f"measurements: found {name} of shape {np.shape(values)}, or with values below 0, infinite or NaN; "
                f"expected the shape {shape} and finite amounts of at least 0"
            )
