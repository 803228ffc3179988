"""Running statistics of running jobs, built from their samples.

Samples are checked here too, since collectors send wrong ones. Pure and vectorised: no clock, no history.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

import numpy as np

from scheduler_core.reserve import ReservePolicy, Running
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["SampleFault", "Samples", "faults_of", "measure"]

MOST_USE: Final = 1e6
"""Largest plausible use of one instance, in cores, GPUs or GiB; a larger sample is a fault."""
AHEAD_S: Final = 60.0
"""Seconds by which a sample may be later than the job's age, since clocks differ."""


class SampleFault(StrEnum):
    """Why a sample is refused; codes of faults are places in this order, from 1 on."""

    NOT_FINITE = "not_finite"
    NEGATIVE = "negative"
    TOO_LARGE = "too_large"
    OUT_OF_ORDER = "out_of_order"
    AHEAD = "ahead"

    @classmethod
    def of_use(cls, value: float, most: float = MOST_USE) -> "SampleFault | None":
        """Return the fault of one amount, or None."""
        if not math.isfinite(value):
            return cls.NOT_FINITE
        if value < 0.0:
            return cls.NEGATIVE
        return cls.TOO_LARGE if value > most else None

    @classmethod
    def of_time(cls, at_s: float, age_s: float) -> "SampleFault | None":
        """Return the fault of one time since the start of a job of this age, or None."""
        return cls.AHEAD if math.isfinite(at_s) and at_s > age_s + AHEAD_S else cls.of_use(at_s, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """At most m samples of each of n running jobs, in the order of time, each value of one instance.

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
    [(1, 3, 'negative'), (2, 0, 'out_of_order')]
    """
    at_s, use = samples.at_s, samples.use
    taken = np.arange(at_s.shape[1]) < samples.count[:, None]
    latest = np.fmax.accumulate(np.concatenate([newest_s[:, None], at_s], axis=1), axis=1)[:, :-1]
    late = {SampleFault.OUT_OF_ORDER: at_s <= latest, SampleFault.AHEAD: at_s > age_s[:, None] + AHEAD_S}
    times = np.where(taken, _codes(at_s, late), 0)
    uses = np.where(
        taken[..., None] & samples.sent[:, None, :], _codes(use, {SampleFault.TOO_LARGE: use > MOST_USE}), 0
    )
    return np.concatenate([times[..., None], uses], axis=2)


def _codes(values: FloatArray, others: Mapping[SampleFault, BoolArray]) -> IntArray:
    """Return the code of the first fault of each value; 0 for none."""
    cases = {SampleFault.NOT_FINITE: ~np.isfinite(values), SampleFault.NEGATIVE: values < 0.0, **others}
    codes = [list(SampleFault).index(fault) + 1 for fault in cases]
    return np.select(list(cases.values()), codes, 0).astype(np.int64)


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
    """Add one sample of each job in place; a job whose time is NaN has none. `requests` (n, 2) are of CPU and GPUs."""
    from scheduler_core.kernels.reserving import RECENT

    new = np.isfinite(at_s)
    jobs: BoolArray | slice = new
    if new.all():
        jobs = slice(None)  # which copies nothing
    compute, time_s = use[jobs, :2], at_s[jobs][:, None]
    count, mean, squares = made.count[jobs][:, None], made.mean[jobs], made.squares[jobs]
    recent = made.recent[jobs] + np.where(count == 0.0, 1.0, RECENT) * (compute - made.recent[jobs])
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
