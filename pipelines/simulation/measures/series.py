"""Compute time series of a schedule: allocation, use, queue and GPU fragmentation, averaged over equal steps.

Averages are exact integrals, not samples.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.job_metrics import capacity_units, drawn_units, gang_units, instance_units
from pipelines.simulation.measures.metrics import Uses
from scheduler_core.cluster import UNITS, Cluster
from scheduler_core.devices import WHOLE
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import USES, FreeNodes, Use, weighed_uses
from scheduler_core.target import TargetWorkload
from scheduler_core.types import RESOURCES, FloatArray, IntArray

__all__ = ["series"]

MAX_STEPS: Final = 10_000_000
"""Maximum number of steps: more suggest that the step has a wrong unit."""

_WAITS_AGAIN: Final = (Ending.KILLED, Ending.PREEMPTED, Ending.INTERRUPTED)


def series(schedule: Schedule, step_s: float, *, uses: Uses | None = None) -> dict[str, FloatArray | IntArray]:
    """Return the columns of the time series: one row per step from 0 to the end; the last step may be shorter.

    `time_s` and `until_s` are the start and the end of the step. Averages over the step are `allocated_*` and `used_*`
    (in cores, GiB, GPUs), `free_gpus`, and the numbers of `waiting` and `running` jobs. `used_*` needs `uses`, and
    leaves out runs of unknown use. `completed` is the number of jobs completed by the end of the step.
    """
    edges_s = step_edges_s(schedule, step_s)
    timeline = _Timeline.of(schedule, edges_s)
    columns: dict[str, FloatArray | IntArray] = {"time_s": edges_s[:-1], "until_s": edges_s[1:]}
    for at, (resource, unit) in enumerate(zip(RESOURCES, UNITS, strict=True)):
        columns[f"allocated_{resource}"] = timeline.held(gang_units(schedule, at)) / unit
    for at, (resource, unit) in enumerate(zip(RESOURCES, UNITS, strict=True)):
        if uses is not None:
            drawn = np.nan_to_num(drawn_units(schedule, uses, at))
            # Rounding errors may make a sum slightly negative.
            columns[f"used_{resource}"] = np.maximum(timeline.held(drawn) / unit, 0.0)
    columns["free_gpus"] = capacity_units(schedule)[2] / UNITS[2] - columns["allocated_gpus"]
    columns["waiting"] = timeline.waiting(schedule)
    columns["running"] = timeline.held(np.ones(len(schedule.job), dtype=np.int64))
    completed_s = np.sort(schedule.end_run_s[schedule.ending == Ending.COMPLETED])
    columns["completed"] = np.searchsorted(completed_s, edges_s[1:], side="right")
    return columns


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timeline:
    """All moments at which an average may change: edges of steps, and starts, ends and arrivals of jobs.

    `order` sorts the moments by time, with an edge before simultaneous events. `gap_s` is the time from each sorted
    moment to the next, up to the last edge. `edge_at` holds the positions of the edges among the sorted moments.
    """

    order: IntArray
    gap_s: FloatArray
    edge_at: IntArray
    edges: int
    runs: int

    @classmethod
    def of(cls, schedule: Schedule, edges_s: FloatArray) -> "_Timeline":
        moments_s = np.concatenate([edges_s, schedule.start_s, schedule.end_run_s, schedule.workload.arrive_s])
        order = np.argsort(moments_s, kind="stable")
        edge_at = np.flatnonzero(order < len(edges_s))
        # Moments after the last edge are outside every step.
        gap_s = np.diff(moments_s[order[: edge_at[-1] + 1]])
        return cls(order=order, gap_s=gap_s, edge_at=edge_at, edges=len(edges_s), runs=len(schedule.job))

    def held(self, amounts: FloatArray | IntArray) -> FloatArray:
        """Return the average over each step of the sum of `amounts` (k,) that runs hold from start to end."""
        changes = np.zeros(len(self.order))  # sums of whole units are exact in floats
        changes[self.edges : self.edges + self.runs] = amounts
        changes[self.edges + self.runs : self.edges + 2 * self.runs] = -amounts
        return self._average(changes)

    def waiting(self, schedule: Schedule) -> FloatArray:
        """Return the average number of waiting jobs in each step."""
        changes = np.zeros(len(self.order))
        changes[self.edges : self.edges + self.runs] = -1
        changes[self.edges + self.runs : self.edges + 2 * self.runs] = np.isin(schedule.ending, _WAITS_AGAIN)
        changes[self.edges + 2 * self.runs :] = ~schedule.never_fits
        return self._average(changes)

    def _average(self, changes: FloatArray) -> FloatArray:
        if len(self.edge_at) == 1:
            return np.empty(0)
        level = np.cumsum(changes[self.order[: len(self.gap_s)]])
        begins = self.edge_at[:-1]
        lasts_s = np.add.reduceat(self.gap_s, begins)
        return np.asarray(np.add.reduceat(level * self.gap_s, begins) / lasts_s, dtype=np.float64)


ROWS_AT_ONCE: Final = 2_000
"""Maximum number of machine states evaluated at once, to limit memory."""


def fragmentation_series(schedule: Schedule, target: TargetWorkload, step_s: float) -> dict[str, FloatArray]:
    """Return the time series of GPU fragmentation: exact averages over steps from 0 to the end of the schedule.

    `time_s` and `until_s` are the start and the end of the step. `free_gpus` is the number of free GPUs, and
    `fragmented_gpus` the number of free GPUs that an average pod of the target cannot use. The columns `<use>_gpus`
    divide the free GPUs by `fragmentation.Use`. GPUs of a machine that is down count as free. Without a horizon the
    last steps may be long after the last arrival; `mean_fragmented_gpus` averages any part of the time.
    """
    if schedule.host_devices is None:
        raise BadInput("fragmentation: found a schedule with pooled GPUs, expected sharing by devices")
    return _fragmentation(schedule, schedule.host_devices, target, step_edges_s(schedule, step_s))


def mean_fragmented_gpus(schedule: Schedule, target: TargetWorkload, since_s: float, until_s: float) -> float:
    """Return the exact average of `fragmented_gpus` from `since_s` to `until_s`; NaN if they are equal."""
    if schedule.host_devices is None:
        raise BadInput("fragmentation: found a schedule with pooled GPUs, expected sharing by devices")
    if not until_s > since_s:
        return math.nan
    columns = _fragmentation(schedule, schedule.host_devices, target, np.array([since_s, until_s]))
    return float(columns["fragmented_gpus"][0])


def _fragmentation(
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
    """Free capacity of every machine at 0 s (all of it) and after each change, sorted by machine and time."""

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
    # Runs still running are ended at the end of the schedule.
    until_s = np.minimum(schedule.end_run_s[run], schedule.end_s)
    at_s = np.concatenate([np.zeros(count), schedule.start_s[run], until_s])
    # The empty machine is sorted before the starts at 0 s.
    order = np.lexsort((np.arange(len(machine)), at_s, machine))
    free = np.cumsum(np.concatenate([whole, -held, held])[order], axis=0)
    machine, at_s = machine[order], at_s[order]
    # The cumulative sum continues from machine to machine: subtract the capacity of the machines before.
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
    """Return the change of free milli-GPUs at each state, by category `fragmentation.Use`; shape (states, categories).

    The amounts are summed over the pods of the target.
    """
    parts = [np.zeros((0, len(Use)), dtype=np.int64)]
    for begin in range(0, len(states.machine), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        gpu_type = tuple(states.gpu_type[machine] for machine in states.machine[rows].tolist())
        nodes = FreeNodes(cpu_milli=states.cpu_milli[rows], devices=states.devices[rows], gpu_type=gpu_type)
        parts.append(weighed_uses(nodes, target))
    return _since_before(states, np.concatenate(parts))


def _since_before(states: _States, amounts: IntArray) -> IntArray:
    """Return the amounts of each state minus the amounts of the same machine's previous state (0 for the first)."""
    first = np.append(True, states.machine[1:] != states.machine[:-1])
    before = np.concatenate([np.zeros_like(amounts[:1]), amounts[:-1]])
    return np.asarray(amounts - np.where(first[:, None], 0, before), dtype=np.int64)


def _averages(at_s: FloatArray, changes: IntArray, edges_s: FloatArray) -> FloatArray:
    """Return the averages over steps (steps, columns) of quantities that change by `changes` at the times `at_s`."""
    order = np.argsort(at_s, kind="stable")
    moments_s, levels = at_s[order], np.cumsum(changes[order], axis=0)
    # Some changes may be after the last edge.
    until = np.append(moments_s[1:], np.maximum(moments_s[-1:], edges_s[-1]))
    areas = np.cumsum(levels * (until - moments_s)[:, None], axis=0)
    points_s, sums = np.append(moments_s, until[-1]), np.vstack([np.zeros((1, changes.shape[1])), areas])
    at_edges = np.column_stack([np.interp(edges_s, points_s, column) for column in sums.T])
    return np.asarray(np.diff(at_edges, axis=0) / np.diff(edges_s)[:, None], dtype=np.float64)
