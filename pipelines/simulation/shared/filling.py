"""What instances receive at a moment: work-conserving shares of compute, and kills when memory does not suffice.

CPU of a machine and compute of a device are shared by weighted max-min filling; the weights are the original requests.

References
----------
Bertsekas, Gallager: Data Networks, 1992 (max-min fairness).
"""

import math
from typing import Any, Final

import numpy as np

from pipelines.simulation.shared.noise import memory_share
from pipelines.simulation.shared.state import State
from scheduler_core.kernels.kernel import kernel

__all__ = ["job_to_kill", "share_out"]

SLACK: Final = 1.0 + 1e-9
"""Excess over a capacity that is ignored, against rounding."""

SLOWEST: Final = 1e-6
NOWHERE: Final[Any] = np.int64(-1)  # not a literal, for which numba compiles functions apart


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
    level, neighbours = math.inf, 0.0
    for at in range(instance.devices):
        device = state.devices[machine, state.device[place, at]]
        level = min(level, device.level)
        if state.rules.interference > 0.0:
            own = _own_demand(state, job, machine, state.device[place, at])
            neighbours = max(neighbours, (min(device.demand, device.capacity) - own) / device.capacity)
    instance.share[1] = min(gpu, level * row.request[2])
    slowed = 1.0 - state.rules.interference * min(neighbours, 1.0)
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

    A job that was killed before, and is within its request now, is spared unless all others are such jobs, too.
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
def job_to_kill(state: State) -> tuple[int, int, int]:
    """Return a job to kill, its machine, and the device whose memory is short (-1: the machine's); job -1 for none."""
    _sum_memory(state)
    for at in range(len(state.machines)):
        machine = state.machines[at]
        if machine.memory > machine.capacity[1] * SLACK:
            return _furthest_over(state, at, NOWHERE), at, NOWHERE
        for number in range(state.devices.shape[1]):
            if state.devices[at, number].memory > state.devices[at, number].capacity * SLACK:
                return _furthest_over(state, at, number), at, number
    return NOWHERE, NOWHERE, NOWHERE
