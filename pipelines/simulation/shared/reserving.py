"""Samples of running jobs, reservations made from them, and placement of gangs by best fit in what these leave free.

The rules of reservations are those of `scheduler_core.reserve`, in their compiled form
(`scheduler_core.kernels.reserving`). GPU compute and GPU memory are checked apart, because a newcomer may be sized for
compute but not for memory.
"""

import math
from typing import Any, Final

import numpy as np

from pipelines.simulation.shared.state import Records, State
from pipelines.simulation.shared.use import MINUTE_S, memory_share
from scheduler_core.kernels.kernel import kernel
from scheduler_core.kernels.reserving import (
    MEASURED,
    PRESSING,
    compute_of,
    free_under_risk,
    memory_of,
    presses,
    reason_of,
    recent_of,
)


@kernel
def forget_samples(state: State, job: int) -> None:
    """Empty the statistics of a job that starts."""
    seen = state.samples[job]
    seen.count = 0.0
    for at in range(2):
        seen.mean[at] = seen.squares[at] = seen.recent[at] = seen.memory[at] = 0.0
        seen.pressed_s[at] = -math.inf


@kernel
def sample(state: State, job: int, now_s: float) -> None:
    """Add the use of the last minute to a job's statistics; the first, partial minute does not count."""
    row, seen = state.jobs[job], state.samples[job]
    counts, before, share = row.age > 1, seen.count, memory_share(row)
    judged = row.age * MINUTE_S >= state.policy.probation_s and before / row.instances >= state.policy.min_samples
    for at in range(2):
        total, count, mean_before, squares_before = 0.0, before, seen.mean[at], seen.squares[at]
        for place in range(row.first, row.first + row.instances):
            used = state.instances[place].used[at] / MINUTE_S
            state.instances[place].used[at] = 0.0
            total += used
            if counts:
                count += 1.0
                moved = used - seen.mean[at]
                seen.mean[at] += moved / count
                seen.squares[at] += moved * (used - seen.mean[at])
        if counts:
            seen.recent[at] = recent_of(seen.recent[at], total / row.instances, before)
            request = row.request[2 * at]
            if judged and presses(seen.recent[at], mean_before, squares_before, before, request, state.policy):
                seen.pressed_s[at] = now_s
            seen.memory[at] = max(seen.memory[at], row.peak[at] * share)
    if counts:
        seen.count = before + row.instances


@kernel
def copy_reservation(old: Records, new: Records) -> None:
    """Copy a reservation."""
    for at in range(2):
        new.mean[at], new.variance[at], new.memory[at] = old.mean[at], old.variance[at], old.memory[at]


@kernel
def request_back(row: Records) -> None:
    """Reserve a job's request."""
    row.reserved.mean[0], row.reserved.mean[1] = row.request[0], row.request[2]
    row.reserved.memory[0], row.reserved.memory[1] = row.request[1], row.request[2]
    row.reserved.variance[0] = row.reserved.variance[1] = 0.0


@kernel
def reserve(state: State, job: int, now_s: float) -> None:
    """Set the reservation of a running job from its samples, of which none is late."""
    policy, row, seen = state.policy, state.jobs[job], state.samples[job]
    row.reason = reason_of(row.full, row.age * MINUTE_S, seen.count / row.instances, 0.0, policy)
    if row.reason != MEASURED:
        request_back(row)
        if row.age * MINUTE_S < policy.probation_s and not row.full:
            copy_reservation(row.prior, row.reserved)
    for at in range(2):
        measured = row.reason == MEASURED or row.reason == PRESSING
        row.reserved.memory[at] = memory_of(row.request[1 + at], seen.memory[at], policy.memory_margin, measured)
        if measured:
            _reserve_measured(state, job, at, seen, now_s)


@kernel
def _reserve_measured(state: State, job: int, at: int, seen: Records, now_s: float) -> None:
    """Set the reservation of CPU (`at` 0) or GPU compute (1) from samples."""
    policy, row = state.policy, state.jobs[job]
    asked, mean, recent, squares = row.request[2 * at], seen.mean[at], seen.recent[at], seen.squares[at]
    row.reserved.mean[at], row.reserved.variance[at] = asked, 0.0
    if now_s - seen.pressed_s[at] < policy.press_s:
        row.reason = PRESSING
        return
    kept, spread = compute_of(asked, mean, recent, squares, seen.count, policy)
    row.reserved.mean[at], row.reserved.variance[at] = kept, spread * spread


@kernel
def _sum_reservations(state: State) -> None:
    for at in range(len(state.machines)):
        machine = state.machines[at]
        machine.mean = machine.variance = machine.memory = 0.0
        for number in range(state.devices.shape[1]):
            device = state.devices[at, number]
            device.mean = device.variance = device.memory = 0.0
    for each in range(state.queue.tally[0].running):
        job = state.jobs[state.queue.running[each]]
        reserved = job.reserved
        for place in range(job.first, job.first + job.instances):
            instance = state.instances[place]
            machine = state.machines[instance.machine]
            machine.mean += reserved.mean[0]
            machine.variance += reserved.variance[0]
            machine.memory += reserved.memory[0]
            for at in range(instance.devices):
                device = state.devices[instance.machine, state.device[place, at]]
                device.mean += reserved.mean[1] / instance.devices
                device.variance += reserved.variance[1] / (instance.devices * instance.devices)
                device.memory += reserved.memory[1] / instance.devices


CLOSED: Final = -1.0


@kernel
def find_free(state: State, now_s: float) -> None:
    """Set the capacity to allocate on every machine and device; it is 0 on a closed machine."""
    rules = state.rules
    _sum_reservations(state)
    for at in range(len(state.machines)):
        machine = state.machines[at]
        is_open = now_s >= machine.closed_until_s
        free = free_under_risk(rules.more_cpu * machine.capacity[0], machine.mean, machine.variance, rules.z)
        machine.free[0] = free if is_open else CLOSED
        machine.free[1] = rules.more_memory * machine.capacity[1] - machine.memory if is_open else CLOSED
        for number in range(state.devices.shape[1]):
            device = state.devices[at, number]
            capacity = rules.more_gpu * device.capacity
            free = free_under_risk(capacity, device.mean, device.variance, rules.z)
            if rules.reclaims and rules.devices and device.mean > 0.0:
                free = min(free, state.policy.device_load * device.capacity - device.mean)
            device.free[0] = free if is_open else CLOSED
            device.free[1] = capacity - device.memory if is_open else CLOSED


SLACK: Final = 1e-6
"""Units that a demand may exceed the free capacity by, against rounding."""

WHOLE: Final = 1000.0
NONE: Final[Any] = np.int64(-1)  # not a literal: numba would compile functions again for it


@kernel
def _freeness(state: State, at: int) -> float:
    """Return the free CPU, memory and GPUs of a machine as shares of the largest machine, summed."""
    machine, gpus = state.machines[at], 0.0
    for number in range(state.devices.shape[1]):
        device = state.devices[at, number]
        gpus += min(device.free[0], device.free[1])
    cpu, memory = machine.free[0] / machine.largest[0], machine.free[1] / machine.largest[1]
    return float(cpu + memory + gpus / machine.largest[2])


@kernel
def _pick_devices(state: State, row: Records, machine: int, slot: int) -> bool:
    """Choose devices of a machine for one instance: those with the least sufficient free capacity."""
    picked = state.queue.picked
    for at in range(picked.shape[1]):
        picked[slot, at] = NONE
    asked = row.request[2]
    if asked <= 0.0:
        return True
    wide = math.ceil(asked / WHOLE - SLACK) if state.rules.devices else 1
    compute, memory = row.sized[2] / wide, row.sized[3] / wide
    for at in range(wide):
        best, least = NONE, math.inf
        for number in range(state.devices.shape[1]):
            device = state.devices[machine, number]
            free = min(device.free[0], device.free[1])
            fits = device.capacity + SLACK >= asked / wide
            fits = fits and device.free[0] + SLACK >= compute and device.free[1] + SLACK >= memory
            for earlier in range(at):
                fits = fits and picked[slot, earlier] != number
            if fits and free < least - SLACK:
                best, least = number, free
        if best < 0:
            return False
        picked[slot, at] = best
    return True


@kernel
def _take(state: State, row: Records, slot: int, sign: float) -> None:
    """Subtract (`sign` -1) a placed instance from the free capacity, or add it back (1)."""
    queue, at = state.queue, state.queue.machine[slot]
    machine = state.machines[at]
    machine.free[0] += sign * row.sized[0]
    machine.free[1] += sign * row.sized[1]
    wide = 0
    while wide < queue.picked.shape[1] and queue.picked[slot, wide] >= 0:
        wide += 1
    for each in range(wide):
        device = state.devices[at, queue.picked[slot, each]]
        device.free[0] += sign * row.sized[2] / wide
        device.free[1] += sign * row.sized[3] / wide


@kernel
def _may_fit(machines: Records, row: Records) -> bool:
    """Return False if the CPU or memory of all machines is too small for the gang, a quick test."""
    cpu = memory = 0.0
    for at in range(len(machines)):
        cpu += max(machines[at].free[0], 0.0)
        memory += max(machines[at].free[1], 0.0)
    return bool(row.sized[0] * row.instances <= cpu + SLACK and row.sized[1] * row.instances <= memory + SLACK)


@kernel
def _fullest(machines: Records) -> int:
    """Return the machine with the least free capacity of those not yet passed; -1 if all are."""
    best, least = NONE, math.inf
    for at in range(len(machines)):
        if not machines[at].passed and machines[at].freeness < least:
            best, least = at, machines[at].freeness
    return int(best)


@kernel
def _fits(machine: Records, row: Records) -> bool:
    """Return whether CPU and memory of one instance fit a machine that is at least as large as the request."""
    for at in range(2):
        if machine.free[at] + SLACK < row.sized[at] or machine.capacity[at] + SLACK < row.request[at]:
            return False
    return True


@kernel
def place(state: State, job: int) -> bool:
    """Choose machines and devices for a gang and take their capacity; without room for all instances change nothing."""
    row, machines = state.jobs[job], state.machines
    if not _may_fit(machines, row):
        return False
    for at in range(len(machines)):
        machines[at].freeness = _freeness(state, at)
        machines[at].passed = False
    for slot in range(row.instances):
        at = _fullest(machines)
        while at >= 0:
            if _fits(machines[at], row) and _pick_devices(state, row, at, slot):
                break
            machines[at].passed = True
            at = _fullest(machines)
        if at < 0:
            for placed in range(slot):
                _take(state, row, placed, 1.0)
            return False
        state.queue.machine[slot] = at
        _take(state, row, slot, -1.0)
    return True
