"""Idle draw that work could do without: of machines on which nothing runs, and of GPUs that are held and not used.

Accounts of all that is drawn are `accounting`'s matter. Called by `pipelines.studies.energy.savings` and its parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.simulation.energy.amounts import Amounts
from pipelines.simulation.energy.draw import Fleet, draw
from pipelines.simulation.energy.window import WATTS_PER_KW, Window
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.holding import Uses, held_s
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.types import FloatArray, IntArray

OFF_AFTER_S: Final = 600.0
"""How long a machine is empty before it is switched off: a rule that needs no look ahead (ours)."""

SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptySpans:
    """When nothing ran on a machine (an index): spans of more than no time, by machine, then by their begins."""

    machine: IntArray
    begin_s: FloatArray
    end_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """What switching off empty machines spares: in all, and by hour of the grid, as `EnergyAccount.hours`."""

    machines: Amounts
    hour_ts: FloatArray
    hours: Amounts


def empty_spans(schedule: Schedule) -> EmptySpans:
    """Return when machines hold no run, from 0 s to the end; moments between two runs are none."""
    count = len(schedule.machines)
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    every, none = np.arange(count), np.zeros(count, dtype=np.int64)
    begins, ends = schedule.start_s[run], np.minimum(schedule.end_run_s[run], schedule.end_s)
    where = np.concatenate([machine, machine, every, every])
    when = np.concatenate([begins, ends, np.zeros(count), np.full(count, schedule.end_s)])
    change = np.concatenate([np.ones_like(machine), -np.ones_like(machine), none, none])
    # At one moment and machine ends and begins may come in any order: spans of no time are left out.
    order = np.lexsort((when, where))
    where, when, held = where[order], when[order], np.cumsum(change[order])
    empty = (held[:-1] == 0) & (where[1:] == where[:-1]) & (when[1:] > when[:-1])
    return EmptySpans(machine=where[:-1][empty], begin_s=when[:-1][empty], end_s=when[1:][empty])


def spared(
    schedule: Schedule,
    powers: Sequence[NodePower],
    grid: Grid | None,
    start_ts: float,
    *,
    off_after_s: float = OFF_AFTER_S,
) -> Spared:
    """Return the idle draw of machines while they are switched off: `off_after_s` after their last run, to the next.

    Starting up costs neither time nor energy (ours: a bound). Outages are not looked at.

    Raises
    ------
    BadInput
        If powers are not as many as machines, the wait is below 0, or a series does not reach as far.
    """
    if not off_after_s >= 0.0:
        raise BadInput(f"switching off: found a wait of {off_after_s} s, expected 0 or more")
    fleet = Fleet.of(schedule.machines, powers)
    spans = empty_spans(schedule)
    begin_s = np.minimum(spans.begin_s + off_after_s, spans.end_s)
    window = Window(grid=grid or Grid(zone="none"), start_ts=start_ts, from_s=0.0, until_s=schedule.end_s)
    watts = fleet.idle_w[spans.machine]
    hour_ts, hours = window.by_hour(begin_s, spans.end_s, watts)
    off = window.over(begin_s, spans.end_s).times(watts)
    return Spared(machines=off.by(spans.machine, len(fleet.gpus)), hour_ts=hour_ts, hours=hours)


def unused_gpu_kwh(schedule: Schedule, uses: Uses, powers: Sequence[NodePower], *, assumed: Assumed) -> float:
    """Return the idle draw of GPUs that runs held and did not use, kWh: idle watts x (held - used) x hours.

    It is a part of what jobs pay for idle draw; use is what runs truly drew, or `assumed`.
    """
    fleet = Fleet.of(schedule.machines, powers)
    drawn = draw(schedule, uses, fleet, assumed)
    hours = held_s(schedule, 0.0, schedule.end_s)[drawn.run] / SECONDS_PER_HOUR
    idle, work = fleet.gpu_idle_w[drawn.machine], (fleet.gpu_full_w - fleet.gpu_idle_w)[drawn.machine]
    used = np.divide(drawn.watts[:, 1], work, out=np.zeros_like(work), where=work > 0.0)
    return float(((drawn.watts[:, 3] - used * idle) / WATTS_PER_KW * hours).sum())
