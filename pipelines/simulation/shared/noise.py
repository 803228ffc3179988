"""What instances demand in each minute: noise that depends only on the seed, the job and its age.

So a job demands the same under every way of reserving.

References
----------
Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014 (SplitMix64).
"""

import math
from typing import Any, Final

import numpy as np

from pipelines.simulation.shared.state import Records, State
from scheduler_core.kernels.kernel import kernel

__all__ = ["MINUTE_S", "WORK_SLACK", "memory_share", "set_needs", "step_noise", "uniform", "until_peak_s"]

MINUTE_S: Final = 60.0
"""Seconds between changes of demand, and between samples."""

WORK_SLACK: Final = 1e-9
"""Work left that counts as none, as a share of the run time."""

MULTIPLY: Final = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLY_AGAIN: Final = np.uint64(0x94D049BB133111EB)
STEP: Final = np.uint64(0x9E3779B97F4A7C15)
UNIT: Final = 2.0**-53

WHOLE_JOB: Final[Any] = np.int64(-1)  # not a literal, for which numba compiles functions apart
LOST: Final[Any] = np.int64(-2)
"""Numbers in place of an instance, for draws that are common to a job."""


@kernel
def _mixed(state: np.uint64, value: int) -> np.uint64:
    x = (state ^ np.uint64(value)) + STEP
    x = (x ^ (x >> np.uint64(30))) * MULTIPLY
    x = (x ^ (x >> np.uint64(27))) * MULTIPLY_AGAIN
    return x ^ (x >> np.uint64(31))


@kernel
def uniform(seed: int, job: int, instance: int, age: int, channel: int) -> float:
    """Return a number in (0, 1) that depends on the arguments only."""
    x = _mixed(_mixed(_mixed(_mixed(_mixed(STEP, seed), job), instance), age), channel)
    return (float(x >> np.uint64(11)) + 0.5) * UNIT


@kernel
def _normal(seed: int, job: int, instance: int, age: int, channel: int) -> float:
    """Return a standard normal number that depends on the arguments only (Box and Muller)."""
    size = math.sqrt(-2.0 * math.log(uniform(seed, job, instance, age, 2 * channel)))
    return size * math.cos(2.0 * math.pi * uniform(seed, job, instance, age, 2 * channel + 1))


@kernel
def step_noise(state: State, job: int) -> None:
    """Draw the noise of a job's next minute, or of its first at age 0."""
    rules, row = state.rules, state.jobs[job]
    for at in range(2):
        keep = rules.slow_keep if row.age > 0 else 0.0
        fresh = _normal(rules.seed, job, WHOLE_JOB, row.age, at)
        row.slow[at] = keep * row.slow[at] + math.sqrt(1.0 - keep * keep) * fresh
        keep = 0.0
        if row.age > 0:
            keep = rules.cpu_keep if at == 0 else rules.gpu_keep
        for number in range(row.instances):
            fast = state.instances[row.first + number].fast
            fresh = _normal(rules.seed, job, number, row.age, at)
            fast[at] = keep * fast[at] + math.sqrt(1.0 - keep * keep) * fresh


@kernel
def set_needs(state: State, job: int) -> None:
    """Set what every instance of a job demands in this minute."""
    rules, row = state.rules, state.jobs[job]
    level = row.ramp_level if row.age * MINUTE_S < row.ramp_s else 1.0
    slow, fast = math.sqrt(rules.slow_share), math.sqrt(1.0 - rules.slow_share)
    for place in range(row.first, row.first + row.instances):
        instance = state.instances[place]
        for at in range(2):
            sigma = row.sigma[at]
            noise = math.exp(sigma * (slow * row.slow[at] + fast * instance.fast[at]) - 0.5 * sigma * sigma)
            instance.need[at] = min(row.limit[at], level * row.scale[at] * noise)


@kernel
def until_peak_s(row: Records) -> float:
    """Return the work left until the memory peak of a job, at most 0 if it has begun."""
    left_s = row.peak_at_s - (row.run_s - row.left_s)
    return left_s if left_s > WORK_SLACK * max(1.0, row.run_s) else 0.0


@kernel
def memory_share(row: Records) -> float:
    """Return the share of its peak memory that a job uses now."""
    return 1.0 if until_peak_s(row) <= 0.0 else row.before_peak
