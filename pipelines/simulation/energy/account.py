"""The energy account of a schedule: kWh, CO2 and cost by job, machine and hour, by exact integrals of power."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages
from pipelines.simulation.measures.job_metrics import Uses, drawn_units, instance_units
from scheduler_core.cluster import UNITS, Machine
from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import HOUR_S, Grid, HourlySeries
from scheduler_core.planning.power import Assumed, NodePower
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["WATTS_PER_KW", "Amounts", "EnergyAccount", "account"]

WATTS_PER_KW: Final = 1000.0

PARTS = ("cpu_busy", "gpu_busy", "cpu_idle", "gpu_idle")
"""Parts of the power that a run draws, in column order; the idle parts are its share of its machines' idle power."""


class Totals(NamedTuple):
    """Sums of energy, carbon and cost; see `Amounts`."""

    kwh: float
    carbon_g: float
    cost_usd: float


class Amounts(NamedTuple):
    """Columns of energy, carbon and cost.

    Energy is of the machines alone; carbon and cost include PUE, and are NaN if the grid lacks the series.
    """

    kwh: FloatArray
    carbon_g: FloatArray
    cost_usd: FloatArray

    def total(self) -> Totals:
        """Return the sums over all rows."""
        return Totals(*(float(column.sum()) for column in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyAccount:
    """Energy, carbon and cost of a simulation from `from_s` to its end.

    - `start_ts`, `from_s`, `until_s`: Unix time of the simulation's 0 s; start and end of the account in its seconds.
    - `pue`: power usage effectiveness, a factor of `carbon_g` and `cost_usd`. kWh are of the machines alone.
    - `jobs` (n): energy of each job above idle, plus its share of the idle energy of its machines.
    - `jobs_parts_kwh` (n, 4): the kWh of `jobs` divided into `PARTS`.
    - `held_s` (n,): time for which each job held machines, summed over its runs.
    - `known` (n,): whether the CPU and GPU use of each job was measured; if not, it is assumed.
    - `machines`, `unallocated` (m): total of each machine; idle energy of the capacity that no job held.
    - `hour_ts`, `hours` (h): Unix time at which each hour of the grid begins, and the total of the cluster in it.
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

    `uses` are the average uses of one instance of each job; NaN is replaced by `assumed`. `powers` has one entry per
    machine. `start_ts` is the Unix time of the simulation's 0 s, `from_s` the start of the account in seconds of the
    simulation.

    References
    ----------
    codecarbon: energy by part, emissions = energy x intensity, PUE as a factor. The division of idle power is ours.
    """
    if not 0.0 <= from_s <= schedule.end_s:
        raise BadInput(f"account: found a start at {from_s} s, expected 0 to {schedule.end_s} s")
    window = _Window(grid=grid or Grid(zone="none"), start_ts=start_ts, from_s=from_s, until_s=schedule.end_s)
    fleet = _fleet(schedule.machines, powers)
    run, machine, entry_kw, known_runs = _drawn(schedule, uses, fleet, assumed)
    runs, jobs, machines = len(schedule.job), len(schedule.workload), len(schedule.machines)
    of_run = window.factors(schedule.start_s, schedule.end_run_s)
    run_kw, of_entry = _summed(run, entry_kw, runs), of_run[run]
    idle_kw = (fleet.cpu_idle_w + fleet.gpus * fleet.gpu_idle_w) / WATTS_PER_KW
    away = united(outages)
    spared = idle_kw[away.machine, None] * window.factors(away.down_s, away.up_s)
    always = idle_kw[:, None] * window.factors(np.array([from_s]), np.array([schedule.end_s]))
    idle = always - _summed(away.machine, spared, machines)
    work = _summed(machine, of_entry * entry_kw[:, :2].sum(axis=1, keepdims=True), machines)
    held = _summed(machine, of_entry * entry_kw[:, 2:].sum(axis=1, keepdims=True), machines)
    hour_ts, hours = window.by_hour(
        np.concatenate([[from_s], away.down_s, schedule.start_s]),
        np.concatenate([[schedule.end_s], away.up_s, schedule.end_run_s]),
        np.concatenate([[idle_kw.sum()], -idle_kw[away.machine], run_kw[:, :2].sum(axis=1)]),
    )
    known = np.ones(jobs, dtype=np.bool_)
    known[schedule.job[~known_runs]] = False
    of_jobs = _summed(schedule.job, of_run * run_kw.sum(axis=1, keepdims=True), jobs) + window.unknown
    return EnergyAccount(
        start_ts=start_ts,
        from_s=from_s,
        until_s=schedule.end_s,
        pue=window.grid.pue,
        jobs=Amounts(*of_jobs.T),
        jobs_parts_kwh=_summed(schedule.job, run_kw * of_run[:, :1], jobs),
        held_s=_summed(schedule.job, of_run[:, :1] * HOUR_S, jobs)[:, 0],
        known=known,
        machines=Amounts(*(idle + work).T),
        unallocated=Amounts(*(idle - held).T),
        hour_ts=hour_ts,
        hours=hours,
    )


def _summed(rows: IntArray, amounts: FloatArray, count: int) -> FloatArray:
    """Return the sums of amounts (n, c) by group; `rows` (n,) holds the group (0 .. count - 1) of each."""
    return np.column_stack([np.bincount(rows, weights=column, minlength=count) for column in amounts.T])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The time from `from_s` to `until_s` of a simulation whose 0 s is at the Unix time `start_ts`, on a grid."""

    grid: Grid
    start_ts: float
    from_s: float
    until_s: float

    @property
    def unknown(self) -> FloatArray:
        """Return NaN for carbon and for cost (3,) if the grid lacks the series, else 0."""
        return np.array([0.0, *(np.nan if each is None else 0.0 for each in (self.grid.carbon, self.grid.price))])

    def factors(self, begin_s: FloatArray, end_s: FloatArray) -> FloatArray:
        """Return kWh, carbon (g) and cost (USD) of drawing 1 kW during the parts of spans in the window (n, 3)."""
        begins, ends = self._within(begin_s, end_s)
        integrals = [
            np.full(len(begins), np.nan)
            if series is None
            else self.grid.pue * series.integral(self.start_ts + begins, self.start_ts + ends)
            for series in (self.grid.carbon, self.grid.price)
        ]
        return np.column_stack([(ends - begins) / HOUR_S, *integrals])

    def by_hour(self, begin_s: FloatArray, end_s: FloatArray, kw: FloatArray) -> tuple[FloatArray, Amounts]:
        """Return the hours that the window touches, and in each hour the sum of all spans' energy, carbon and cost."""
        first = float(np.floor((self.start_ts + self.from_s) / HOUR_S))
        count = max(int(np.ceil((self.start_ts + self.until_s) / HOUR_S - first)), 1)
        shift_s = self.start_ts - first * HOUR_S
        begins, ends = ((each + shift_s) / HOUR_S for each in self._within(begin_s, end_s))
        level, partly = np.zeros(count + 2), np.zeros(count + 2)
        for at, signed in ((begins, kw), (ends, -kw)):
            hour = np.minimum(at.astype(np.int64), count)
            partly += np.bincount(hour, weights=signed * (hour + 1 - at), minlength=count + 2)
            level += np.bincount(hour + 1, weights=signed, minlength=count + 2)
        kwh = (np.cumsum(level) + partly)[:count]
        hour_ts = (first + np.arange(count, dtype=np.float64)) * HOUR_S
        return hour_ts, Amounts(
            kwh, kwh * self._level(self.grid.carbon, hour_ts), kwh * self._level(self.grid.price, hour_ts)
        )

    def _within(self, begin_s: FloatArray, end_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        begins = np.clip(begin_s, self.from_s, self.until_s)
        return begins, np.maximum(np.clip(end_s, self.from_s, self.until_s), begins)

    def _level(self, series: HourlySeries | None, hour_ts: FloatArray) -> FloatArray:
        return np.full(len(hour_ts), np.nan) if series is None else self.grid.pue * series.at(hour_ts)


def united(outages: Outages) -> Outages:
    """Return outages that cover the same time without overlaps on a machine.

    >>> twice = Outages(machine=np.array([0, 0]), down_s=np.array([5.0, 8.0]), up_s=np.array([20.0, 30.0]))
    >>> united(twice).down_s.tolist(), united(twice).up_s.tolist()
    ([5.0, 20.0], [20.0, 30.0])
    """
    down_s = outages.down_s.copy()
    away_until: dict[int, float] = {}
    for row, (machine, up_s) in enumerate(zip(outages.machine.tolist(), outages.up_s.tolist(), strict=True)):
        down_s[row] = max(down_s[row], away_until.get(machine, 0.0))
        away_until[machine] = max(up_s, away_until.get(machine, 0.0))
    stays = down_s < outages.up_s
    order = np.argsort(down_s[stays], kind="stable")
    return Outages(machine=outages.machine[stays][order], down_s=down_s[stays][order], up_s=outages.up_s[stays][order])


class _Fleet(NamedTuple):
    """The machines (m) of a cluster as columns: capacity, idle power and full power."""

    cores: FloatArray
    gpus: FloatArray
    cpu_idle_w: FloatArray
    cpu_full_w: FloatArray
    gpu_idle_w: FloatArray
    gpu_full_w: FloatArray


def _fleet(machines: Sequence[Machine], powers: Sequence[NodePower]) -> _Fleet:
    if len(powers) != len(machines):
        raise BadInput(f"power: found figures of {len(powers)} machines, expected {len(machines)}, one per machine")
    rows = [
        (machine.cpu_cores, machine.gpus, watts.cpu_idle_w, watts.cpu_full_w, watts.gpu_idle_w, watts.gpu_full_w)
        for machine, watts in zip(machines, powers, strict=True)
    ]
    return _Fleet(*np.array(rows, dtype=np.float64).T)


def _drawn(
    schedule: Schedule, uses: Uses, fleet: _Fleet, assumed: Assumed
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """Return the power of each run on each of its machines: its power above idle, and its share of the idle power.

    Run, machine and kW by part (e, 4) have one entry per run and machine, as in `Schedule.hosts`; the last column (k,)
    is whether the CPU and GPU use of each run was measured.

    A GPU draws idle + (full - idle) x use watts, and the CPUs of a machine too, with the mean use of all its cores: we
    assume that power is linear in use. A run is charged the idle power of its GPUs, and of the CPUs in proportion to
    its cores, or to its GPUs if no job requests cores (our rule). Idle power of free capacity is charged to no run.
    """
    run = np.repeat(np.arange(len(schedule.job)), np.diff(schedule.host_offsets))
    machine = np.asarray(schedule.hosts, dtype=np.int64)
    gpus, gpus_used, gpu_known = _held(schedule, uses, 2, assumed.gpu_frac)
    cores, cores_used, cpu_known = _held(schedule, uses, 0, assumed.cpu_frac)
    if schedule.workload.request_units[:, 0].any():
        part, busy = _over(cores[run], fleet.cores[machine]), _over(cores_used[run], fleet.cores[machine])
    else:
        part = _over(gpus[run], fleet.gpus[machine])
        busy = part * assumed.cpu_frac
        cpu_known = np.zeros_like(cpu_known)
    watts = [
        busy * (fleet.cpu_full_w - fleet.cpu_idle_w)[machine],
        gpus_used[run] * (fleet.gpu_full_w - fleet.gpu_idle_w)[machine],
        part * fleet.cpu_idle_w[machine],
        gpus[run] * fleet.gpu_idle_w[machine],
    ]
    kw = np.column_stack(watts) * schedule.host_counts[:, None] / WATTS_PER_KW
    return run, machine, kw, cpu_known & gpu_known


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
