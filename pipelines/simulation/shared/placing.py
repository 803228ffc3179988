"""Placement of a gang by best fit on shared machines, and which waiting job is next.

GPU compute and GPU memory are checked apart, because a newcomer may be sized for compute but not for memory.
"""

import math
from typing import Any, Final

import numpy as np

from pipelines.simulation.shared.state import Records, State
from scheduler_core.kernels.kernel import kernel

__all__ = ["next_waiting", "place"]

SLACK: Final = 1e-6
"""Units that a demand may exceed the free capacity by, against rounding."""

EQUAL: Final = 1e-9
"""Difference of dominant shares that is ignored, against rounding."""

WHOLE: Final = 1000.0
NONE: Final[Any] = np.int64(-1)  # not a literal, for which numba compiles functions apart


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


@kernel
def next_waiting(state: State) -> int:
    """Return the waiting job to try next under DRF: the first of the user with the least dominant share.

    It is -1 if all jobs were tried in this round.
    """
    queue = state.queue
    best, least, key = NONE, math.inf, math.inf
    for at in range(queue.tally[0].waiting):
        job = state.jobs[queue.waiting[at]]
        if job.tried:
            continue
        share = 0.0
        for resource in range(3):
            share = max(share, queue.held[job.user, resource] / queue.held[-1, resource])
        if share < least - EQUAL or (share <= least + EQUAL and job.key < key):
            best, least, key = queue.waiting[at], share, job.key
    return int(best)
