"""Accounts of a schedule: kWh, grams and money by job, by machine and by hour, which add up to the cluster's.

What runs draw is `draw`'s matter, the integrals `window`'s. Called by `pipelines.simulation.paired_runs` and
`pipelines.studies.energy`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.simulation.energy.amounts import Amounts, Totals, by
from pipelines.simulation.energy.draw import Draw, Fleet, draw
from pipelines.simulation.energy.window import WATTS_PER_KW, Window, united
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages
from pipelines.simulation.measures.holding import Uses
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.types import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyAccount:
    """What a simulation came to, from `from_s` to its end.

    Attributes
    ----------
    start_ts, from_s, until_s
        Unix time of 0 s, and the window in seconds of the simulation.
    pue
        Power usage effectiveness in `carbon_g` and `cost_usd`; the kWh are those of the machines.
    jobs
        By job (n): its work, and its part of the idle draw of what it held.
    jobs_parts_kwh
        (n, 4) the same kWh by `draw.PARTS`.
    held_s
        How long each job (n) held machines, all runs together.
    known
        Of each job (n): its use of CPUs and GPUs was measured; what it lacks is assumed.
    machines
        By machine (m), all of it.
    unallocated
        By machine (m): the idle draw of what no job held.
    hour_ts, hours
        By hour (h) of the grid: Unix time of its begin, and the whole cluster.
    """

    start_ts: float
    from_s: float
    until_s: float
    pue: float
    jobs: Amounts
    jobs_parts_kwh: FloatArray
    held_s: FloatArray
    known: BoolArray
    machines: Amounts
    unallocated: Amounts
    hour_ts: FloatArray
    hours: Amounts

    def total(self) -> Totals:
        """Return the cluster's totals."""
        return self.machines.total()


def account(
    schedule: Schedule,
    uses: Uses,
    powers: Sequence[NodePower],
    grid: Grid | None,
    start_ts: float,
    *,
    assumed: Assumed,
    from_s: float = 0.0,
    outages: Outages = NO_OUTAGES,
) -> EnergyAccount:
    """Integrate power, intensity and price exactly over every run and machine; nothing is sampled.

    Idle machines draw their idle power all the time, except while they are away. Carbon g = kWh x PUE x g/kWh, money
    likewise. Without a grid there are kWh alone. Jobs and what is unallocated add up to the cluster's totals, as do
    hours and machines, to rounding.

    Parameters
    ----------
    schedule, uses
        What ran, and what one instance of each job uses; NaN is `assumed`.
    powers
        One for each machine.
    start_ts
        Unix time of the simulation's 0 s.
    from_s
        Where the account begins.
    outages
        When machines were away, as the simulation was told.

    Raises
    ------
    BadInput
        If powers are not as many as machines, the account would begin after the end, or a series does not reach as far
        as the simulation.

    References
    ----------
    codecarbon: energy by part, emissions = energy x intensity, PUE as a factor. Who pays for idle draw is ours.
    """
    if not 0.0 <= from_s <= schedule.end_s:
        raise BadInput(f"account: found a begin at {from_s} s, expected 0 to {schedule.end_s} s")
    window = Window(grid=grid or Grid(zone="none"), start_ts=start_ts, from_s=from_s, until_s=schedule.end_s)
    fleet = Fleet.of(schedule.machines, powers)
    drawn = draw(schedule, uses, fleet, assumed)
    runs, jobs, machines = len(schedule.job), len(schedule.workload), len(schedule.machines)
    over_runs = window.over(schedule.start_s, schedule.end_run_s)
    over_entries = over_runs.taken(drawn.run)
    parts_w = np.column_stack([by(drawn.run, part, runs) for part in drawn.watts.T])
    parts_kwh = [by(schedule.job, part / WATTS_PER_KW * over_runs.hours, jobs) for part in parts_w.T]
    away = united(outages)
    idle = _idle(window, fleet.idle_w, away)
    work = over_entries.times(drawn.watts[:, :2].sum(axis=1)).by(drawn.machine, machines)
    held = over_entries.times(drawn.watts[:, 2:].sum(axis=1)).by(drawn.machine, machines)
    hour_ts, hours = _by_hour(window, schedule, fleet.idle_w, parts_w[:, :2].sum(axis=1), away)
    return EnergyAccount(
        start_ts=start_ts,
        from_s=from_s,
        until_s=schedule.end_s,
        pue=window.grid.pue,
        jobs=window.told(over_runs.times(parts_w.sum(axis=1)).by(schedule.job, jobs)),
        jobs_parts_kwh=np.column_stack(parts_kwh),
        held_s=by(schedule.job, over_runs.seconds, jobs),
        known=_known(schedule, drawn),
        machines=idle.plus(work),
        unallocated=idle.less(held),
        hour_ts=hour_ts,
        hours=hours,
    )


def _by_hour(
    window: Window, schedule: Schedule, idle_w: FloatArray, work_w: FloatArray, away: Outages
) -> tuple[FloatArray, Amounts]:
    """Return the grid's hours, and in each the idle draw of all machines, less those away, and the work of runs."""
    return window.by_hour(
        np.concatenate([[window.from_s], away.down_s, schedule.start_s]),
        np.concatenate([[window.until_s], away.up_s, schedule.end_run_s]),
        np.concatenate([[float(idle_w.sum())], -idle_w[away.machine], work_w]),
    )


def _idle(window: Window, idle_w: FloatArray, away: Outages) -> Amounts:
    """Return what machines (m) come to when nothing runs on them: idle but for when they are away."""
    always = window.whole().taken(np.zeros(len(idle_w), dtype=np.int64)).times(idle_w)
    spared = window.over(away.down_s, away.up_s).times(idle_w[away.machine])
    return always.less(spared.by(away.machine, len(idle_w)))


def _known(schedule: Schedule, drawn: Draw) -> BoolArray:
    """Return whose use (n) was measured in every run."""
    known = np.ones(len(schedule.workload), dtype=np.bool_)
    known[schedule.job[~(drawn.cpu_known & drawn.gpu_known)]] = False
    return known
