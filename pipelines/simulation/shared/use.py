"""The demand of instances in each minute, and what they receive: shares of compute, and kills if memory is short.

Demand is noise that depends only on the seed, the job and its age: a job demands the same under every way of reserving.
CPU of a machine and compute of a device are shared by weighted max-min filling; the weights are the original requests.
Shares are work-conserving.

References
----------
Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014 (SplitMix64).
Bertsekas, Gallager: Data Networks, 1992 (max-min fairness).
"""

import math
from typing import Any, Final

import numpy as np

from pipelines.simulation.shared.state import Records, State
from scheduler_core.kernels.kernel import kernel

MINUTE_S: Final = 60.0
"""Seconds between changes of demand, and between samples."""

WORK_SLACK: Final = 1e-9
"""Work left that counts as 0, as a share of the run time."""

MULTIPLY: Final = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLY_AGAIN: Final = np.uint64(0x94D049BB133111EB)
STEP: Final = np.uint64(0x9E3779B97F4A7C15)
UNIT: Final = 2.0**-53

WHOLE_JOB: Final[Any] = np.int64(-1)  # not a literal: numba would compile functions again for it
"""Number in place of an instance, for draws that are common to a job."""


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
            instance.need[at] = min(row.request[2 * at], level * row.scale[at] * noise)


@kernel
def until_peak_s(row: Records) -> float:
    """Return the work left until the memory peak of a job, at most 0 if it has begun."""
    left_s = row.peak_at_s - (row.run_s - row.left_s)
    return left_s if left_s > WORK_SLACK * max(1.0, row.run_s) else 0.0


@kernel
def memory_share(row: Records) -> float:
    """Return the share of its peak memory that a job uses now."""
    return 1.0 if until_peak_s(row) <= 0.0 else row.before_peak


SLACK: Final = 1.0 + 1e-9
"""Excess over a capacity that is ignored, against rounding."""

SLOWEST: Final = 1e-6
NOWHERE: Final[Any] = np.int64(-1)  # not a literal: numba would compile functions again for it


@kernel
def _sum_demands(state: State) -> None:
    for machine in range(len(state.machines)):
        state.machines[machine].demand = 0.0
        for device in range(state.devices.shape[1]):
            state.devices[machine, device].demand = 0.0
    for each in range(state.queue.tally[0].running):
        job = state.jobs[state.queue.running[each]]
        for place in range(job.first, job.first + job.instances):
            instance = state.instances[place]
            state.machines[instance.machine].demand += instance.need[0]
            for at in range(instance.devices):
                state.devices[instance.machine, state.device[place, at]].demand += instance.need[1] / instance.devices


@kernel
def _on(state: State, place: int, machine: int, device: int) -> float:
    """Return the share of an instance's compute on a machine (1 or 0), or on one of its devices if not negative."""
    instance = state.instances[place]
    if instance.machine != machine:
        return 0.0
    if device < 0:
        return 1.0
    for at in range(instance.devices):
        if state.device[place, at] == device:
            return float(1.0 / instance.devices)
    return 0.0


@kernel
def _level(state: State, capacity: float, machine: int, device: int) -> float:
    """Return the compute per unit of weight at which a saturated machine or device is full (progressive filling)."""
    column, weight_of = (0, 0) if device < 0 else (1, 2)
    level = 0.0
    while True:
        left, weight = capacity, 0.0
        for each in range(state.queue.tally[0].running):
            job = state.jobs[state.queue.running[each]]
            for place in range(job.first, job.first + job.instances):
                here = _on(state, place, machine, device)
                if state.instances[place].need[column] <= level * job.request[weight_of]:
                    left -= here * state.instances[place].need[column]
                else:
                    weight += here * job.request[weight_of]
        if weight <= 0.0:
            return math.inf
        if left / weight <= level * SLACK:
            return level
        level = left / weight


@kernel
def _set_levels(state: State, now_s: float) -> None:
    """Find the saturated machines and devices, and close their machines to new jobs for a while."""
    for at in range(len(state.machines)):
        machine = state.machines[at]
        saturated = machine.demand > machine.capacity[0] * SLACK
        machine.level = _level(state, machine.capacity[0], at, NOWHERE) if saturated else math.inf
        for number in range(state.devices.shape[1]):
            device = state.devices[at, number]
            over = device.demand > device.capacity * SLACK
            device.level = _level(state, device.capacity, at, number) if over else math.inf
            saturated = saturated or over
        if saturated:
            machine.closed_until_s = now_s + state.rules.close_s


JOINT_USE: Final = (0.4, 0.5, 0.7, 0.9, 1.0)
SPEED_AT: Final = (1.0, 0.98, 0.96, 0.85, 0.8)
"""Mean speed of jobs that share a device without partitions, by their joint use of it; linear between the points."""


@kernel
def shared_speed(joint: float) -> float:
    """Return the speed of jobs that share a device, relative to a device of their own, by their joint use (0 to 1).

    References
    ----------
    Hu et al.: Lucid, ASPLOS 2023: 1,388 pairs of training jobs on one GPU; means by joint utilisation.
    """
    speed = SPEED_AT[0]
    for at in range(1, len(JOINT_USE)):
        if joint > JOINT_USE[at - 1]:
            part = min((joint - JOINT_USE[at - 1]) / (JOINT_USE[at] - JOINT_USE[at - 1]), 1.0)
            speed = SPEED_AT[at - 1] + part * (SPEED_AT[at] - SPEED_AT[at - 1])
    return speed


@kernel
def _own_demand(state: State, job: int, machine: int, device: int) -> float:
    """Return the compute that all instances of a job demand of a device."""
    row, own = state.jobs[job], 0.0
    for place in range(row.first, row.first + row.instances):
        own += _on(state, place, machine, device) * state.instances[place].need[1]
    return float(own)


@kernel
def _speed(state: State, job: int, place: int) -> float:
    """Set what an instance receives, and return its speed."""
    row, instance = state.jobs[job], state.instances[place]
    machine, cpu, gpu = instance.machine, instance.need[0], instance.need[1]
    instance.share[0], instance.share[1], speed = cpu, gpu, 1.0
    if cpu > 0.0:
        instance.share[0] = min(cpu, state.machines[machine].level * row.request[0])
        speed = instance.share[0] / cpu
    if gpu <= 0.0:
        return float(speed)
    level, slowed = math.inf, 1.0
    for at in range(instance.devices):
        number = state.device[place, at]
        device = state.devices[machine, number]
        level = min(level, device.level)
        if state.rules.interference and device.demand > _own_demand(state, job, machine, number) * SLACK:
            slowed = min(slowed, shared_speed(min(device.demand / device.capacity, 1.0)))
    instance.share[1] = min(gpu, level * row.request[2])
    return float(min(speed, instance.share[1] / gpu) * slowed)


@kernel
def share_out(state: State, now_s: float) -> None:
    """Share compute among the running instances, and set each job's speed: that of its slowest instance."""
    _sum_demands(state)
    _set_levels(state, now_s)
    for each in range(state.queue.tally[0].running):
        job = state.queue.running[each]
        row, slowest = state.jobs[job], 1.0
        for place in range(row.first, row.first + row.instances):
            slowest = min(slowest, _speed(state, job, place))
        row.speed = max(slowest, SLOWEST)


@kernel
def _sum_memory(state: State) -> None:
    for machine in range(len(state.machines)):
        state.machines[machine].memory = 0.0
        for device in range(state.devices.shape[1]):
            state.devices[machine, device].memory = 0.0
    for each in range(state.queue.tally[0].running):
        row = state.jobs[state.queue.running[each]]
        share = memory_share(row)
        for place in range(row.first, row.first + row.instances):
            instance = state.instances[place]
            state.machines[instance.machine].memory += row.peak[0] * share
            for at in range(instance.devices):
                device = state.devices[instance.machine, state.device[place, at]]
                device.memory += row.peak[1] * share / instance.devices


@kernel
def _furthest_over(state: State, machine: int, device: int) -> int:
    """Return the job on a machine, or on a device if not negative, whose memory is furthest over its reservation.

    A job that was killed before and is within its request now is spared, unless all other jobs are spared, too.
    """
    column = 0 if device < 0 else 1
    worst, most, spared = NOWHERE, -math.inf, True
    for each in range(state.queue.tally[0].running):
        job = state.queue.running[each]
        row = state.jobs[job]
        over = row.peak[column] * memory_share(row) - row.reserved.memory[column]
        spare = row.full and over <= 0.0
        for place in range(row.first, row.first + row.instances):
            here = _on(state, place, machine, device)
            if here > 0.0 and (spared or not spare) and (over * here > most or (spared and not spare)):
                worst, most, spared = job, over * here, spare
    return int(worst)


@kernel
def job_to_kill(state: State) -> int:
    """Return the next job to kill because memory is short; -1 if none is."""
    _sum_memory(state)
    for at in range(len(state.machines)):
        machine = state.machines[at]
        if machine.memory > machine.capacity[1] * SLACK:
            return int(_furthest_over(state, at, NOWHERE))
        for number in range(state.devices.shape[1]):
            if state.devices[at, number].memory > state.devices[at, number].capacity * SLACK:
                return int(_furthest_over(state, at, number))
    return int(NOWHERE)
