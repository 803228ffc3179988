"""Compute the energy account of a schedule: kWh, CO2 and cost by job, machine and hour, from the watts of every run.

Integrals over time are computed in `window`. Called by `pipelines.simulation.paired_runs` and
`pipelines.studies.energy`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.simulation.energy.window import WATTS_PER_KW, Amounts, Totals, Window, by, united
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages
from pipelines.simulation.measures.job_metrics import Uses, drawn_units, instance_units
from scheduler_core.cluster import UNITS, Machine
from scheduler_core.errors import BadInput
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["account"]

PARTS = ("cpu_busy", "gpu_busy", "cpu_idle", "gpu_idle")
"""Parts of the power that a run draws, in column order; the idle parts are its share of its machines' idle power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Power of runs on machines: one entry (e) per run and machine, as in `Schedule.hosts`.

    Attributes
    ----------
    run, machine
        Index of the run and index of the machine of each entry.
    watts
        Watts by part; shape (e, 4), columns in the order of `PARTS`.
    cpu_known, gpu_known
        Whether the CPU use and the GPU use of each run (k,) was measured.
    """

    run: IntArray
    machine: IntArray
    watts: FloatArray
    cpu_known: BoolArray
    gpu_known: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The machines (m) of a cluster as columns: capacity, idle power and full power."""

    cores: FloatArray
    gpus: FloatArray
    cpu_idle_w: FloatArray
    cpu_full_w: FloatArray
    gpu_idle_w: FloatArray
    gpu_full_w: FloatArray

    @classmethod
    def of(cls, machines: Sequence[Machine], powers: Sequence[NodePower]) -> "Fleet":
        """Convert machines and their idle and full power to columns.

        Raises
        ------
        BadInput
            If there is not one power per machine.
        """
        if len(powers) != len(machines):
            raise BadInput(f"power: found figures of {len(powers)} machines, expected {len(machines)}, one per machine")
        return cls(
            cores=np.array([each.cpu_cores for each in machines], dtype=np.float64),
            gpus=np.array([each.gpus for each in machines], dtype=np.float64),
            cpu_idle_w=np.array([each.cpu_idle_w for each in powers], dtype=np.float64),
            cpu_full_w=np.array([each.cpu_full_w for each in powers], dtype=np.float64),
            gpu_idle_w=np.array([each.gpu_idle_w for each in powers], dtype=np.float64),
            gpu_full_w=np.array([each.gpu_full_w for each in powers], dtype=np.float64),
        )

    @property
    def idle_w(self) -> FloatArray:
        """Return the idle power of each machine in watts."""
        return np.asarray(self.cpu_idle_w + self.gpus * self.gpu_idle_w, dtype=np.float64)


def draw(schedule: Schedule, uses: Uses, fleet: Fleet, assumed: Assumed) -> Draw:
    """Return the power of each run on each of its machines: its power above idle, and its share of the idle power.

    A GPU draws idle + (full - idle) x use watts, and the CPUs of a machine too, with the mean use of all its cores: we
    assume that power is linear in use. A run is charged the idle power of its GPUs, and of the CPUs in proportion to
    its cores, or to its GPUs if no job requests cores (our rule). Idle power of free capacity is charged to no run.
    """
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    count = schedule.host_counts
    gpus, gpus_used, gpu_known = _held(schedule, uses, 2, assumed.gpu_frac)
    cores, cores_used, cpu_known = _held(schedule, uses, 0, assumed.cpu_frac)
    if schedule.workload.request_units[:, 0].any():
        part, busy = _over(cores[run], fleet.cores[machine]), _over(cores_used[run], fleet.cores[machine])
    else:
        part = _over(gpus[run], fleet.gpus[machine])
        busy = part * assumed.cpu_frac
        cpu_known = np.zeros_like(cpu_known)
    watts = np.column_stack(
        [
            count * busy * (fleet.cpu_full_w - fleet.cpu_idle_w)[machine],
            count * gpus_used[run] * (fleet.gpu_full_w - fleet.gpu_idle_w)[machine],
            count * part * fleet.cpu_idle_w[machine],
            count * gpus[run] * fleet.gpu_idle_w[machine],
        ]
    )
    return Draw(run=run, machine=machine, watts=watts, cpu_known=cpu_known, gpu_known=gpu_known)


def _held(
    schedule: Schedule, uses: Uses, resource: int, assumed_frac: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the amounts that one instance of each run (k,) holds and uses, and whether the use was measured.

    A run that holds none of the resource counts as measured.
    """
    held = instance_units(schedule, resource) / UNITS[resource]
    instances = schedule.workload.instances[schedule.job]
    used = drawn_units(schedule, uses, resource) / instances / UNITS[resource]
    unknown = np.isnan(used)
    known: BoolArray = ~unknown | (held == 0.0)
    return held, np.where(unknown, assumed_frac * held, used), known


def _over(amounts: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(amounts, whole, out=np.zeros_like(amounts), where=whole > 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyAccount:
    """Energy, carbon and cost of a simulation from `from_s` to its end.

    Attributes
    ----------
    start_ts, from_s, until_s
        Unix time of the simulation's 0 s, and start and end of the account in seconds of the simulation.
    pue
        Power usage effectiveness, by which `carbon_g` and `cost_usd` are multiplied. kWh are of the machines alone.
    jobs
        For each job (n): its energy above idle plus its share of the idle energy of its machines.
    jobs_parts_kwh
        The kWh of `jobs` divided into `PARTS`; shape (n, 4).
    held_s
        Time for which each job (n,) held machines, summed over its runs.
    known
        Whether the CPU and GPU use of each job (n,) was measured; if not, it is assumed.
    machines
        For each machine (m): its total energy, carbon and cost.
    unallocated
        For each machine (m): idle energy of the capacity that no job held.
    hour_ts, hours
        For each hour (h) of the grid: Unix time of its start, and the total of the cluster.
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
        """Return energy, carbon and cost of the whole cluster."""
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
    """Compute the energy account of a schedule by exact integration over time, without sampling.

    Machines always draw their idle power, except during outages. Carbon in g = kWh x PUE x intensity in g/kWh, and cost
    in USD = kWh x PUE x price in USD/kWh. Without a grid only kWh are computed. The totals of the cluster equal the sum
    over jobs plus the unallocated amounts, the sum over hours, and the sum over machines, up to rounding.

    Parameters
    ----------
    schedule, uses
        The runs, and the average use of one instance of each job; a use of NaN is replaced by `assumed`.
    powers
        Idle and full power, one entry per machine.
    start_ts
        Unix time of the simulation's 0 s.
    from_s
        Start of the account in seconds of the simulation.
    outages
        Outages of the simulation; a machine draws no power while it is down.

    Raises
    ------
    BadInput
        If `powers` has not one entry per machine, `from_s` is after the end, or a series is too short.

    References
    ----------
    codecarbon: energy by part, emissions = energy x intensity, PUE as a factor. The division of idle power is ours.
    """
    if not 0.0 <= from_s <= schedule.end_s:
        raise BadInput(f"account: found a start at {from_s} s, expected 0 to {schedule.end_s} s")
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
        jobs=window.known(over_runs.times(parts_w.sum(axis=1)).by(schedule.job, jobs)),
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
    """Return the hours of the grid, and the cluster's amounts in each hour; machines draw nothing in outages."""
    return window.by_hour(
        np.concatenate([[window.from_s], away.down_s, schedule.start_s]),
        np.concatenate([[window.until_s], away.up_s, schedule.end_run_s]),
        np.concatenate([[float(idle_w.sum())], -idle_w[away.machine], work_w]),
    )


def _idle(window: Window, idle_w: FloatArray, away: Outages) -> Amounts:
    """Return idle energy, carbon and cost of each machine (m) outside its outages."""
    always = window.whole().taken(np.zeros(len(idle_w), dtype=np.int64)).times(idle_w)
    spared = window.over(away.down_s, away.up_s).times(idle_w[away.machine])
    return always.less(spared.by(away.machine, len(idle_w)))


def _known(schedule: Schedule, drawn: Draw) -> BoolArray:
    """Return whether the CPU and GPU use of each job (n,) was measured in all its runs."""
    known = np.ones(len(schedule.workload), dtype=np.bool_)
    known[schedule.job[~(drawn.cpu_known & drawn.gpu_known)]] = False
    return known
