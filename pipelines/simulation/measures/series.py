"""A simulation over time: what was held, drawn, queued and done, as exact averages over steps of equal length.

Nothing is sampled at points: between two steps every second counts. Called by `pipelines.simulation.simulation_files`
and charts.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.engine.schedule import Ending, Schedule
from pipelines.simulation.measures.holding import capacity_units, drawn_units, gang_units
from pipelines.simulation.measures.metrics import Uses
from scheduler_core.cluster import UNITS
from scheduler_core.errors import BadInput
from scheduler_core.types import RESOURCES, FloatArray, IntArray

MAX_STEPS: Final = 10_000_000
"""More rows than this are a mistake in the step's unit."""

_WAITS_AGAIN: Final = (Ending.KILLED, Ending.PREEMPTED, Ending.INTERRUPTED)


def series(schedule: Schedule, step_s: float, *, uses: Uses | None = None) -> dict[str, FloatArray | IntArray]:
    """Return columns over steps from 0 to the end, the last step being what is left.

    `time_s` and `until_s` are the step's begin and end. `allocated_*` and `used_*` (cores, GiB, GPUs; used only with
    `uses`, unknown draws left out), `free_gpus`, `waiting` and `running` (jobs) are time averages over the step;
    `completed` counts jobs by the step's end.

    Raises
    ------
    BadInput
        If the step is not a positive time, or would make more than `MAX_STEPS` rows.
    """
    edges_s = step_edges_s(schedule, step_s)
    timeline = _Timeline.of(schedule, edges_s)
    columns: dict[str, FloatArray | IntArray] = {"time_s": edges_s[:-1], "until_s": edges_s[1:]}
    for at, (resource, unit) in enumerate(zip(RESOURCES, UNITS, strict=True)):
        columns[f"allocated_{resource}"] = timeline.held(gang_units(schedule, at)) / unit
    for at, (resource, unit) in enumerate(zip(RESOURCES, UNITS, strict=True)):
        if uses is not None:
            drawn = np.nan_to_num(drawn_units(schedule, uses, at))
            # Sums of floats do not come back to exactly nothing.
            columns[f"used_{resource}"] = np.maximum(timeline.held(drawn) / unit, 0.0)
    columns["free_gpus"] = capacity_units(schedule)[2] / UNITS[2] - columns["allocated_gpus"]
    columns["waiting"] = timeline.waiting(schedule)
    columns["running"] = timeline.held(np.ones(len(schedule.job), dtype=np.int64))
    completed_s = np.sort(schedule.end_run_s[schedule.ending == Ending.COMPLETED])
    columns["completed"] = np.searchsorted(completed_s, edges_s[1:], side="right")
    return columns


def step_edges_s(schedule: Schedule, step_s: float) -> FloatArray:
    """Return where steps begin, and where the last one ends.

    Raises
    ------
    BadInput
        If the step is not a positive time, or would make more than `MAX_STEPS` rows.
    """
    if not step_s > 0.0 or schedule.end_s / step_s > MAX_STEPS:
        raise BadInput(
            f"series: found a step of {step_s} s over {schedule.end_s} s, expected more than 0 s and at most "
            f"{MAX_STEPS} steps"
        )
    # A last step shorter than a millionth of a step is rounding, and goes to the one before.
    steps = max(math.ceil(schedule.end_s / step_s - 1e-6), 1) if schedule.end_s > 0.0 else 0
    return np.append(np.arange(steps, dtype=np.float64) * step_s, schedule.end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timeline:
    """Every moment at which a level changes, with the steps' edges among them.

    Rows come as edges, starts, ends, arrivals; `order` sorts them by time, an edge before what happens at it. `gap_s`
    is the time from each to the next up to the last edge, `edge_at` where the steps begin.
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
        # What comes after the last edge lies outside every step.
        gap_s = np.diff(moments_s[order[: edge_at[-1] + 1]])
        return cls(order=order, gap_s=gap_s, edge_at=edge_at, edges=len(edges_s), runs=len(schedule.job))

    def held(self, amounts: FloatArray | IntArray) -> FloatArray:
        """Return the average per step of what runs hold from start to end, given per run."""
        changes = np.zeros(len(self.order))  # whole units stay exact in floats
        changes[self.edges : self.edges + self.runs] = amounts
        changes[self.edges + self.runs : self.edges + 2 * self.runs] = -amounts
        return self._average(changes)

    def waiting(self, schedule: Schedule) -> FloatArray:
        """Return the average number of waiting jobs per step."""
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
