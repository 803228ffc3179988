"""Compute time series of a schedule: allocation, use, queue and GPU fragmentation as averages over equal steps.

Averages are integrals over time, not samples.
"""

import math
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.job_metrics import Uses, capacity_units, drawn_units, gang_units, instance_units
from scheduler_core.cluster import UNITS, Cluster
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import FreeNodes, fragmented
from scheduler_core.gangs import WHOLE
from scheduler_core.target import TargetWorkload
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, IntArray

__all__ = ["series"]

MAX_STEPS: Final = 10_000_000
"""Maximum number of steps: more suggest that the step has a wrong unit."""


def series(schedule: Schedule, step_s: float, *, uses: Uses | None = None) -> dict[str, FloatArray | IntArray]:
    """Return the columns of the time series: one row per step from 0 to the end; the last step may be shorter.

    `time_s` and `until_s` are the start and the end of the step. Averages over the step are `allocated_*` and `used_*`
    (in cores, GiB, GPUs), `free_gpus`, and the numbers of `waiting` and `running` jobs. `used_*` needs `uses`, and
    leaves out runs of unknown use. `completed` is the number of jobs completed by the end of the step.
    """
    edges_s = step_edges_s(schedule, step_s)
    held = {f"allocated_{name}": gang_units(schedule, at) for at, name in enumerate(RESOURCES)}
    if uses is not None:
        held |= {f"used_{name}": np.nan_to_num(drawn_units(schedule, uses, at)) for at, name in enumerate(RESOURCES)}
    held["running"] = np.ones(len(schedule.job), dtype=np.int64)
    amounts = np.column_stack(list(held.values()))
    again = np.isin(schedule.ending, (Ending.KILLED, Ending.PREEMPTED))
    changes = np.column_stack(
        [
            np.concatenate([amounts, -amounts, np.zeros((len(schedule.workload), len(held)))]),
            np.concatenate([np.full(len(again), -1), again, ~schedule.never_fits]),
        ]
    )
    until_s = np.minimum(schedule.end_run_s, schedule.end_s)
    averages = _averages(np.concatenate([schedule.start_s, until_s, schedule.workload.arrive_s]), changes, edges_s)
    # Rounding errors may make a sum slightly negative.
    of = dict(zip([*held, "waiting"], np.maximum(averages, 0.0).T, strict=True))
    columns: dict[str, FloatArray | IntArray] = {"time_s": edges_s[:-1], "until_s": edges_s[1:]}
    for name in held:
        if name != "running":
            columns[name] = of[name] / UNITS[RESOURCES.index(name.split("_", 1)[1])]
    columns["free_gpus"] = capacity_units(schedule)[2] / UNITS[2] - columns["allocated_gpus"]
    columns |= {"waiting": of["waiting"], "running": of["running"]}
    completed_s = np.sort(schedule.end_run_s[schedule.ending == Ending.COMPLETED])
    return columns | {"completed": np.searchsorted(completed_s, edges_s[1:], side="right")}


def step_edges_s(schedule: Schedule, step_s: float) -> FloatArray:
    """Return the starts of the steps, and the end of the last one."""
    if not step_s > 0.0 or schedule.end_s / step_s > MAX_STEPS:
        raise BadInput(
            f"series: found a step of {step_s} s over {schedule.end_s} s, expected more than 0 s and at most "
            f"{MAX_STEPS} steps"
        )
    # A last step shorter than a millionth of a step is a rounding error: it is merged into the step before.
    steps = max(math.ceil(schedule.end_s / step_s - 1e-6), 1) if schedule.end_s > 0.0 else 0
    return np.append(np.arange(steps, dtype=np.float64) * step_s, schedule.end_s)


ROWS_AT_ONCE: Final = 2_000
"""Maximum number of machine states evaluated at once, to limit memory."""


def mean_fragmented_gpus(schedule: Schedule, target: TargetWorkload, since_s: float, until_s: float) -> float:
    """Return the exact average, from `since_s` to `until_s`, of free GPUs that an average pod of the target cannot use.

    GPUs of a machine that is down count as free. The result is NaN if both times are equal.
    """
    if schedule.host_devices is None:
        raise BadInput("fragmentation: found a schedule with pooled GPUs, expected sharing by devices")
    if not until_s > since_s:
        return math.nan
    machine, at_s, cpu_milli, devices = _states(schedule, schedule.host_devices)
    types = [each.gpu_type for each in schedule.machines]
    parts = [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(machine), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        gpu_type = tuple(types[at] for at in machine[rows].tolist())
        parts.append(fragmented(FreeNodes(cpu_milli=cpu_milli[rows], devices=devices[rows], gpu_type=gpu_type), target))
    first = np.append(True, machine[1:] != machine[:-1])
    changes = _since_before(first, np.concatenate(parts)[:, None])
    [[mean]] = _averages(at_s, changes, np.array([since_s, until_s]))
    return float(mean) / (WHOLE * max(target.total, 1))


def _states(schedule: Schedule, host_devices: IntArray) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Return machine, time, free milli-cores and free milli-GPUs by device after each change of a machine.

    Every machine begins with all of its capacity at 0 s; states are sorted by machine and time.
    """
    cluster = Cluster(schedule.machines)
    gpus = cluster.capacity[:, 2:] // WHOLE
    whole = np.column_stack([cluster.capacity[:, 0], np.where(np.arange(host_devices.shape[1]) < gpus, WHOLE, 0)])
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    held = np.column_stack([instance_units(schedule, 0)[run] * schedule.host_counts, host_devices])
    machine = np.concatenate([np.arange(len(whole)), schedule.hosts, schedule.hosts])
    # Runs still running are ended at the end of the schedule.
    until_s = np.minimum(schedule.end_run_s[run], schedule.end_s)
    at_s = np.concatenate([np.zeros(len(whole)), schedule.start_s[run], until_s])
    # The state of the empty machine is sorted before the starts at 0 s.
    order = np.lexsort((np.arange(len(machine)), at_s, machine))
    free = np.cumsum(np.concatenate([whole, -held, held])[order], axis=0)
    machine, at_s = machine[order], at_s[order]
    # The cumulative sum continues from machine to machine: subtract the capacity of the machines before.
    free -= (np.cumsum(whole, axis=0) - whole)[machine]
    last = np.append((machine[1:] != machine[:-1]) | (at_s[1:] != at_s[:-1]), True)
    return machine[last], at_s[last], free[last, 0], free[last, 1:]


def _since_before(first: BoolArray, amounts: IntArray) -> IntArray:
    """Return the amounts of each state minus those of the state before, 0 before the `first` one of a machine."""
    before = np.concatenate([np.zeros_like(amounts[:1]), amounts[:-1]])
    return np.asarray(amounts - np.where(first[:, None], 0, before), dtype=np.int64)


def _averages(at_s: FloatArray, changes: FloatArray | IntArray, edges_s: FloatArray) -> FloatArray:
    """Return the averages over steps (steps, columns) of quantities that change by `changes` at the times `at_s`."""
    order = np.argsort(at_s, kind="stable")
    moments_s = np.append(0.0, at_s[order])
    levels = np.cumsum(np.vstack([np.zeros((1, changes.shape[1])), changes[order]]), axis=0)
    # Some changes may be after the last edge.
    until = np.append(moments_s[1:], max(moments_s[-1], edges_s[-1]))
    areas = np.cumsum(levels * (until - moments_s)[:, None], axis=0)
    points_s, sums = np.append(moments_s, until[-1]), np.vstack([np.zeros((1, changes.shape[1])), areas])
    at_edges = np.column_stack([np.interp(edges_s, points_s, column) for column in sums.T])
    return np.asarray(np.diff(at_edges, axis=0) / np.diff(edges_s)[:, None], dtype=np.float64)
