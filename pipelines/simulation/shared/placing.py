"""Placement of a gang by best fit on shared machines, and which waiting job is next. Called by `loop`.

GPU compute and GPU memory are checked apart, because a newcomer may be sized for compute but not for memory.
"""

import math
from typing import Final

from pipelines.simulation.shared.state import State
from scheduler_core.kernels.kernel import kernel

__all__ = ["next_waiting", "place", "size_of"]

SLACK: Final = 1e-6
"""Units that a demand may exceed the free capacity by, against rounding."""

WHOLE: Final = 1000.0


@kernel
def size_of(state: State, job: int, resource: int) -> float:
    """Return what must be free for one instance: CPU, memory, GPU, device memory; after a kill its request."""
    row = state.jobs[job]
    return float(row.request[min(resource, 2)] if row.full else row.sized[resource])


@kernel
def _fullness(state: State, at: int) -> float:
    """Return the free CPU, memory and GPUs of a machine as shares of the machine, summed."""
    machine = state.machines[at]
    gpus, capacity = 0.0, 0.0
    for number in range(state.devices.shape[1]):
        device = state.devices[at, number]
        gpus += min(device.free[0], device.free[1])
        capacity += device.capacity
    cpu, memory = machine.free[0] / max(machine.capacity[0], 1.0), machine.free[1] / max(machine.capacity[1], 1.0)
    return float(cpu + memory + gpus / max(capacity, 1.0))


@kernel
def _pick_devices(state: State, job: int, machine: int, slot: int) -> bool:
    """Choose devices of a machine for one instance: those with the least sufficient free capacity."""
    picked = state.queue.picked
    for at in range(picked.shape[1]):
        picked[slot, at] = -1
    asked = state.jobs[job].request[2]
    if asked <= 0.0:
        return True
    wide = math.ceil(asked / WHOLE - SLACK) if state.rules.devices else 1
    compute, memory = size_of(state, job, 2) / wide, size_of(state, job, 3) / wide
    for at in range(wide):
        best, least = -1, math.inf
        for number in range(state.devices.shape[1]):
            device = state.devices[machine, number]
            free = min(device.free[0], device.free[1])
            fits = device.free[0] + SLACK >= compute and device.free[1] + SLACK >= memory and device.capacity > 0.0
            for earlier in range(at):
                fits = fits and picked[slot, earlier] != number
            if fits and free < least - SLACK:
                best, least = number, free
        if best < 0:
            return False
        picked[slot, at] = best
    return True


@kernel
def _take(state: State, job: int, slot: int, sign: float) -> None:
    """Subtract (`sign` -1) a placed instance from the free capacity, or add it back (1)."""
    queue, at = state.queue, state.queue.machine[slot]
    machine = state.machines[at]
    machine.free[0] += sign * size_of(state, job, 0)
    machine.free[1] += sign * size_of(state, job, 1)
    wide = 0
    while wide < queue.picked.shape[1] and queue.picked[slot, wide] >= 0:
        wide += 1
    for each in range(wide):
        device = state.devices[at, queue.picked[slot, each]]
        device.free[0] += sign * size_of(state, job, 2) / wide
        device.free[1] += sign * size_of(state, job, 3) / wide


@kernel
def _may_fit(state: State, job: int) -> bool:
    """Return False if the CPU or memory of all machines is too small for the gang, a quick test."""
    cpu = memory = 0.0
    for at in range(len(state.machines)):
        cpu += max(state.machines[at].free[0], 0.0)
        memory += max(state.machines[at].free[1], 0.0)
    count = state.jobs[job].instances
    return bool(size_of(state, job, 0) * count <= cpu + SLACK and size_of(state, job, 1) * count <= memory + SLACK)


@kernel
def _fullest(state: State) -> int:
    """Return the machine with the least free capacity of those not yet filled; -1 if all are."""
    best, least = -1, math.inf
    for at in range(len(state.machines)):
        if not state.machines[at].passed and state.machines[at].fullness < least:
            best, least = at, state.machines[at].fullness
    return best


@kernel
def place(state: State, job: int) -> bool:
    """Choose machines and devices for a gang and take their capacity; without room for all instances change nothing."""
    if not _may_fit(state, job):
        return False
    queue, count, placed = state.queue, state.jobs[job].instances, 0
    for at in range(len(state.machines)):
        state.machines[at].fullness = _fullness(state, at)
        state.machines[at].passed = False
    while placed < count:
        at = _fullest(state)
        if at < 0:
            break
        machine = state.machines[at]
        machine.passed = True
        while placed < count:
            fits = machine.free[0] + SLACK >= size_of(state, job, 0) and machine.free[1] + SLACK >= size_of(
                state, job, 1
            )
            if not fits or not _pick_devices(state, job, at, placed):
                break
            queue.machine[placed] = at
            _take(state, job, placed, -1.0)
            placed += 1
    if placed == count:
        return True
    for slot in range(placed):
        _take(state, job, slot, 1.0)
    return False


@kernel
def next_waiting(state: State) -> int:
    """Return the position in the queue of the job to try next under DRF: of the user with the least dominant share.

    It is -1 if all jobs were tried in this round.
    """
    queue = state.queue
    best, least, key = -1, math.inf, math.inf
    for at in range(queue.tally[0].waiting):
        job = state.jobs[queue.waiting[at]]
        if job.tried:
            continue
        share = 0.0
        for resource in range(3):
            share = max(share, queue.held[job.user, resource] / queue.held[-1, resource])
        if share < least or (share == least and job.key < key):
            best, least, key = at, share, job.key
    return best
