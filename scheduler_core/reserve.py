"""Reservations of running jobs from their own samples: mean, spread and memory, job by job, without history.

A job in probation keeps its request. Then it reserves the mean and the standard deviation of its samples of CPU and GPU
compute, and its largest memory sample with a margin. If the recent mean is larger, it replaces the mean. Free capacity
then bounds the risk that running jobs together want more than a machine has. The service calls this module; the rules
of one job are in `kernels.reserving`, which the simulation of shared machines compiles.

References
----------
Rzadca et al.: Autopilot, EuroSys 2020 (limits from a job's own use); Bashir et al.: Take it to the Limit: Peak
Prediction-driven Resource Overcommitment in Datacenters, EuroSys 2021 (peaks of a machine instead of peaks of its jobs;
the N-sigma predictor).
"""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.kernels import reserving as rules
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "Reservations",
    "ReservePolicy",
    "ReserveReason",
    "Running",
    "SampleFault",
    "Samples",
    "admits",
    "faults_of",
    "free_capacity",
    "measure",
    "reserve",
]


class ReserveReason(StrEnum):
    """Why a job's reservation has its size; a reason's code is its position in this list."""

    PROBATION = "probation"
    STALE = "stale"
    PRESSING = "pressing"
    HELD = "held"
    MEASURED = "measured"


AT_LEAST: Final = {"min_samples": 1.0, "memory_margin": 1.0}
"""Lower bounds of a policy's numbers; the others are at least 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservePolicy:
    """When a running job is resized, and how much is reserved for it.

    - `probation_s`: age in seconds below which a job keeps its request.
    - `min_samples`: minimum number of samples per instance; with fewer a job keeps its request.
    - `stale_s`: age of the newest sample above which a job gets its request back.
    - `press_s`, `press_z`: a job presses on its reservation if a sample lifts its recent mean of CPU or GPU compute
      above the mean of the samples before by more than `press_z` of their standard deviations, and that mean is below
      the request. Samples of the probation, and the first `min_samples`, do not count. The job then has its request of
      that resource back for `press_s`.
    - `z`: number of standard deviations of the sum of use that stay free on a machine or device; 1.28 is a risk of 10 %
      if the sum is normal.
    - `least_spread`: least standard deviation, as a share of the mean, also for `press_z`.
    - `memory_margin`: factor of the largest memory sample. Public logs show late peaks of 1.5 to 2.2 times the first
      minutes' peak.
    - `close_s`: time for which a machine that was seen saturated gets no new job.
    - `device_load`: largest sum of the means of jobs on one GPU that takes another job, as a share of the GPU, because
      jobs that share a GPU slow each other before it is full.
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
    device_load: float = 0.6

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), AT_LEAST.get(each.name, 0.0)
            if not least <= value < math.inf:
                raise BadInput(
                    f"reserve policy: found {each.name} = {value!r}, expected a finite number of at least {least:g}"
                )

    def limits(self) -> rules.Limits:
        """Return the fields as numbers for compiled code."""
        return rules.Limits(**{each.name: float(getattr(self, each.name)) for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Running statistics of the samples of n jobs; a use that is not measured is NaN.

    `count` (n,) is the number of samples, `at_s` (n,) the time from the job's start to its newest sample in seconds,
    minus infinity if there is none. `pressed_s` (n, 2) is the time to the sample at which the job last pressed on its
    reservation of CPU cores and of GPUs, minus infinity if none did. `mean`, `squares` and `recent` (n, 2) are mean,
    sum of squared deviations from it, and recent mean of CPU cores and GPUs. `memory` (n, 2) are the largest samples
    of memory (GiB) and of GPU memory (share of a device times the number of devices).
    """

    count: FloatArray
    at_s: FloatArray
    pressed_s: FloatArray
    mean: FloatArray
    squares: FloatArray
    recent: FloatArray
    memory: FloatArray

    @classmethod
    def none(cls, jobs: int) -> "Running":
        """Return the statistics of jobs without a sample."""
        mean, squares, recent = np.zeros((3, jobs, 2))
        return cls(
            count=np.zeros(jobs),
            at_s=np.full(jobs, -np.inf),
            pressed_s=np.full((jobs, 2), -np.inf),
            mean=mean,
            squares=squares,
            recent=recent,
            memory=np.full((jobs, 2), np.nan),
        )


MOST_USE: Final = 1e6
"""Largest plausible use of one instance, in cores, GPUs or GiB; a larger sample is a fault."""
AHEAD_S: Final = 60.0
"""Seconds by which a sample may be later than the job's age, since clocks differ."""


class SampleFault(StrEnum):
    """Why a sample is refused; a fault's code is its position in this list, from 1 on."""

    OUT_OF_RANGE = "out_of_range"
    OUT_OF_ORDER = "out_of_order"
    AHEAD = "ahead"

    @classmethod
    def of_use(cls, value: float) -> "SampleFault | None":
        """Return the fault of one amount, or None."""
        return None if 0.0 <= value <= MOST_USE else cls.OUT_OF_RANGE

    @classmethod
    def of_time(cls, at_s: float, age_s: float) -> "SampleFault | None":
        """Return the fault of one time since the start of a job of this age, or None."""
        if not 0.0 <= at_s < math.inf:
            return cls.OUT_OF_RANGE
        return cls.AHEAD if at_s > age_s + AHEAD_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """At most m samples of each of n running jobs in order of time; values are per instance.

    `count` (n,) is the number of samples of each job; further places hold NaN. `at_s` (n, m) is the time of each sample
    in seconds since the job's start. `use` (n, m, 4) are CPU cores, GPUs, GiB of memory, and GPU memory in GPUs. `sent`
    (n, 4) marks which of the four were sampled at all; the others are NaN.
    """

    count: IntArray
    at_s: FloatArray
    use: FloatArray
    sent: BoolArray


def faults_of(samples: Samples, newest_s: FloatArray, age_s: FloatArray) -> IntArray:
    """Return the code of the fault of each value of each sample (n, m, 5): of its time, then of its four uses.

    Code 0 is no fault, code k the k-th `SampleFault`. `newest_s` (n,) is the time of the newest sample that is known
    already, minus infinity if there is none, `age_s` (n,) the time since the start of each job.

    Examples
    --------
    >>> times, use = np.array([[60.0, 120.0, 90.0]]), np.ones((1, 3, 4))
    >>> use[0, 1, 2] = -1.0
    >>> sampled = Samples(count=np.array([3]), at_s=times, use=use, sent=np.ones((1, 4), dtype=np.bool_))
    >>> codes = faults_of(sampled, np.array([-np.inf]), np.array([600.0]))
    >>> names = tuple(SampleFault)
    >>> [(sample, value, str(names[codes[0, sample, value] - 1])) for _, sample, value in np.argwhere(codes).tolist()]
    [(1, 3, 'out_of_range'), (2, 0, 'out_of_order')]
    """
    at_s, use = samples.at_s, samples.use
    taken = np.arange(at_s.shape[1]) < samples.count[:, None]
    latest = np.fmax.accumulate(np.concatenate([newest_s[:, None], at_s], axis=1), axis=1)[:, :-1]
    past = [~np.isfinite(at_s) | (at_s < 0.0), at_s <= latest, at_s > age_s[:, None] + AHEAD_S]
    uses = ~((use >= 0.0) & (use <= MOST_USE)) & samples.sent[:, None, :]
    codes = np.concatenate([np.select(past, (1, 2, 3), 0)[..., None], uses], axis=2)
    return np.where(taken[..., None], codes, 0).astype(np.int64)


def measure(requests: FloatArray, samples: Samples, known: Running, policy: ReservePolicy | None = None) -> Running:
    """Return the statistics of n running jobs after their samples, which are valid (see `faults_of`).

    `requests` (n, 3) are CPU cores, GiB of memory and GPUs. Each sample is judged against the statistics before it, so
    `pressed_s` does not depend on how the samples are dealt to calls.

    Examples
    --------
    >>> times, use = np.array([[60.0, 120.0, 180.0]]), np.array([[[1.0, 0.0, 4.0, 0.0], [3.0, 0.0, 6.0, 0.0],
    ...     [2.0, 0.0, 5.0, 0.0]]])
    >>> sampled = Samples(count=np.array([3]), at_s=times, use=use, sent=np.ones((1, 4), dtype=np.bool_))
    >>> found = measure(np.array([[6.0, 29.0, 0.0]]), sampled, Running.none(1))
    >>> found.count.tolist(), found.mean.tolist(), found.squares.tolist(), found.memory.tolist()
    ([3.0], [[2.0, 0.0]], [[2.0, 0.0]], [[6.0, 0.0]])
    """
    policy = policy or ReservePolicy()
    compute = requests[:, [0, 2]]
    made = Running(**{each.name: getattr(known, each.name).copy() for each in fields(Running)})
    for at_s, use in zip(samples.at_s.T.copy(), samples.use.transpose(1, 0, 2).copy(), strict=True):
        _add(made, compute, at_s, use, policy)
    return made


def _add(made: Running, requests: FloatArray, at_s: FloatArray, use: FloatArray, policy: ReservePolicy) -> None:
    """Add one sample of each job in place; NaN as its time means no sample. `requests` (n, 2) are of CPU and GPUs."""
    new = np.isfinite(at_s)
    jobs: BoolArray | slice = new
    if new.all():
        jobs = slice(None)  # which copies nothing
    compute, time_s = use[jobs, :2], at_s[jobs][:, None]
    count, mean, squares = made.count[jobs][:, None], made.mean[jobs], made.squares[jobs]
    recent = made.recent[jobs] + np.where(count == 0.0, 1.0, rules.RECENT) * (compute - made.recent[jobs])
    deviation = np.maximum(np.sqrt(squares / np.maximum(count - 1.0, 1.0)), policy.least_spread * mean)
    presses = (recent > mean + policy.press_z * deviation) & (mean < requests[jobs])
    presses &= (time_s >= policy.probation_s) & (count >= policy.min_samples)
    made.pressed_s[jobs] = np.where(presses, time_s, made.pressed_s[jobs])
    moved = compute - mean
    made.mean[jobs] = mean + moved / (count + 1.0)
    made.squares[jobs] = squares + moved * (compute - made.mean[jobs])
    made.recent[jobs] = recent
    made.memory[jobs] = np.fmax(made.memory[jobs], use[jobs, 2:])
    made.count[jobs] += 1.0
    made.at_s[jobs] = at_s[jobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """What is reserved for one instance of each of n jobs.

    `mean` and `spread` (n, 2) are of CPU cores and GPUs. `memory` (n, 2) is GiB of memory, and GPU memory in GPUs.
    `reason` (n,) holds codes of `ReserveReason`.
    """

    mean: FloatArray
    spread: FloatArray
    memory: FloatArray
    reason: IntArray


def reserve(
    requests: FloatArray, known: Running, age_s: FloatArray, held: BoolArray, policy: ReservePolicy | None = None
) -> Reservations:
    """Return the reservations of n running jobs with these requests (n, 3): CPU cores, GiB of memory, GPUs.

    `age_s` (n,) is the time since each job's start; jobs marked in `held` (n,) keep their request until they end, as
    after a kill. A use that is not measured keeps its request. Memory is never reserved below the largest sample. A job
    without a request for memory (0) reserves the largest sample with its margin.

    Examples
    --------
    >>> one = np.ones((1, 2))
    >>> known = Running(count=np.array([59.0]), at_s=np.array([3570.0]), pressed_s=-np.inf * one, mean=one,
    ...     squares=5.22 * one, recent=one, memory=2.0 * one)
    >>> policy = ReservePolicy(z=1.0, least_spread=0.0, memory_margin=1.5)
    >>> found = reserve(np.array([[6.0, 29.0, 4.0]]), known, np.array([3600.0]), np.array([False]), policy)
    >>> found.mean[0].tolist(), found.spread[0].round(3).tolist(), found.memory[0].tolist()
    ([1.0, 1.0], [0.3, 0.3], [3.0, 3.0])
    """
    limits, unknown = (policy or ReservePolicy()).limits(), np.isnan(known.mean)
    compute, memory = requests[:, [0, 2]], requests[:, [1, 2]]
    silent_s = np.where(np.isfinite(known.at_s), np.maximum(age_s - known.at_s, 0.0), age_s)
    largest = np.where(np.isnan(known.memory), memory, known.memory)
    made = Reservations(
        mean=compute.copy(),
        spread=np.zeros_like(compute),
        memory=largest.copy(),
        reason=np.zeros(len(requests), np.int64),
    )
    of_use = np.stack(
        [
            compute,
            np.where(unknown, compute, known.mean),
            np.where(unknown, compute, known.recent),
            np.where(unknown, 0.0, known.squares),
            np.maximum(age_s[:, None] - known.pressed_s, 0.0),
        ],
        axis=2,
    ).tolist()
    of_jobs = zip(held.tolist(), age_s.tolist(), known.count.tolist(), silent_s.tolist(), strict=True)
    for job, (kept, age, count, silent) in enumerate(of_jobs):
        reason = rules.reason_of(kept, age, count, silent, limits)
        measured = reason == rules.MEASURED
        for at, (asked, mean, recent, squares, pressed_ago_s) in enumerate(of_use[job]):
            made.memory[job, at] = rules.memory_of(memory[job, at], largest[job, at], limits.memory_margin, measured)
            if measured and pressed_ago_s < limits.press_s:
                reason = rules.PRESSING
            elif measured:
                made.mean[job, at], made.spread[job, at] = rules.compute_of(asked, mean, recent, squares, count, limits)
        made.reason[job] = reason
    return made


SLACK: Final = 1e-9
"""Amount that a demand may exceed the free capacity by, against rounding."""


def free_capacity(
    capacity: FloatArray, machine: IntArray, instances: FloatArray, mean: FloatArray, spread: FloatArray, z: float
) -> FloatArray:
    """Return the capacity (m,) that new jobs of constant use may take on each machine; it can be negative.

    It is the capacity minus the sum of means minus z times the root of the summed variances: jobs are taken as
    independent. Entry i of the other arrays (k,) is a job with `instances[i]` instances on machine `machine[i]`, each
    with the reserved mean and standard deviation. A job on several machines has several entries.

    >>> ones = np.ones(2)
    >>> free_capacity(np.array([10.0]), np.array([0, 0]), np.array([3.0, 1.0]), ones, 0.5 * ones, 2.0).tolist()
    [4.0]
    """
    means = np.bincount(machine, weights=instances * mean, minlength=len(capacity))
    variances = np.bincount(machine, weights=instances * spread * spread, minlength=len(capacity))
    return np.asarray(capacity - means - z * np.sqrt(variances), dtype=np.float64)


def admits(free: FloatArray, variance: FloatArray, mean: float, spread: float, instances: int, z: float) -> BoolArray:
    """Return which machines (m,) can host a whole gang whose instances reserve `mean` and `spread`.

    `free` (m,) is what `free_capacity` returned, and `variance` (m,) the sum of variances of the jobs already there.

    >>> admits(np.array([4.0, 3.5]), np.array([1.0, 0.0]), 3.0, 0.5, 1, 2.0).tolist()
    [True, False]
    """
    more = np.sqrt(variance + instances * spread * spread) - np.sqrt(variance)
    fits: BoolArray = instances * mean + z * more <= free + SLACK
    return fits
