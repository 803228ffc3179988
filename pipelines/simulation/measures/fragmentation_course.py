"""Fragmentation over a simulation's time: what of the free GPUs a target workload could not use, and why.

What is free comes from a schedule with devices; what it is worth is in `fragmentation`. Called by experiments.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.holding import instance_units
from pipelines.simulation.measures.series import step_edges_s
from scheduler_core.cluster import Cluster
from scheduler_core.devices import WHOLE
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import USES, FreeNodes, Use, weighed_uses
from scheduler_core.target import TargetWorkload
from scheduler_core.types import FloatArray, IntArray

ROWS_AT_ONCE: Final = 2_000
"""Machines looked at in one go: bounds the memory that takes, whatever the schedule's length."""


def fragmentation_course(schedule: Schedule, target: TargetWorkload, step_s: float) -> dict[str, FloatArray]:
    """Return columns over steps from 0 to the end, the last step being what is left: exact averages over each.

    The end is the schedule's: without a horizon it may be long after the last arrival (`mean_fragmented_gpus`).

    `time_s` and `until_s` are the step's begin and end, `free_gpus` what is free, and `fragmented_gpus` what of it a
    pod of the target could not use on average; `<use>_gpus` split what is free by `fragmentation.Use`. A machine that
    is away counts as free.

    Raises
    ------
    BadInput
        If the schedule's GPUs were pooled, or the step is not one (as in `series`).
    """
    if schedule.host_devices is None:
        raise BadInput("fragmentation course: found a schedule with pooled GPUs, expected sharing by devices")
    return _course(schedule, schedule.host_devices, target, step_edges_s(schedule, step_s))


def mean_fragmented_gpus(schedule: Schedule, target: TargetWorkload, since_s: float, until_s: float) -> float:
    """Return the exact average of `fragmented_gpus` from a moment to another; NaN where no time passes.

    What comes after `until_s` is of no account: a few long runs after the last arrival would make any average theirs.

    Raises
    ------
    BadInput
        If the schedule's GPUs were pooled.
    """
    if schedule.host_devices is None:
        raise BadInput("mean fragmentation: found a schedule with pooled GPUs, expected sharing by devices")
    if not until_s > since_s:
        return math.nan
    course = _course(schedule, schedule.host_devices, target, np.array([since_s, until_s]))
    return float(course["fragmented_gpus"][0])


def _course(
    schedule: Schedule, host_devices: IntArray, target: TargetWorkload, edges_s: FloatArray
) -> dict[str, FloatArray]:
    states = _states(schedule, host_devices)
    uses = _changes(states, target)
    averages = _averages(states.at_s, uses, edges_s) / (WHOLE * max(target.total, 1))
    free = _averages(states.at_s, _since_before(states, states.devices.sum(axis=1)[:, None]), edges_s) / WHOLE
    columns = {"time_s": edges_s[:-1], "until_s": edges_s[1:], "free_gpus": free[:, 0]}
    columns["fragmented_gpus"] = averages.sum(axis=1) - averages[:, Use.USABLE]
    return columns | {f"{name}_gpus": averages[:, use] for use, name in enumerate(USES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """What is free on a machine from a moment on (rows): machine by machine, in the order of time, from its whole."""

    machine: IntArray
    at_s: FloatArray
    cpu_milli: IntArray
    devices: IntArray
    gpu_type: tuple[str | None, ...]


def _states(schedule: Schedule, host_devices: IntArray) -> _States:
    cluster = Cluster(schedule.machines)
    gpus = cluster.capacity[:, 2:] // WHOLE
    whole = np.column_stack([cluster.capacity[:, 0], np.where(np.arange(host_devices.shape[1]) < gpus, WHOLE, 0)])
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    cpu = instance_units(schedule, 0)[run] * schedule.host_counts
    held = np.column_stack([cpu, host_devices])
    count = len(whole)
    machine = np.concatenate([np.arange(count), schedule.hosts, schedule.hosts])
    # What is still going then ends with the schedule, which may be never.
    until_s = np.minimum(schedule.end_run_s[run], schedule.end_s)
    at_s = np.concatenate([np.zeros(count), schedule.start_s[run], until_s])
    # A machine's whole comes before what happens at 0 s.
    order = np.lexsort((np.arange(len(machine)), at_s, machine))
    free = np.cumsum(np.concatenate([whole, -held, held])[order], axis=0)
    machine, at_s = machine[order], at_s[order]
    # Sums run on from machine to machine: take off what those before were left with, which is their whole again.
    before = np.cumsum(whole, axis=0) - whole
    free -= before[machine]
    last = np.append((machine[1:] != machine[:-1]) | (at_s[1:] != at_s[:-1]), True)
    return _States(
        machine=machine[last],
        at_s=at_s[last],
        cpu_milli=free[last, 0],
        devices=free[last, 1:],
        gpu_type=tuple(each.gpu_type for each in schedule.machines),
    )


def _changes(states: _States, target: TargetWorkload) -> IntArray:
    """Return by how much each state changes the cluster's milli-GPUs by use, times the target's pods (rows, 7)."""
    parts = [np.zeros((0, len(Use)), dtype=np.int64)]
    for begin in range(0, len(states.machine), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        gpu_type = tuple(states.gpu_type[machine] for machine in states.machine[rows].tolist())
        nodes = FreeNodes(cpu_milli=states.cpu_milli[rows], devices=states.devices[rows], gpu_type=gpu_type)
        parts.append(weighed_uses(nodes, target))
    return _since_before(states, np.concatenate(parts))


def _since_before(states: _States, amounts: IntArray) -> IntArray:
    """Return each state's amounts less those of the same machine's state before."""
    first = np.append(True, states.machine[1:] != states.machine[:-1])
    before = np.concatenate([np.zeros_like(amounts[:1]), amounts[:-1]])
    return np.asarray(amounts - np.where(first[:, None], 0, before), dtype=np.int64)


def _averages(at_s: FloatArray, changes: IntArray, edges_s: FloatArray) -> FloatArray:
    """Return the averages per step of levels that change so at those moments (steps, columns)."""
    order = np.argsort(at_s, kind="stable")
    moments_s, levels = at_s[order], np.cumsum(changes[order], axis=0)
    # What changes may go on after the last edge.
    until = np.append(moments_s[1:], np.maximum(moments_s[-1:], edges_s[-1]))
    areas = np.cumsum(levels * (until - moments_s)[:, None], axis=0)
    points_s, sums = np.append(moments_s, until[-1]), np.vstack([np.zeros((1, changes.shape[1])), areas])
    at_edges = np.column_stack([np.interp(edges_s, points_s, column) for column in sums.T])
    return np.asarray(np.diff(at_edges, axis=0) / np.diff(edges_s)[:, None], dtype=np.float64)
